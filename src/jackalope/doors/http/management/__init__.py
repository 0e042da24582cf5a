"""RabbitMQ's management API, as far as tools use it: the same paths, fields and statuses.

It is an application of its own on a port of its own, because its paths are RabbitMQ's. It changes
the broker by the commands of core and reads the book, as every other part of the doors does.
"""
