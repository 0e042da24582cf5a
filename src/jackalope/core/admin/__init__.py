"""Administration: queues, tag limits and API keys."""
