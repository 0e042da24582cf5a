"""Fairness: how long small tenants wait behind large ones, with real processes."""
