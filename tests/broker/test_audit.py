"""Which acts the audit log has: every command that only an administrator may give."""

from __future__ import annotations

from typing import get_args

from jackalope.broker.audit import AUDITED
from jackalope.core.api_key import Permission
from jackalope.core.commands import AnyCommand
from jackalope.core.commands.contracts import DeleteContract
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit


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
