"""Middleware: authentication, rate limits, request metrics."""
