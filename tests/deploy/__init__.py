"""What is in `deploy`: checked with the tools of its formats, and with the broker itself."""
