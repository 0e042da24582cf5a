"""The AMQP 0-9-1 door: what programs written for RabbitMQ need."""

from jackalope.doors.amqp.server import AmqpDoor

__all__ = ["AmqpDoor"]
