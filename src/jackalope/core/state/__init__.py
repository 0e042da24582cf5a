"""State: what the broker knows, and the one way in which it changes."""
