"""Tests of limits by key."""
