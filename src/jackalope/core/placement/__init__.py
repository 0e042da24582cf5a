"""Placement: which worker a task with needs goes to, by resources and labels."""
