"""Jackalope: a durable task broker.

It takes work in, keeps it safe, gives each piece to one worker at a time, and tells the truth about
what happened. The packages below this one stand in layers, and imports point one way only:
`cli -> doors, pools, worker, client -> broker -> storage, wire -> core`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
