"""The timeline of one submit and of one round trip, beside the bare machine and the peers."""
