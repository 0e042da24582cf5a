"""Middleware: authentication, rate limits, request metrics, trace context."""
