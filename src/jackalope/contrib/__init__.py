"""For other libraries: an outbox in the user's database, web frameworks, Django, notebooks."""
