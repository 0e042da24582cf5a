"""The table of the outbox, as Django's migrations and admin see it."""

from typing import ClassVar

from django.db import models
from django.db.models import Value

from jackalope.contrib.outbox import TABLE


class OutboxRow(models.Model):
    """A task that waits for the relay, or that the broker has refused."""

    seq = models.BigAutoField(primary_key=True)
    task = models.TextField(unique=True)
    body = models.BinaryField()
    error = models.TextField(default="", db_default=Value(""), blank=True)

    class Meta:
        """Where it is."""

        db_table = TABLE
        verbose_name = "task in the outbox"
        verbose_name_plural = "tasks in the outbox"
        ordering: ClassVar = ["seq"]

    def __str__(self) -> str:
        return str(self.task)
