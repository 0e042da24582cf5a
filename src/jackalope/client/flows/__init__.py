"""Flows: graphs of tasks, written as Python and submitted at once."""
