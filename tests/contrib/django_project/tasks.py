"""Tasks as a user of Django writes them."""

from typing import Any

from django.contrib.auth.models import User
from django_tasks import task


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=10)
def fail(why: str) -> None:
    raise ValueError(why)


@task
async def add_async(a: int) -> int:
    return a + 1


@task(takes_context=True)
def tell(context: Any, word: str) -> list[Any]:
    return [context.task_result.id, context.attempt, word]


@task(backend="outbox")
def count(name: str) -> int:
    return int(User.objects.filter(username=name).count())


@task
def odd() -> object:
    return object()
