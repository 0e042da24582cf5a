"""Storage: one suite a port, run on every backend, and real faults on the real files."""
