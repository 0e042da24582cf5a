"""Several brokers in one thread: real nodes on virtual time, one log and a bad network."""
