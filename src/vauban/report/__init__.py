"""Reports: tables and pictures of what a run proves."""
