"""The report page: one self-contained HTML file that shows runs and recomputes their claims."""
