"""The HTTP door: REST, GridLike's jobs and workers, metrics and health.

It needs `jackalope[http]`, and is loaded only when it opens.
"""
