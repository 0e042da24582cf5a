"""The clients of RabbitMQ over its own broker and over ours, in one run."""
