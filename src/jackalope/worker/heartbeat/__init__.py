"""Heartbeats: a separate process that keeps a worker's session alive."""
