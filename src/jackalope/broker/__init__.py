"""The broker around the core: one batch of commands at a time, durable before it is acknowledged.

Owns the order of deciding, storing and sending. Knows nothing of bytes on a wire.
"""
