"""The REST API, `/api/v1`: tasks, queues, workers, numbers and events.

Knows no other part of the door. Each module has one noun, and lists its routes.
"""
