"""The table of the outbox."""

from typing import ClassVar

from django.db import migrations, models
from django.db.models import Value

from jackalope.contrib.outbox import TABLE


class Migration(migrations.Migration):
    """Make the table."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("task", models.TextField(unique=True)),
                ("body", models.BinaryField()),
                ("error", models.TextField(blank=True, db_default=Value(""), default="")),
            ],
            options={
                "db_table": TABLE,
                "verbose_name": "task in the outbox",
                "verbose_name_plural": "tasks in the outbox",
                "ordering": ["seq"],
            },
        )
    ]
