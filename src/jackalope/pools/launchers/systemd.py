"""The systemd launcher: workers are instances of a template unit.

Owns the orders to `systemctl`, the files that an instance reads and the meaning of a unit's state.
What a worker may use, who it is and where it runs is the template's, which an administrator writes.

The instance is the worker's id. Systemd knows no labels, so those are kept in a file for each
worker in the launcher's folder; a unit without one belongs to another owner. The variables of a
worker are in a file that the template names (`EnvironmentFile=`), readable for its owner alone.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from jackalope.core.commands import Seen
from jackalope.core.durations import SECOND
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import (
    Endings,
    LaunchFailed,
    Scope,
    check_worker,
    env_of,
    named_labels,
    seen_with,
)
from jackalope.pools.launchers.settings import Manager, SystemdSettings

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "MainPID",
    "Job",
)

PHASES = {
    "activating": Phase.STARTING,
    "active": Phase.RUNNING,
    "reloading": Phase.RUNNING,
    "refreshing": Phase.RUNNING,
    "maintenance": Phase.RUNNING,
    "deactivating": Phase.STOPPING,
    "failed": Phase.ENDED,
    "inactive": Phase.ENDED,
}

WATCH_S = 0.2
WORDS_LINES_MAX = 10
#: How many units are named in one command.
UNITS_MAX = 200

_IN_QUOTES = re.compile(r'[\\"`$]')

log = structlog.get_logger(component="pools")

State = Mapping[str, str]


class SystemdLauncher:
    """Starts workers as instances of a template unit."""

    def __init__(self, settings: SystemdSettings, home: Path) -> None:
        self._settings = settings
        self._home = home
        self._words: dict[str, str] = {}
        self._endings = Endings(self._still_run, self._kill, self._clear, WATCH_S)

    @property
    def scope(self) -> Scope:
        return Scope.WORKER

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Start a worker's unit; change nothing if it was started."""
        worker = order.launch
        whole = env_of(worker, self._settings.env, env)
        try:
            is_new = self._write(order, whole)
        except OSError as error:
            raise LaunchFailed(
                f"cannot write the environment of worker {worker}: {error}; check "
                "permissions, or set `env_folder`"
            ) from error
        if not is_new:
            return
        try:
            await self._order("start", "--no-block", self._unit(worker))
        except LaunchFailed:
            self._forget(worker)
            raise

    async def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker's unit, and kill it after the grace; forget one that has ended."""
        check_worker(worker)
        if worker in self._endings or not self._labels_of(worker).exists():
            return
        await self._order("stop", "--no-block", self._unit(worker))
        self._endings.add(worker, grace_s)

    async def list(self) -> list[Seen]:
        """Return all workers that were started and not stopped."""
        known = self._known()
        states = await self._states(known)
        return [
            await self._entry(worker, labels, states[worker])
            for worker, labels in known.items()
            if self._labels_of(worker).exists()
        ]

    async def close(self) -> None:
        """Let go. Workers go on; those that were to end by force are not."""
        await self._endings.close()

    # Files.

    def _labels_of(self, worker: str) -> Path:
        return self._home / f"{worker}.json"

    def _env_of(self, worker: str) -> Path:
        return self._env_folder() / f"{worker}.env"

    def _env_folder(self) -> Path:
        if self._settings.env_folder:
            return Path(self._settings.env_folder)
        # What `%t` stands for in the template.
        is_user = self._settings.manager is Manager.USER
        runtime = os.environ.get("XDG_RUNTIME_DIR") if is_user else "/run"
        if runtime is None:
            raise LaunchFailed("XDG_RUNTIME_DIR is not set, so there is no %t; set `env_folder`")
        return Path(runtime) / "jackalope" / "workers"

    def _write(self, order: StartOrder, env: Mapping[str, str]) -> bool:
        """Write a worker's files; return whether it had none."""
        labels = self._labels_of(order.launch)
        if labels.exists():
            return False
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._env_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(self._env_of(order.launch), env_file(env))
        new = labels.with_suffix(".new")
        _write_private(new, msgspec.json.encode(named_labels(order)).decode())
        new.rename(labels)
        return True

    def _known(self) -> dict[str, Seen]:
        found = {}
        for path in sorted(self._home.glob("*.json")):
            with suppress(OSError, msgspec.DecodeError):
                labels = msgspec.json.decode(path.read_bytes(), type=dict[str, str | int])
                if seen := seen_with(labels, Phase.STARTING, prefix=""):
                    found[path.stem] = seen
        return found

    def _forget(self, worker: str) -> None:
        self._labels_of(worker).unlink(missing_ok=True)
        self._env_of(worker).unlink(missing_ok=True)
        self._words.pop(worker, None)

    # Output of systemd.

    def _unit(self, worker: str) -> str:
        return f"{self._settings.unit}@{worker}.service"

    async def _states(self, workers: Iterable[str]) -> dict[str, State]:
        names = tuple(workers)
        states: dict[str, State] = {}
        for first in range(0, len(names), UNITS_MAX):
            some = names[first : first + UNITS_MAX]
            units = [self._unit(worker) for worker in some]
            text = await self._order("show", f"--property={','.join(PROPERTIES)}", "--", *units)
            blocks = [read_properties(block) for block in text.strip().split("\n\n")]
            by_unit = {block.get("Id", ""): block for block in blocks}
            states |= {worker: by_unit.get(self._unit(worker), {}) for worker in some}
        return states

    async def _entry(self, worker: str, labels: Seen, state: State) -> Seen:
        phase = phase_of(state)
        detail = ""
        if worker in self._endings:
            phase = Phase.STOPPING
        elif phase is Phase.ENDED:
            detail = f"{how_it_ended(state)}{await self._last_words(worker)}"
        pid = state.get("MainPID", "0")
        external_id = self._unit(worker) if pid == "0" else f"{self._unit(worker)} ({pid})"
        return msgspec.structs.replace(labels, phase=phase, external_id=external_id, detail=detail)

    async def _last_words(self, worker: str) -> str:
        """Return what a worker printed last. Nothing hangs on it."""
        if worker not in self._words and self._settings.journalctl:
            lines = f"--lines={WORDS_LINES_MAX}"
            whose = "--user-unit" if self._settings.manager is Manager.USER else "--unit"
            asked = (
                f"{whose}={self._unit(worker)}",
                lines,
                "--output=cat",
                "--no-pager",
                "--quiet",
            )
            try:
                self._words[worker] = (await self._run(self._settings.journalctl, *asked)).strip()
            except LaunchFailed as failure:
                self._words[worker] = ""
                log.debug(
                    "the last output of a worker cannot be read", worker=worker, error=str(failure)
                )
        words = self._words.get(worker, "")
        return f"; last output: {words}" if words else ""

    # Orders.

    async def _still_run(self, workers: Collection[str]) -> Collection[str]:
        states = await self._states(workers)
        return {worker for worker in workers if phase_of(states[worker]) is not Phase.ENDED}

    async def _kill(self, worker: str) -> None:
        await self._order("kill", "--signal=SIGKILL", self._unit(worker))

    async def _clear(self, workers: Collection[str]) -> None:
        states = await self._states(workers)
        failed = [worker for worker in workers if states[worker].get("ActiveState") == "failed"]
        if failed:
            # Otherwise systemd remembers them for ever.
            await self._order("reset-failed", *map(self._unit, failed))
        for worker in workers:
            self._forget(worker)

    async def _order(self, *words: str) -> str:
        manager = f"--{self._settings.manager}"
        return await self._run(self._settings.systemctl, manager, "--no-ask-password", *words)

    async def _run(self, program: str, *words: str) -> str:
        pipe = asyncio.subprocess.PIPE
        limit_s = self._settings.timeout_us / SECOND
        try:
            process = await asyncio.create_subprocess_exec(
                program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise LaunchFailed(
                f"cannot run {program}: {error}; is this a systemd machine?"
            ) from error
        try:
            async with asyncio.timeout(limit_s):
                said, complained = await process.communicate()
        except TimeoutError:
            raise LaunchFailed(
                f"{program} {words[2]} took longer than {limit_s:g} s; check systemd"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            complaint = complained.decode(errors="replace").strip()
            raise LaunchFailed(
                f"{program} {' '.join(words[2:4])} failed: {complaint}; check that the template "
                f"{self._settings.unit}@.service exists and that the broker may manage units"
            )
        return said.decode(errors="replace")


def env_file(env: Mapping[str, str]) -> str:
    """Write variables by the rules of `EnvironmentFile=`: any value, lines and quotes included."""
    quoted = ((name, _IN_QUOTES.sub(r"\\\g<0>", value)) for name, value in env.items())
    return "".join(f'{name}="{value}"\n' for name, value in quoted)


def read_properties(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines())
    return {name: value for name, _, value in pairs}


def phase_of(state: State) -> Phase:
    phase = PHASES.get(state.get("ActiveState", ""), Phase.ENDED)
    # An order that waits for its turn is a job; the unit is still what it was before.
    has_job = state.get("Job", "") not in {"", "0"}
    return Phase.STARTING if phase is Phase.ENDED and has_job else phase


def how_it_ended(state: State) -> str:
    """Return why a unit does not run."""
    if state.get("LoadState", "loaded") != "loaded":
        return f"its unit is {state['LoadState']}"
    result, status = state.get("Result", "success"), state.get("ExecMainStatus", "0")
    # CLD_EXITED is 1; otherwise the status is a signal.
    kind = "exit code" if state.get("ExecMainCode") in {"0", "1", None} else "signal"
    return f"{kind} {status}" if result == "success" else f"{kind} {status} ({result})"


def _write_private(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:
        file.write(text)
