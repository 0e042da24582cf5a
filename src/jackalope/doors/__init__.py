"""Doors: each turns bytes into commands and effects into bytes, and decides nothing."""
