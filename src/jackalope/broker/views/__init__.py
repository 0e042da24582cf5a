"""Views: the core's state as it is shown."""
