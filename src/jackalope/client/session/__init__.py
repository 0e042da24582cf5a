"""The client's session: connection, outbox, watches, messages."""
