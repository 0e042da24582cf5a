"""The systems by name: the module in this package and the class in it."""

from __future__ import annotations

_THREE = "_three"

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
    # Three servers on one machine: measured by `python -m bench cluster` alone.
    "jackalope_three": "three:JackalopeThree",
    "rabbitmq_three": "three:RabbitmqThree",
    "jetstream_three": "jetstream:JetStreamThree",
}

#: What `python -m bench peers` measures.
ALONE = [name for name in PEERS if not name.endswith(_THREE)]
THREE = [name for name in PEERS if name.endswith(_THREE)]
