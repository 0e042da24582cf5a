"""Functions as tasks: how their arguments and results become bytes, and what a worker must know.

Shared by client and worker, so that both ends encode alike. Knows nothing of connections, handles
or executors.
"""
