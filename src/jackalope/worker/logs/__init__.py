"""Task logs in a worker: what a task prints and logs is captured, kept for a moment, and sent."""
