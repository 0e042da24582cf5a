"""The faults: what is done to a cluster under load, one function each.

Each does its harm and undoes it; a run then waits until the cluster is whole again. What must hold
at the end of every run is in `checks`; what a fault promises besides is asserted here.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from tests.chaos.history import now
from tests.chaos.machines import Machine
from tests.chaos.run import Run

#: How long a fault lasts that is not over by itself.
LASTS_S = 6.0

Do = Callable[[Run, random.Random], None]


class Fault(NamedTuple):
    """One way to do harm."""

    name: str
    number: int  # of the list that docs/explanation/chaos.md explains
    do: Do
    needs_disk: bool = False  # of a size


ALL: list[Fault] = []


def fault(name: str, number: int, *, needs_disk: bool = False) -> Callable[[Do], Do]:
    def note(do: Do) -> Do:
        ALL.append(Fault(name, number, do, needs_disk))
        return do

    return note


def _another_leads(run: Run, old: Machine) -> None:
    others = [each for each in run.machines.all if each is not old]
    run.machines.until(
        lambda: any(each.get("/health")[1].get("is_leader") for each in others),
        f"another node than {old.name} leads",
        run.settle_s,
    )


def _pause(machine: Machine, seconds: float) -> None:
    """Stop a broker for a while, and let it go on."""
    assert machine.process is not None
    os.kill(machine.process.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(machine.process.pid, signal.SIGCONT)


@fault("kill -9 of the leading broker", 1)
def kill_leader(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    leader.kill()
    try:
        _another_leads(run, leader)
    finally:
        leader.start()


@fault("leading broker stopped for some seconds (SIGSTOP)", 2)
def stop_leader(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    _pause(leader, LASTS_S)
    run.machines.until(
        lambda: (
            leader.get("/health")[1].get("role") == "follower" or run.machines.leaders() == [leader]
        ),
        "a leader that was stopped follows",
        run.settle_s,
    )


@fault("kill -9 of the leader's whole machine", 3)
def kill_machine(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    leader.kill()
    leader.signal_server(signal.SIGKILL)
    try:
        _another_leads(run, leader)
    finally:
        leader.start()


@fault("kill -9 of each nats-server in turn", 4)
def kill_servers(run: Run, _chance: random.Random) -> None:
    for machine in run.machines.all:
        machine.signal_server(signal.SIGKILL)
        run.machines.until(machine.server_pid, "nats-server is started again", run.settle_s)
        run.settle()


@fault("nats-servers stopped in turn (SIGSTOP)", 4)
def stop_servers(run: Run, _chance: random.Random) -> None:
    for machine in run.machines.all:
        machine.signal_server(signal.SIGSTOP)
        try:
            time.sleep(LASTS_S)
        finally:
            machine.signal_server(signal.SIGCONT)
        run.settle()


@fault("leading broker and its nats-server told to stop (SIGTERM)", 5)
def restart_leader(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    try:
        assert leader.stop(60) == 0, leader.log()[-3000:]
    finally:
        leader.start()


@fault("rolling restart (SIGTERM of each node in turn)", 5)
def restart_all(run: Run, _chance: random.Random) -> None:
    for machine in run.machines.all:
        assert machine.stop(60) == 0, machine.log()[-3000:]
        machine.start()
        run.settle()


def _goes_on(run: Run) -> None:
    """Wait until clients are answered, while the fault lasts."""
    at = now()
    run.machines.until(
        lambda: run.acknowledged_after(at), "clients find the side that leads", run.settle_s
    )


def _partition(run: Run, cut: Callable[[Machine, list[Machine]], None]) -> None:
    leader = run.machines.leader()
    others = [each for each in run.machines.all if each is not leader]
    cut(leader, others)
    try:
        time.sleep(LASTS_S)
        _goes_on(run)
    finally:
        leader.heal()


@fault("leader's machine cut off from the others", 7)
def cut_off(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    leader.cut_from(run.machines.all)
    try:
        _another_leads(run, leader)
        # Clients still reach the one that was cut off: it must not speak for the cluster.
        status, _ = leader.post("/api/v1/tasks", {"queue": "marks", "payload": 1})
        assert status not in range(200, 300), "a leader that is cut off acknowledges a task"
        _goes_on(run)
    finally:
        leader.heal()


@fault("leader's machine is not heard by the others", 7)
def not_heard(run: Run, _chance: random.Random) -> None:
    _partition(run, lambda leader, others: leader.cut_from(others, into=False))


@fault("leader's machine does not hear the others", 7)
def not_hearing(run: Run, _chance: random.Random) -> None:
    _partition(run, lambda leader, others: leader.cut_from(others, out=False))


@fault("leader's machine reaches one of the two others", 7)
def half_cut(run: Run, chance: random.Random) -> None:
    _partition(run, lambda leader, others: leader.cut_from([chance.choice(others)]))


@fault("5 % of all packets are lost", 7)
def lose_packets(run: Run, _chance: random.Random) -> None:
    for machine in run.machines.all:
        machine.lose(5)
    try:
        time.sleep(2 * LASTS_S)
    finally:
        for machine in run.machines.all:
            machine.heal()


@fault("links between the machines are 25 to 75 ms slow each way", 7)
def slow_links(run: Run, _chance: random.Random) -> None:
    with ExitStack() as undoing:
        proxies = []
        for machine in run.machines.all:
            proxy = machine.slow_down(25, 50)
            undoing.callback(machine.speed_up, proxy)
            proxies.append(proxy)
        for machine in run.machines.all:
            machine.reset_routes(0.5)
        run.machines.until(
            lambda: sum(map(Machine.passes, proxies)) > 1, "routes are slow", run.settle_s
        )
        time.sleep(2 * LASTS_S)


@fault("two of three machines are down", 8)
def lose_majority(run: Run, _chance: random.Random) -> None:
    leader = run.machines.leader()
    others = [each for each in run.machines.all if each is not leader]
    for machine in others:
        machine.kill()
        machine.signal_server(signal.SIGKILL)
    try:
        down = now()
        run.machines.until(
            lambda: leader.get("/health")[0] != 200,
            "a leader without the others says so",
            run.settle_s,
        )
        time.sleep(LASTS_S / 2)
        # An acknowledgement may have been on its way.
        late = [at for at in run.acknowledgements() if at > down + 500_000_000]
        assert not late, f"{len(late)} tasks were acknowledged by a minority"
    finally:
        for machine in others:
            machine.start()


def _fill(folder: Path) -> Path:
    """Leave no byte of a disk free."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def _full_disk(folder: Path) -> None:
    filler = _fill(folder)
    try:
        time.sleep(LASTS_S)
    finally:
        filler.unlink()


@fault("log's disk of a follower is full", 9, needs_disk=True)
def fill_follower(run: Run, chance: random.Random) -> None:
    _full_disk(_any_follower(run, chance).nats)


@fault("log's disk of the leader is full", 9, needs_disk=True)
def fill_log(run: Run, _chance: random.Random) -> None:
    _full_disk(run.machines.leader().nats)


@fault("leader's disk of mirror and history is full", 9, needs_disk=True)
def fill_history(run: Run, _chance: random.Random) -> None:
    _full_disk(run.machines.leader().folder / "data" / "shards")


# Damage.


def _any_follower(run: Run, chance: random.Random) -> Machine:
    leader = run.machines.leader()
    return chance.choice([each for each in run.machines.all if each is not leader])


def _cut_in_half(paths: list[Path]) -> None:
    """Cut the largest of some files in half."""
    path = max(paths, key=lambda path: path.stat().st_size)
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path, count: int = 64) -> None:
    """Damage the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        found = file.read(count)
        file.seek(-len(found), os.SEEK_CUR)
        file.write(bytes(byte ^ 0xFF for byte in found))


def _damage(machine: Machine, harm: Callable[[Path], None]) -> None:
    """Damage a machine's data while it is stopped, and start it."""
    assert machine.stop(60) == 0, machine.log()[-3000:]
    try:
        harm(machine.folder / "data")
    finally:
        machine.start()


def _wipe(folder: Path) -> None:
    """Empty a folder, and leave it: it may be a disk."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@fault("node's copy of the log is cut in half", 10)
def cut_log(run: Run, chance: random.Random) -> None:
    """Let it be found by the node that reads it, and repair it as an operator would."""
    machine = _any_follower(run, chance)
    stream = "nats/store/jetstream/$G/streams"
    _damage(machine, lambda data: _cut_in_half(list((data / stream).glob("*LOG*/msgs/*.blk"))))
    run.settle()
    _damage(machine, lambda data: _wipe(data / "nats" / "store"))


@fault("node's Raft log is cut in half", 10)
def cut_raft_log(run: Run, chance: random.Random) -> None:
    machine = _any_follower(run, chance)
    groups = "nats/store/jetstream/$SYS/_js_"
    _damage(machine, lambda data: _cut_in_half(list((data / groups).glob("*/msgs/*.blk"))))


def _deciding(run: Run) -> Machine:
    """Return the machine whose copy of the log decides."""
    found: list[Machine] = []

    def look() -> bool:
        log = run.machines.leader().get("/api/v1/cluster")[1].get("log") or {}
        found[:] = [each for each in run.machines.all if each.name == log.get("leader")]
        return bool(found)

    run.machines.until(look, "a copy of the log decides", run.settle_s)
    return found[0]


@fault("Raft log of the copy that decides is cut in half while it does", 10)
def cut_deciding_raft_log(run: Run, _chance: random.Random) -> None:
    """Go on with it for a while; then its server starts with what is left."""
    machine = _deciding(run)
    groups = machine.nats / "store/jetstream/$SYS/_js_"
    _cut_in_half(list(groups.glob("*/msgs/*.blk")))
    time.sleep(LASTS_S / 2)
    machine.signal_server(signal.SIGKILL)
    run.machines.until(machine.server_pid, "nats-server is started again", run.settle_s)


@fault("node's mirror of the log is damaged", 10)
def damage_mirror(run: Run, chance: random.Random) -> None:
    machine = _any_follower(run, chance)

    def harm(data: Path) -> None:
        used = [path for path in (data / "shards/0/mirror").iterdir() if path.is_file()]
        _flip(max(used, key=lambda path: path.stat().st_mtime_ns))

    _damage(machine, harm)


@fault("node's history is damaged, and removed", 10)
def damage_history(run: Run, chance: random.Random) -> None:
    """It is not started with it: it says so, and what to do."""
    machine = _any_follower(run, chance)
    _damage(machine, lambda data: _flip(data / "shards/0/tasks.db", 20_000))
    run.machines.until(lambda: not machine.is_up, "damage is found at the start", run.settle_s)
    assert "tasks.db" in machine.log()[-3000:]
    _wipe(machine.folder / "data" / "shards")
    machine.start()


@fault("node has lost all of its data", 12)
def wipe_node(run: Run, chance: random.Random) -> None:
    machine = _any_follower(run, chance)
    machine.kill()
    machine.signal_server(signal.SIGKILL)
    run.machines.until(lambda: machine.server_pid() is None, "nats-server is gone", run.settle_s)
    for part in ("nats", "shards"):
        _wipe(machine.folder / "data" / part)
    machine.start()


# Clocks.

_HOUR_US = 3_600_000_000


def _wrong_clock(run: Run, chance: random.Random, **extra: str) -> None:
    """Give a follower a wrong clock, and let the leader die."""
    machine = _any_follower(run, chance)
    machine.kill()
    machine.extra = extra
    machine.start()
    try:
        run.settle()
        leader = run.machines.leader()
        leader.kill()
        try:
            _another_leads(run, leader)
            # One that drifts is not far off yet, and may lead.
            is_off = "JACKALOPE_CLOCK_OFFSET_US" in extra
            assert not (is_off and run.machines.leader() is machine), "a wrong clock leads"
        finally:
            leader.start()
        run.settle()
    finally:
        machine.extra = {}
        machine.kill()
        machine.start()


@fault("node's clock is an hour ahead, and the leader is killed", 11)
def clock_ahead(run: Run, chance: random.Random) -> None:
    _wrong_clock(run, chance, JACKALOPE_CLOCK_OFFSET_US=str(_HOUR_US))


@fault("node's clock is an hour behind, and the leader is killed", 11)
def clock_behind(run: Run, chance: random.Random) -> None:
    _wrong_clock(run, chance, JACKALOPE_CLOCK_OFFSET_US=str(-_HOUR_US))


@fault("node's clock runs a tenth too fast, and the leader is killed", 11)
def clock_fast(run: Run, chance: random.Random) -> None:
    _wrong_clock(run, chance, JACKALOPE_CLOCK_RATE="1.1")
