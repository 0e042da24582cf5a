"""The shared log: one order of entries for all nodes of a cluster.

`log` is what an engine must offer, `journal` makes a journal of it, `mirror` is the copy on a
node's own disk. The rest are engines: JetStream, PostgreSQL, and memory. Who leads is not decided
here.
"""
