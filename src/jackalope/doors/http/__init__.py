"""The HTTP door: REST, GridLike's jobs and workers, metrics and health.

It is loaded only when it opens.
"""
