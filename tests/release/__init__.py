"""What is released: that packages are whole, and work where nothing else is installed."""
