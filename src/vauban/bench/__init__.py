"""Speed, measured side by side in one run; never a timed unit test."""
