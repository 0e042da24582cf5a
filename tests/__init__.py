"""The tests, a package so that `python -m tests.simulation --seed N` runs from the root."""
