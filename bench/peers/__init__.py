"""Jackalope beside its peers: the same task on every one of them, in one run."""
