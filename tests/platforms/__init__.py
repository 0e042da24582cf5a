"""Platforms that the tests do not run on: what is missing there is taken away here."""
