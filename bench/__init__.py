"""Benchmarks: what Jackalope costs, measured beside its floors. They print and fail nothing."""
