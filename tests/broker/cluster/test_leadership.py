"""Who leads: the table move by move, and every order of events of a few nodes."""

import pytest

from jackalope.broker.cluster.leadership import (
    Action,
    CaughtUp,
    ClaimStored,
    ClaimTaken,
    Eligibility,
    EntryStored,
    Event,
    FellBehind,
    HandedOver,
    HeardClaim,
    HeardEntry,
    HeardFence,
    HeardHandOver,
    MetNewer,
    Replace,
    Restored,
    Role,
    StepDown,
    Stop,
    Tick,
    Timing,
    View,
    WasFenced,
    WentAstray,
    next_us,
    step,
)
from jackalope.core.durations import MILLISECOND, SECOND
from tests.broker.cluster.search import Broken, Entry, Search

TIMING = Timing()


def following(place: int = 0, now_us: int = SECOND) -> View:
    return step(View(name="b", place=place), CaughtUp(), now_us, TIMING).view


def leading(now_us: int = SECOND) -> View:
    view = step(following(), Tick(), 3 * SECOND, TIMING).view
    return step(view, ClaimStored(5, now_us), now_us, TIMING).view


def test_a_follower_claims_when_the_leader_has_been_silent() -> None:
    view = following()
    due_us = next_us(view, TIMING)
    assert due_us == SECOND + TIMING.takeover_us
    assert step(view, Tick(), due_us - 1, TIMING).action is Action.NOTHING
    move = step(view, Tick(), due_us, TIMING)
    assert (move.action, move.view.role) == (Action.CLAIM, Role.CLAIMING)


@pytest.mark.parametrize("sign", [HeardEntry(4), HeardClaim(4, "a")])
def test_every_sign_of_a_leader_puts_the_claim_off(sign: Event) -> None:
    view = step(following(), sign, 2 * SECOND, TIMING).view
    assert next_us(view, TIMING) == 2 * SECOND + TIMING.takeover_us


def test_nodes_wait_one_after_the_other() -> None:
    dues = [next_us(following(place), TIMING) for place in range(3)]
    assert [due - dues[0] for due in dues if due and dues[0]] == [0, 150_000, 300_000]


def test_the_leader_that_is_lost_is_not_waited_for() -> None:
    view = View(name="c", place=2, before=("a", "b"))
    for leader, turns in (("a", 1), ("b", 1), ("c", 2), ("", 2)):
        heard = step(view, HeardClaim(4, leader), SECOND, TIMING).view
        assert heard.claim_us == SECOND + TIMING.takeover_us + turns * TIMING.place_us
        freed = step(heard, HeardHandOver(4, ""), 2 * SECOND, TIMING).view
        assert freed.claim_us == 2 * SECOND + turns * TIMING.place_us


def test_a_leader_that_hands_over_learns_who_leads_next() -> None:
    for event, role, action in (
        (StepDown("c"), Role.CATCHING_UP, Action.FOLLOW),
        (Stop(), Role.STOPPED, Action.EXIT),
    ):
        handing = step(leading(), event, 2 * SECOND, TIMING).view
        heard = step(handing, HeardClaim(6, "c"), 3 * SECOND, TIMING).view
        assert (heard.role, heard.leader, heard.epoch) == (Role.HANDING_OVER, "c", 6)
        move = step(heard, HandedOver(), 3 * SECOND, TIMING)
        assert (move.view.role, move.view.leader, move.action) == (role, "c", action)
        unheard = step(handing, HandedOver(), 3 * SECOND, TIMING).view
        assert (unheard.role, unheard.leader) == (role, "")


def test_a_hand_over_lets_the_named_node_claim_at_once_and_others_later() -> None:
    for to, courtesy_us in (("b", 0), ("", 150_000), ("c", 450_000)):
        view = step(following(place=1), HeardHandOver(4, to), 2 * SECOND, TIMING).view
        assert next_us(view, TIMING) == 2 * SECOND + courtesy_us
        assert view.leader == ""


def test_a_node_that_lags_does_not_claim() -> None:
    view = View(name="b")
    assert step(view, Tick(), 60 * SECOND, TIMING).action is Action.NOTHING
    assert next_us(view, TIMING) is None


def test_a_lost_claim_is_followed() -> None:
    claiming = step(following(), Tick(), 9 * SECOND, TIMING).view
    move = step(claiming, ClaimTaken(), 9 * SECOND, TIMING)
    assert (move.view.role, move.action) == (Role.FOLLOWING, Action.NOTHING)
    assert next_us(move.view, TIMING) == 9 * SECOND + TIMING.takeover_us


def test_a_leader_beats_only_when_it_has_nothing_to_store() -> None:
    view = leading()
    assert view.leader == "b"
    later_us = SECOND + TIMING.beat_us
    assert step(view, Tick(), later_us, TIMING).action is Action.BEAT
    view = step(view, EntryStored(later_us - 1), later_us, TIMING).view
    assert step(view, Tick(), later_us, TIMING).action is Action.NOTHING


def test_a_leader_reads_for_as_long_as_no_other_can_have_claimed() -> None:
    view = leading()
    end_us = SECOND + TIMING.read_lease_us
    assert view.may_read(end_us - 1, TIMING)
    assert not view.may_read(end_us, TIMING)
    assert not following().may_read(SECOND, TIMING)


def test_a_leader_that_steps_down_reads_no_more() -> None:
    move = step(leading(), StepDown("c"), SECOND, TIMING)
    assert (move.action, move.to) == (Action.HAND_OVER, "c")
    assert not move.view.may_read(SECOND, TIMING)
    move = step(move.view, HandedOver(), SECOND, TIMING)
    assert (move.action, move.view.role) == (Action.FOLLOW, Role.CATCHING_UP)


def test_a_deposed_leader_rebuilds_its_state_and_follows() -> None:
    move = step(leading(), WasFenced(), SECOND, TIMING)
    assert (move.action, move.view.role, move.view.leader) == (Action.FOLLOW, Role.CATCHING_UP, "")


def test_a_leader_that_stops_hands_over_first() -> None:
    move = step(leading(), Stop(), SECOND, TIMING)
    assert (move.action, move.view.role) == (Action.HAND_OVER, Role.HANDING_OVER)
    for last in (HandedOver(), WasFenced()):
        assert step(move.view, last, SECOND, TIMING).action is Action.EXIT


def test_a_node_that_stops_while_it_claims_hands_over_what_it_got() -> None:
    claiming = step(following(), Tick(), 9 * SECOND, TIMING).view
    stopping = step(claiming, Stop(), 9 * SECOND, TIMING).view
    won = step(stopping, ClaimStored(1, 9 * SECOND), 9 * SECOND, TIMING)
    assert won.action is Action.HAND_OVER
    assert step(stopping, ClaimTaken(), 9 * SECOND, TIMING).action is Action.EXIT


def test_a_follower_stops_at_once() -> None:
    assert step(following(), Stop(), SECOND, TIMING).action is Action.EXIT


def test_a_node_that_may_not_lead_does_not_claim_and_hands_over() -> None:
    view = step(following(), Eligibility(is_eligible=False), SECOND, TIMING).view
    assert next_us(view, TIMING) is None
    assert step(view, Tick(), 60 * SECOND, TIMING).action is Action.NOTHING
    again = step(view, Eligibility(is_eligible=True), 60 * SECOND, TIMING).view
    assert next_us(again, TIMING) == 60 * SECOND + TIMING.takeover_us
    move = step(leading(), Eligibility(is_eligible=False), SECOND, TIMING)
    assert move.action is Action.HAND_OVER


@pytest.mark.parametrize(
    ("event", "role", "action"),
    [
        (FellBehind("cut"), Role.RESTORING, Action.RESTORE),
        (WentAstray("other"), Role.QUARANTINED, Action.STAND_STILL),
        (MetNewer("level 9"), Role.OUTDATED, Action.STAND_STILL),
    ],
)
def test_what_cannot_be_followed_is_not_led(event: Event, role: Role, action: Action) -> None:
    move = step(following(), event, SECOND, TIMING)
    assert (move.view.role, move.action) == (role, action)
    assert next_us(move.view, TIMING) is None
    assert step(move.view, Tick(), 60 * SECOND, TIMING).action is Action.NOTHING


def test_a_restored_node_catches_up() -> None:
    restoring = step(following(), FellBehind("cut"), SECOND, TIMING).view
    move = step(restoring, Restored(), SECOND, TIMING)
    assert (move.view.role, move.action, move.view.why) == (Role.CATCHING_UP, Action.FOLLOW, "")


@pytest.mark.parametrize(
    "timing", [Timing(beat_us=500 * MILLISECOND), Timing(takeover_us=950 * MILLISECOND)]
)
def test_times_that_would_let_two_nodes_answer_reads_are_refused(timing: Timing) -> None:
    assert timing.problems()
    assert not Timing().problems()


# Every order of events.


@pytest.mark.parametrize(("nodes", "log_max", "crashes"), [(2, 4, 0), (2, 3, 1), (3, 3, 0)])
def test_no_order_of_events_makes_two_writers(nodes: int, log_max: int, crashes: int) -> None:
    search = Search(nodes, log_max, crashes)
    assert search.run() > 4_000
    assert {Role.CLAIMING, Role.LEADING, Role.HANDING_OVER} <= search.roles


@pytest.mark.parametrize(("nodes", "log_max"), [(2, 4), (3, 2)])
def test_nor_does_it_where_nodes_may_lead_and_may_not(nodes: int, log_max: int) -> None:
    search = Search(nodes, log_max, 0, judges=True)
    assert search.run() > 4_000
    assert {Role.CLAIMING, Role.LEADING, Role.HANDING_OVER} <= search.roles


@pytest.mark.parametrize(("nodes", "log_max", "crashes"), [(2, 4, 0), (2, 3, 1), (3, 3, 0)])
def test_nothing_follows_a_fence(nodes: int, log_max: int, crashes: int) -> None:
    """Whichever node has not heard of it, or is started again: see `search.check`."""
    search = Search(nodes, log_max, crashes, replaces=True)
    assert search.run() > 4_000
    assert {Role.LEADING, Role.FENCED} <= search.roles


def test_a_leader_is_replaced_and_never_claims_again() -> None:
    move = step(leading(), Replace(), 3 * SECOND, TIMING)
    assert (move.action, move.view.role) == (Action.FENCE, Role.HANDING_OVER)
    fenced = step(move.view, HeardFence("s:7420"), 3 * SECOND, TIMING).view
    assert (fenced.role, fenced.leader) == (Role.FENCED, "")
    assert "s:7420 was promoted" in fenced.why
    assert next_us(fenced, TIMING) is None
    for event in (Tick(), CaughtUp(), HeardEntry(9), Eligibility(is_eligible=True)):
        assert step(fenced, event, 99 * SECOND, TIMING).view.role is Role.FENCED
    assert step(fenced, Stop(), 99 * SECOND, TIMING).action is Action.EXIT


@pytest.mark.parametrize("view", [following(), View(name="b")])
def test_a_follower_that_reads_a_fence_never_claims(view: View) -> None:
    fenced = step(view, HeardFence("s"), 3 * SECOND, TIMING).view
    assert step(fenced, Tick(), 99 * SECOND, TIMING).action is Action.NOTHING


def test_a_claim_of_a_node_that_may_not_lead_is_handed_on() -> None:
    claiming = step(following(), Tick(), 9 * SECOND, TIMING).view
    unfit = step(claiming, Eligibility(is_eligible=False, why="clock"), 9 * SECOND, TIMING).view
    move = step(unfit, ClaimStored(6, 9 * SECOND), 9 * SECOND, TIMING)
    assert (move.action, move.view.role) == (Action.HAND_OVER, Role.HANDING_OVER)
    assert move.view.unfit == "clock"


def _anywhere(log: tuple[Entry, ...], entry: Entry) -> tuple[tuple[Entry, ...], bool]:
    """Store an entry wherever the log ends."""
    return ((*log, entry), True) if entry not in log else (log, True)


def _believed(log: tuple[Entry, ...], entry: Entry) -> tuple[tuple[Entry, ...], bool]:
    """Take an entry that is not there for stored."""
    return ((*log, entry) if entry.position == len(log) + 1 else log), True


@pytest.mark.parametrize("judged", [_anywhere, _believed])
def test_the_search_finds_a_log_that_does_not_keep_its_promise(judged: object) -> None:
    search = Search(2, 4, 0, judged)  # type: ignore[arg-type]  # One of the two above.
    with pytest.raises(Broken):
        search.run()
