"""The level of the records: what all members read, and when it is raised by itself."""

from typing import Any

from jackalope.broker.cluster.levels import Levels
from jackalope.broker.cluster.peer_link import Credentials
from jackalope.broker.cluster.peers import Peers
from jackalope.core.durations import DAY, HOUR
from jackalope.core.records import LEVEL
from tests.broker.cluster.test_overview import told


def heard(**levels: Any) -> Peers:
    """Return peers that have told which level they read; those with none do not answer."""
    peers = Peers(dict.fromkeys(levels, ("h", 1)), Credentials("s", "c", "a"))
    for name, level in levels.items():
        if level:
            peers.known[name].hear(told(name, level_max=level), 0, 0)
    return peers


def test_a_new_log_begins_with_what_all_read() -> None:
    assert Levels(lambda: None).first() == LEVEL
    assert Levels(lambda: heard(b=LEVEL + 1, c=None)).first() == LEVEL
    assert Levels(lambda: heard(b=1, c=LEVEL)).first() == 1


def test_who_does_not_read_a_level_is_named() -> None:
    levels = Levels(lambda: heard(b=1, c=LEVEL, d=None))
    lacking = levels.lacking(LEVEL)
    assert len(lacking) == 2
    assert "b (Jackalope 1.0) reads up to 1" in lacking
    assert "d does not answer" in lacking[1]
    assert "this node reads" in levels.lacking(LEVEL + 1)[0]


def test_it_is_raised_a_while_after_all_read_it() -> None:
    peers = heard(b=1, c=LEVEL)
    levels = Levels(lambda: peers, DAY)
    assert levels.due(1, HOUR) == 0
    peers.known["b"].hear(told("b", level_max=LEVEL), 0, 0)
    assert levels.due(1, 2 * HOUR) == 0
    assert levels.due(1, 2 * HOUR + DAY - 1) == 0
    assert levels.due(1, 2 * HOUR + DAY) == LEVEL
    assert levels.due(LEVEL, 2 * HOUR + DAY) == 0
    # One is gone for a moment: the wait begins anew.
    peers.known["b"].trouble = "gone"
    assert levels.due(1, 3 * DAY) == 0
    peers.known["b"].trouble = ""
    assert levels.due(1, 3 * DAY + 1) == 0
    assert Levels(lambda: peers).due(1, 99 * DAY) == 0  # By hand alone.
