"""macOS: what it does otherwise, and what it lacks, simulated as far as a test can."""

import ctypes
import fcntl
import os
import resource
import select
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jackalope import parent_process
from jackalope.pools.launchers import make_launcher
from jackalope.pools.launchers import subprocess as launcher
from jackalope.storage import disk
from jackalope.worker import pulse
from jackalope.worker.executors import child_process


def loaded_there(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module as macOS would load it."""
    monkeypatch.setattr(sys, "platform", "darwin")
    spec = spec_from_file_location("loaded_there", module.__file__ or "")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded_there", made)
    spec.loader.exec_module(made)
    return made


def test_bytes_leave_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, order: calls.append((file, order)))
    monkeypatch.delattr(os, "fdatasync")
    there = loaded_there(disk, monkeypatch)
    with (tmp_path / "file").open("w") as file:
        there.sync_file(file.fileno())
        assert calls == [(file.fileno(), 51)]


def test_memory_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    there = loaded_there(child_process, monkeypatch)
    monkeypatch.setattr(Path, "read_bytes", _missing)
    used = SimpleNamespace(ru_maxrss=5_000_000)
    monkeypatch.setattr(resource, "getrusage", lambda _: used)
    assert there.rss_bytes() == 5_000_000


def _missing(*_: object) -> bytes:
    raise FileNotFoundError


def test_end_of_a_child_is_seen_without_reaping_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for kqueue, which waits as the real one does."""
    waitid = os.waitid
    seen: list[Any] = []

    class Queue:
        def control(self, events: list[Any], count: int) -> list[Any]:
            seen.append((events[0], count))
            waitid(os.P_PID, events[0].ident, os.WEXITED | os.WNOWAIT)
            return events

        def close(self) -> None:
            seen.append("closed")

    for name, value in {
        "kqueue": Queue,
        "kevent": lambda ident, kind, flags, what: SimpleNamespace(ident=ident, kind=kind),
        "KQ_EV_ADD": 1,
        "KQ_EV_ONESHOT": 16,
        "KQ_FILTER_PROC": -5,
        "KQ_NOTE_EXIT": 0x80000000,
    }.items():
        monkeypatch.setattr(select, name, value, raising=False)
    monkeypatch.delattr(os, "waitid")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as child:
        child_process.await_end(child.pid)
        assert (seen[0][0].kind, seen[1]) == (-5, "closed")
        assert child.wait() == 3  # It was left for us.


def test_kernel_is_not_asked_for_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("asked"))
    parent_process.die_with_parent(os.getppid())


def test_state_of_a_process_that_cannot_be_read_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    assert pulse.parent_state(2**30) == "R"


def test_launcher_that_needs_proc_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PROC", tmp_path / "none")
    with pytest.raises(ValueError, match="only Linux has"):
        make_launcher({"type": "subprocess", "command": ["true"]}, tmp_path, "owner")
