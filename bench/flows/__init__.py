"""Flows beside Celery's canvas and DBOS's workflows: a chain, and a group with a join."""
