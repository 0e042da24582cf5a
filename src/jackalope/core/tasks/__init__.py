"""The life of a task: submitted, assigned, attempted, retried, acted on, watched."""
