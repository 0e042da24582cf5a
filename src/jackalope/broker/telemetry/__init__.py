"""Telemetry: counters, gauges, time series, traces and the event log."""
