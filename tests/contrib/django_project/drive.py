"""What a test does in a process where Django is set up: `python -m ... SCENARIO ...`."""

import sys
from traceback import format_exc

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django.test import Client  # noqa: E402

from jackalope.contrib.django.models import OutboxRow  # noqa: E402
from tests.contrib.django_project import tasks  # noqa: E402
from tests.contrib.django_project.promises import (  # noqa: E402
    SERVED,
    WAITING,
    Promise,
    Status,
    backends,
    finished,
)


def keep(promises: dict[str, Promise]) -> None:
    """Try every promise, and list those that are broken."""
    broken = []
    for sentence, check in promises.items():
        try:
            check()
        except Exception:  # noqa: BLE001  the others are tried as well
            broken.append(f"{sentence}:\n{format_exc()}")
    if broken:
        sys.exit("\n".join([*broken, f"{len(broken)} of {len(promises)} promises are broken"]))


def waiting() -> None:
    """What Django promises, before a worker serves."""
    keep(WAITING)


def served() -> None:
    """What Django promises, while a worker serves."""
    keep(SERVED)


def transactional() -> None:
    """Tasks go with the transaction, and the relay moves them."""
    with transaction.atomic():
        tasks.count.enqueue("nobody")
        transaction.set_rollback(True)
    assert OutboxRow.objects.count() == 0
    with transaction.atomic():
        User.objects.create_user("ada")
        result = tasks.count.enqueue("ada")
    assert OutboxRow.objects.count() == 1
    assert backends["outbox"].get_result(result.id).status == Status.READY
    call_command("jackalope_relay", "--backend", "outbox", "--once")
    assert OutboxRow.objects.count() == 0
    assert finished(result).return_value == 1


def admin() -> None:
    """The outbox in the admin."""
    User.objects.create_superuser("root", password="root")  # noqa: S106
    with transaction.atomic():
        result = tasks.count.enqueue("x")
    OutboxRow.objects.update(error="refused for a test")
    client = Client(HTTP_HOST="localhost")
    assert client.login(username="root", password="root")  # noqa: S106
    page = client.get("/admin/jackalope/outboxrow/").content.decode()
    assert result.id in page
    assert "refused for a test" in page
    row = OutboxRow.objects.get()
    client.post(
        "/admin/jackalope/outboxrow/", {"action": "move_again", "_selected_action": [row.pk]}
    )
    assert OutboxRow.objects.get().error == ""
    assert client.get("/admin/jackalope/outboxrow/add/").status_code == 403


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        globals()[scenario]()
