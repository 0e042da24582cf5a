"""Executors: how functions are run: on a loop, in threads, in processes."""
