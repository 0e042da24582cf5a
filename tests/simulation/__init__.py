"""Simulation: broker, workers and clients in one thread, on virtual time, from one seed.

Everything that can go wrong goes wrong on purpose: see `faults`. Checkers watch every durable
record and every effect that leaves the broker. A failing seed is run alone, with a trace, by
`python -m tests.simulation --seed N --trace`.
"""
