"""Pools: which workers should run for which key."""
