"""AMQP 0-9-1 semantics: exchanges, bindings, consumers, dead letters, replies."""
