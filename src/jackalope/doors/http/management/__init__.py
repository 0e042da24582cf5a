"""RabbitMQ's management API, as far as tools use it: the same paths, fields and statuses.

It is an application of its own on a port of its own, because its paths are RabbitMQ's. It changes
the broker by commands of the core and reads it through views, as every other door does.
"""
