"""Acceptance: real processes, real sockets, real kills, as a user would have them."""
