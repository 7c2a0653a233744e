"""Reports: tables and plots of certificates, and progress."""
