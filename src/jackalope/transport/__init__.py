"""The peer's end of a connection to the broker, shared by client and worker.

Owns the socket, the pairing of requests and answers, addresses, fresh ids and the errors that a
user sees. Knows nothing of functions, handles or executors, and nothing of the broker's inside.
"""
