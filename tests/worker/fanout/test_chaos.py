"""Whoever is killed, every request is answered, with each item in it once.

`JACKALOPE_CHAOS_S` sets for how many seconds processes are killed, `JACKALOPE_CHAOS_SEED` in which
order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from jackalope import Jackalope
from tests.worker.fanout.asker import lines_of
from tests.worker.fanout.harness import ROOT, House, Process, living_in, until, wait_for_workers

SECONDS = float(os.environ.get("JACKALOPE_CHAOS_S", "10"))
SEED = int(os.environ.get("JACKALOPE_CHAOS_SEED", "9"))
ANSWERS_S = 200.0

OWNERS = ("owner-0", "owner-1")
HELPERS = ("helper-0", "helper-1")
CLIENTS = ("client-0", "client-1", "client-2")


class Chaos:
    """A house, its clients, and chance."""

    def __init__(self, house: House, app: Jackalope) -> None:
        self.house = house
        self._app = app
        self.clients: dict[str, Process] = {}
        self.killed: Counter[str] = Counter()
        self._chance = random.Random(SEED)

    def start(self, name: str) -> None:
        if name == "broker":
            self.house.start_broker()
        elif name in CLIENTS:
            self.clients[name] = self._start_client(name)
        elif name in OWNERS:
            self.house.start_owner(name)
        else:
            self.house.start_worker(name)

    def kill(self, name: str) -> None:
        self.house.kill({**self.house.workers, **self.clients, "broker": self.house.broker}[name])
        self.killed[name.partition("-")[0]] += 1

    def rage(self, seconds: float) -> None:
        """Kill whomever chance names, and start it again, for so long.

        Sometimes before the last one is back; sometimes all are, and get something done.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._chance.random() < 0.5:
                wait_for_workers(self._app, len(OWNERS) + len(HELPERS))
            time.sleep(self._chance.uniform(0.1, 1.0))
            kind = self._chance.choice([("broker",), OWNERS, HELPERS, CLIENTS])
            name = self._chance.choice(kind)
            self.kill(name)
            self.start(name)

    def end(self) -> None:
        for process in self.clients.values():
            self.house.kill(process)

    def _start_client(self, name: str) -> Process:
        with (self.house.folder / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.worker.fanout.asker", str(self.house.folder), name],
                env={**os.environ, "JACKALOPE_BROKER": self.house.address},
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.feature("J37")
@pytest.mark.feature("D44")
def test_every_request_is_answered_with_each_item_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    with living_in(house) as app:
        chaos = Chaos(house, app)
        try:
            # However often chance picks the same owner: who is killed has done nothing wrong.
            app.sync(app.declare_queue("owners", changes={"crash_limit": 0}))
            for name in (*OWNERS, *HELPERS):
                chaos.start(name)
            wait_for_workers(app, len(OWNERS) + len(HELPERS))
            for name in CLIENTS:
                chaos.start(name)
            journals = [tmp_path / f"{name}.journal" for name in CLIENTS]
            until(lambda: all(map(lines_of, journals)), "each client has asked")
            chaos.rage(SECONDS)
            (tmp_path / "stop").touch()
            for name, client in chaos.clients.items():
                assert client.wait(ANSWERS_S) == 0, house.log(name)
        finally:
            chaos.end()
    for journal in journals:
        lines = lines_of(journal)
        asked = {number for word, number, *_ in lines if word == "asked"}
        answers = [line for line in lines if line[0] == "answered"]
        assert asked == {number for _, number, *_ in answers}
        assert all(rest == ["right"] for _, _, _, *rest in answers), answers
    print(f"seed {SEED}, killed {dict(chaos.killed)}, {[len(lines_of(each)) for each in journals]}")
