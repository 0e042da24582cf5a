"""Task logs in a worker."""
