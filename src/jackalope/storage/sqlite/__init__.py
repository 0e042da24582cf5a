"""SQLite backends: journal, history and series."""
