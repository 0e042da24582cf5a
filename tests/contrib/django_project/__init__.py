"""A project of Django, as a user has it."""
