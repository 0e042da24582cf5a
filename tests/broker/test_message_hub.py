"""The message_hub at its limits, and what it forgets. How it works is tested over the door."""

import pytest

from jackalope.broker.message_hub import (
    CALLS_PER_SESSION_MAX,
    INTERESTS_PER_SESSION_MAX,
    MESSAGE_BYTES_MAX,
    PENDING_PER_CALL_MAX,
    RECIPIENTS_PER_SESSION_MAX,
    MessageHub,
    Seat,
)
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.wire.messages import CallStage, Interest


class Line:
    """The end of a session that keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, bytes]] = []
        self.replies: list[tuple[int, CallStage, bytes]] = []
        self.broadcasts: list[tuple[str, str, bytes, int]] = []

    def is_slow(self) -> bool:
        return False

    def called(self, call: int, recipient: str, body: bytes) -> None:
        self.calls.append((call, recipient, body))

    def replied(self, ref: int, stage: CallStage, body: bytes) -> None:
        self.replies.append((ref, stage, body))

    def heard(self, subject: str, sender: str, body: bytes, missed: int) -> None:
        self.broadcasts.append((subject, sender, body, missed))


@pytest.fixture
def board() -> MessageHub:
    return MessageHub()


def sit(board: MessageHub, namespace: str = "default") -> tuple[Seat, Line]:
    line = Line()
    return board.sit(namespace, line), line


def code_of(outcome: object) -> Code:
    assert isinstance(outcome, Refusal)
    return outcome.code


def test_recipients_of_a_session_are_limited(board: MessageHub) -> None:
    seat, _ = sit(board)
    names = tuple(f"r{number}" for number in range(RECIPIENTS_PER_SESSION_MAX))
    assert board.listen(seat, names, ()) is None
    assert board.listen(seat, names, ()) is None  # Naming them again adds none.
    assert code_of(board.listen(seat, ("one more",), ())) is Code.TOO_MANY
    board.unlisten(seat, ("r0",), ())
    assert board.listen(seat, ("one more",), ()) is None


def test_interests_of_a_session_are_limited(board: MessageHub) -> None:
    seat, _ = sit(board)
    interests = tuple(Interest(subject=f"s{n}") for n in range(INTERESTS_PER_SESSION_MAX))
    assert board.listen(seat, (), interests) is None
    assert code_of(board.listen(seat, (), (Interest(),))) is Code.TOO_MANY


def test_calls_that_wait_are_limited(board: MessageHub) -> None:
    caller, _ = sit(board)
    callee, line = sit(board)
    board.listen(callee, ("clerk",), ())
    for ref in range(1, CALLS_PER_SESSION_MAX + 1):
        assert board.call(caller, ref, "clerk", b"") is None
    assert code_of(board.call(caller, 1, "clerk", b"")) is Code.TOO_MANY
    other, _ = sit(board)
    assert code_of(board.call(other, 1, "clerk", b"")) is Code.TOO_MANY  # The callee has enough.
    board.reply(callee, line.calls[0][0], CallStage.RESULT, b"")
    assert board.call(other, 1, "clerk", b"") is None


def test_bodies_are_limited(board: MessageHub) -> None:
    caller, heard = sit(board)
    callee, line = sit(board)
    board.listen(callee, ("clerk",), (Interest(),))
    largest, larger = bytes(MESSAGE_BYTES_MAX), bytes(MESSAGE_BYTES_MAX + 1)
    assert board.call(caller, 1, "clerk", largest) is None
    assert code_of(board.call(caller, 2, "clerk", larger)) is Code.TOO_LARGE
    assert board.broadcast(caller.namespace, "", "", largest) == 1
    assert code_of(board.broadcast(caller.namespace, "", "", larger)) is Code.TOO_LARGE
    (call, _, _) = line.calls[0]
    assert code_of(board.reply(callee, call, CallStage.RESULT, larger)) is Code.TOO_LARGE
    # The caller does not wait for what was not passed on.
    assert [reply[:2] for reply in heard.replies] == [(1, CallStage.ERROR)]
    assert not board._calls


def test_names_are_limited(board: MessageHub) -> None:
    seat, _ = sit(board)
    longest, longer = "n" * NAME_CHARS_MAX, "n" * (NAME_CHARS_MAX + 1)
    assert board.listen(seat, (longest,), (Interest(longest, longest),)) is None
    assert code_of(board.listen(seat, (longer,), ())) is Code.INVALID
    assert code_of(board.listen(seat, (), (Interest(longer),))) is Code.INVALID
    assert code_of(board.listen(seat, ("",), ())) is Code.INVALID
    assert board.broadcast(seat.namespace, longest, longest, b"") == 1
    assert code_of(board.broadcast(seat.namespace, longer, "", b"")) is Code.INVALID


def test_a_call_is_put_off_only_so_often(board: MessageHub) -> None:
    caller, heard = sit(board)
    callee, line = sit(board)
    board.listen(callee, ("clerk",), ())
    board.call(caller, 1, "clerk", b"")
    number = line.calls[0][0]
    for _ in range(PENDING_PER_CALL_MAX + 1):
        board.reply(callee, number, CallStage.PENDING, b"")
    assert len(heard.replies) == PENDING_PER_CALL_MAX
    board.reply(callee, number, CallStage.RESULT, b"end")
    assert heard.replies[-1] == (1, CallStage.RESULT, b"end")


def test_only_the_recipient_replies(board: MessageHub) -> None:
    caller, heard = sit(board)
    callee, line = sit(board)
    thief, _ = sit(board)
    board.listen(callee, ("clerk",), ())
    board.call(caller, 1, "clerk", b"")
    board.reply(thief, line.calls[0][0], CallStage.RESULT, b"forged")
    assert heard.replies == []


def test_nothing_is_left_of_who_has_gone(board: MessageHub) -> None:
    seats = [sit(board, namespace)[0] for namespace in ("one", "one", "two")]
    for seat in seats:
        board.listen(seat, ("clerk", "cook"), (Interest(), Interest("ada")))
        board.call(seat, 1, "clerk", b"")
    for seat in seats:
        board.leave(seat)
    assert not board._calls
    assert board._recipients == {}
    assert board._listeners == {}
