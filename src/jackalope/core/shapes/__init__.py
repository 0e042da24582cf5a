"""Shapes: structs that commands, records and rows share, and what makes them sound."""
