"""Monitoring: `/health` and `/metrics`."""
