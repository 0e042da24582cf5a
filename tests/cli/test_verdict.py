"""What members found on their disks, held against each other."""

from typing import Any

from jackalope.cli.verdict import Looked, Verdict, verdict
from jackalope.wire.peer import CopyFound
from tests.broker.cluster.test_overview import told

RIGHT, OTHER = b"r" * 8, b"o" * 8


def looked(role: str = "following", why: str = "", **more: Any) -> Looked:
    fields: dict[str, Any] = {"first": 1, "last": 100, "digest": RIGHT, "compared": 8}
    return Looked(told("n", role, why=why), **(fields | more))


def judge(*, slices: int = 8, splits: dict[str, int] | None = None, **changes: Looked) -> Verdict:
    members = {"a": looked("leading", compared=0), "b": looked(), "c": looked()} | changes
    copies = [CopyFound(name, 300) for name in members]
    return verdict("shop", 100, slices, members, copies=copies, splits=splits or {})


def test_members_that_are_equal() -> None:
    found = judge()
    assert (found.differences, found.unknown) == ([], [])
    assert {(each.chain, each.state) for each in found.members} == {("equal", "equal")}
    assert found.members[1].mirror == "1-100"
    assert found.members[1].log_copy == "300 messages"


def test_the_minority_has_the_other_log() -> None:
    found = judge(b=looked(digest=OTHER), splits={"b": 42})
    assert [each.chain for each in found.members] == ["equal", "differs", "equal"]
    assert "b has another log than the others from batch 42 on" in found.differences[0]
    assert len(found.differences) == 1


def test_of_two_that_differ_both_are_named() -> None:
    found = judge(b=looked(digest=OTHER), c=Looked(trouble="connection refused"))
    assert [each.chain for each in found.members] == ["differs", "differs", "not compared"]
    assert found.unknown == ["c does not answer: connection refused"]


def test_a_damaged_mirror_and_a_state_that_differs() -> None:
    found = judge(
        b=looked(problem="batch 7 is missing or damaged. Keep a copy of it", digest=b""),
        c=looked(diverged=1, differs="after batch 90, in slice 3 of 8", compared=2),
    )
    assert found.members[1].chain == "damaged"
    assert found.members[2].state == "differs"
    assert "mirror of b is damaged: batch 7 is missing or damaged; stop it" in found.differences[0]
    assert "c differed from the leader's after batch 90, in slice 3 of 8" in found.differences[1]


def test_what_was_not_compared_is_told() -> None:
    found = judge(b=looked("restoring", "x", compared=2), c=looked(digest=b""))
    assert found.members[1].state == "not compared"
    assert "the state of b was not compared: it is restoring: x" in found.unknown
    assert "c does not have the batch at which the others were compared" in found.unknown
    assert "no node leads, so states were not compared" in judge(slices=0).unknown


def test_a_quarantined_node_and_a_damaged_copy_are_differences() -> None:
    members = {"a": looked("quarantined", "the log lacks batch 7")}
    copies = [CopyFound("a", 200, "it lacks 100 messages from 4 on")]
    found = verdict("shop", 100, 8, members, copies=copies, splits={})
    assert found.members[0].log_copy == "it lacks 100 messages from 4 on"
    assert any("a is quarantined: the log lacks batch 7" in each for each in found.differences)
    assert any("remove `nats`" in each for each in found.differences)


def test_a_copy_that_was_not_read_is_unknown_and_nothing_is_to_be_removed() -> None:
    members = {"a": looked("leading"), "b": looked()}
    copies = [CopyFound("a", 200), CopyFound("b", 0, trouble="it starts")]
    found = verdict("shop", 100, 8, members, copies=copies, splits={})
    assert found.differences == []
    assert found.unknown == ["the copy of the log at b was not read: it starts"]
    assert [each.log_copy for each in found.members] == ["200 messages", "not compared"]
