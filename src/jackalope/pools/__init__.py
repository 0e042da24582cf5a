"""Pools: workers that are started when work for them arrives, and stopped when it is done."""
