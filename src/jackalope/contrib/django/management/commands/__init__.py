"""One module a command, named as Django finds it."""
