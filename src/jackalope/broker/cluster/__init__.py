"""The cluster: the same broker on a replicated log.

`leadership` decides who leads, `node` does what it says. The core and the engine do not know that
there are several nodes.
"""
