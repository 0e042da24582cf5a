"""Which acts the audit log has: every command that only an administrator may give."""

from __future__ import annotations

from typing import get_args

from jackalope.broker.audit import AUDITED
from jackalope.core.api_key import Permission
from jackalope.core.audit import Act
from jackalope.core.commands import AnyCommand
from jackalope.core.commands.amqp import OpenExchange
from jackalope.core.commands.contracts import DeleteContract
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.commands.namespaces import NoteAct
from jackalope.core.records import ActNoted
from jackalope.core.shapes.exchange import Exchange, Kind
from tests.core.driving import Driver
from tests.doors.harness import run
from tests.doors.http.harness import open_http
from tests.doors.http.test_dashboard import make_key


def test_every_command_of_administrators_is_noted() -> None:
    commands = {kind for kind in get_args(AnyCommand) if kind.needs == (Permission.ADMIN,)}
    assert commands >= {DeclareLimits, DeleteLimit, DeleteContract}
    assert {kind.__name__ for kind in commands} - {kind.__name__ for kind in AUDITED} == set()


def test_acts_are_described() -> None:
    limits: dict[str, dict[str, object]] = {"users": {"keys": ["user"], "concurrency": 2}}
    told = AUDITED[DeclareLimits](DeclareLimits(limits=limits))
    assert told == 'limits users={"keys":["user"],"concurrency":2}'
    assert AUDITED[DeleteLimit](DeleteLimit(name="users")) == "limit users"
    gone = AUDITED[DeleteContract](DeleteContract(queue="q", name="resize"))
    assert gone == "contract of resize in queue q"


def test_declaring_what_exists_already_is_no_act() -> None:
    driver, noted = Driver(), []
    for _ in range(2):
        command = OpenExchange(exchange=Exchange("letters", Kind.TOPIC))
        driver.send(NoteAct(act=Act("open_exchange"), command=command))
        noted.append(any(isinstance(each, ActNoted) for each in driver.records))
    assert noted == [True, False]


def test_what_a_route_refuses_is_noted() -> None:
    async def check() -> None:
        async with open_http() as house:
            root = await make_key(house, Permission.ADMIN)
            token = await make_key(house, Permission.READ_TASKS, namespace="acme")
            theirs, roots = ({"Authorization": f"Bearer {each}"} for each in (token, root))
            refused = await house.client.delete("/api/v1/namespaces/zebra", headers=theirs)
            assert refused.status_code == 403
            found = (await house.client.get("/api/v1/audit", headers=roots)).json()["acts"][0]
            told = (found["what"], found["namespace"], found["outcome"], found["about"])
            path = "DELETE /api/v1/namespaces/zebra"
            assert told == ("delete_namespace", "acme", "forbidden", path)

    run(check())
