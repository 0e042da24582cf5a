"""The systems by name: the module in this package and the class in it."""

from __future__ import annotations

PEERS = {
    "jackalope": "jackalope:JackalopePeer",
    "celery_redis": "celery:CeleryRedis",
    "celery_rabbitmq": "celery:CeleryRabbitmq",
    "dramatiq_redis": "dramatiq:DramatiqRedis",
    "dramatiq_rabbitmq": "dramatiq:DramatiqRabbitmq",
    "rq": "rq:Rq",
    "arq": "arq:Arq",
    "taskiq_redis": "taskiq:Taskiq",
    "huey_redis": "huey:HueyRedis",
    "huey_sqlite": "huey:HueySqlite",
    "procrastinate": "procrastinate:Procrastinate",
    "beanstalkd": "beanstalkd:Beanstalkd",
    "rabbitmq_aio_pika": "aio_pika:AioPika",
    "rabbitmq_pika": "pika:Pika",
}
