"""The subprocess launcher: workers are processes on the broker's machine.

Owns their start, their end and what is reported about them; `worker_state` has the files,
and identifies a process.

A worker is started by a shell of a few lines that does nothing but wait for it and write down its
exit code. So how a worker ended is known even if no broker ran at that moment, and whether a worker
was started by this broker or by one before makes no difference. Both are in a session of their own:
what the worker started itself can be ended with it, and a Ctrl-C for the broker is none for them.

To stop, only the worker is sent SIGTERM: it may have children that it must finish. After the
grace the whole session is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from jackalope.core.commands import Seen
from jackalope.core.durations import SECOND
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Endings, LaunchFailed, Scope, check_worker, env_of
from jackalope.pools.launchers.settings import SubprocessSettings
from jackalope.pools.launchers.worker_state import (
    PROC,
    Process,
    WorkerFolder,
    has_ended,
    session_members,
)

SHELL = "/bin/sh"

# A trap that does nothing leaves the shell alive to the end, and its child with the usual signals;
# one that ignored them would have children that do. $0 is the worker's folder. If that is gone
# the order was taken back, and nothing starts. $1 is where the worker runs.
SCRIPT = """\
trap : HUP INT QUIT TERM
read -r stat < /proc/$$/stat && printf '%s\\n' "$stat" > "$0/process" || exit 1
cd "$1" || exit 1
shift
"$@"
echo $? > "$0/exit"
"""

#: In the environment of all that a worker is made of.
MARK = "JACKALOPE_LAUNCH"

#: How long the shell may take to say which process it is, if no launcher remembers starting it.
START_S_MAX = 10.0
POLL_S = 0.1
#: What workers that are not kept running have to end when the broker does, and a little more.
CLOSE_GRACE_S = 10.0
CLOSE_S_MAX = 12.0
#: How long one that has begun to say which process it is may take to finish the line.
PATIENCE_S = 1.0

_OWN = "JACKALOPE_"
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

P = ParamSpec("P")
T = TypeVar("T")


class SubprocessLauncher:
    """Starts workers as processes."""

    def __init__(self, settings: SubprocessSettings, home: Path) -> None:
        if not PROC.is_dir():
            raise ValueError("needs /proc, which only Linux has; use the launcher `docker`")
        self._settings = settings
        self._home = home.absolute()
        self._folders: dict[str, WorkerFolder] = {}
        self._workers: dict[str, Process] = {}
        self._spawned: dict[str, int] = {}
        self._unreaped: set[int] = set()
        self._is_swept = False
        self._told: dict[str, set[Process]] = {}
        self._endings = Endings(self._still_run, self._kill, self._clear_away, POLL_S)

    @property
    def scope(self) -> Scope:
        return Scope.WORKER

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Start a worker; change nothing if it is there."""
        worker = order.launch
        whole = env_of(worker, {**self._inherited(), **self._settings.env}, env)
        whole[MARK] = worker
        await self._in_time(f"start worker {worker}", self._spawn, order, whole)

    async def stop(self, worker: str, grace_s: float) -> None:
        """Ask a worker to end, and kill what is left after the grace; forget one that has ended."""
        check_worker(worker)
        if worker in self._endings:
            return
        if WorkerFolder(self._home, worker).is_there():
            await self._still_run([worker])
            # Also one that has ended already: it is cleared away with the next look.
            self._endings.add(worker, grace_s)

    async def list(self) -> list[Seen]:
        """Return all workers that were started and not stopped."""
        return list(await self._in_time("list workers", self._look))

    async def close(self) -> None:
        """Let go. Workers go on, if they are to; none is ended by force any more."""
        if not self._settings.keep_running:
            with suppress(LaunchFailed, TimeoutError):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self._end_all()
        await self._endings.close()

    async def _end_all(self) -> None:
        while running := await self.list():
            for each in running:
                await self.stop(each.launch, CLOSE_GRACE_S)
            await asyncio.sleep(POLL_S)

    async def _still_run(self, workers: Collection[str]) -> Collection[str]:
        return await self._in_time("see who has ended", self._tell_all, workers)

    async def _kill(self, worker: str) -> None:
        await self._clear_away([worker])

    async def _clear_away(self, workers: Collection[str]) -> None:
        await self._in_time("clear away what ended", self._forget, workers)

    # What follows runs in threads: a disk may be slow, and a fork of a large broker too.

    async def _in_time(
        self, what: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        limit_s = self._settings.timeout_us / SECOND
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.to_thread(call, *args, **kwargs)
        except TimeoutError:
            raise LaunchFailed(
                f"cannot {what}: this machine took longer than {limit_s:g} s; check its disk and "
                "its load"
            ) from None
        except OSError as error:
            raise LaunchFailed(
                f"cannot {what}: {error}; check permissions and free space"
            ) from error

    def _inherited(self) -> dict[str, str]:
        if not self._settings.inherit_env:
            return {"PATH": os.defpath}
        # The broker's own settings and secrets are not the workers'.
        return {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}

    def _spawn(self, order: StartOrder, env: dict[str, str]) -> None:
        """Start the shell that starts the worker, unless it was started already."""
        where = Path(self._settings.folder or Path.cwd()).absolute()
        command = self._settings.command
        self._check_program(command[0], where, env)
        folder = self._folder(order.launch)
        if not folder.make(order):
            return
        log = (os.POSIX_SPAWN_OPEN, 1, str(folder.log), _APPEND, 0o600)
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        try:
            pid = os.posix_spawn(
                SHELL,
                [SHELL, "-c", SCRIPT, str(folder.path), str(where), *command],
                env,
                file_actions=[nothing, log, (os.POSIX_SPAWN_DUP2, 1, 2)],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
            )
        except OSError:
            folder.retire()
            folder.remove(0)
            raise
        self._spawned[order.launch] = pid
        self._unreaped.add(pid)

    def _check_program(self, program: str, where: Path, env: dict[str, str]) -> None:
        if not where.is_dir():
            raise LaunchFailed(f"the folder {where} does not exist; set `folder`")
        path = str(where / program) if "/" in program else program
        if shutil.which(path, path=env.get("PATH", os.defpath)) is None:
            raise LaunchFailed(
                f"program {program!r} is not on the broker's PATH; install it, or use its full "
                "path in `command`"
            )

    def _look(self) -> Sequence[Seen]:
        if not self._is_swept:
            self._clear(WorkerFolder.retired_in(self._home))
            self._is_swept = True
        for pid in tuple(self._unreaped):
            if has_ended(pid):
                self._unreaped.discard(pid)
        names = WorkerFolder.names_in(self._home)
        for gone in self._folders.keys() - set(names):
            self._folders.pop(gone, None)
        seen = (self._look_at(self._folder(name)) for name in names)
        return [entry for entry in seen if entry is not None]

    def _look_at(self, folder: WorkerFolder) -> Seen | None:
        labels = folder.labels()
        if labels is None:
            return None
        folder.bound_log(self._settings.log_bytes_max)
        phase, process = self._phase_of(folder)
        detail = self._how_it_ended(folder) if phase is Phase.ENDED else ""
        if folder.worker in self._endings:
            phase, detail = Phase.STOPPING, ""
        external_id = str(self._worker_of(folder, process).pid) if process else ""
        return msgspec.structs.replace(labels, phase=phase, external_id=external_id, detail=detail)

    def _folder(self, worker: str) -> WorkerFolder:
        """Return a worker's folder: the same each time, for it remembers what it has read."""
        return self._folders.setdefault(worker, WorkerFolder(self._home, worker))

    def _worker_of(self, folder: WorkerFolder, shell: Process) -> Process:
        """Return the process that is the worker, or its shell as long as that is not known."""
        if folder.worker not in self._workers:
            children = shell.children()
            if not children:
                return shell
            self._workers[folder.worker] = children[0]
        return self._workers[folder.worker]

    def _phase_of(self, folder: WorkerFolder) -> tuple[Phase, Process | None]:
        process = folder.process()
        if process is not None:
            is_running = folder.exit_code() is None and (
                process.is_alive() or self._left_of(folder, process)
            )
            return (Phase.RUNNING if is_running else Phase.ENDED), process
        pid = self._spawned.get(folder.worker)
        if pid is None:
            # A broker before us made the folder. Either its shell is about to write, or none came.
            is_coming = time.time() - folder.made_at() < START_S_MAX
        else:
            is_coming = pid in self._unreaped
        return (Phase.STARTING if is_coming else Phase.ENDED), None

    def _left_of(self, folder: WorkerFolder, process: Process) -> Sequence[Process]:
        """Return what still runs of a worker: the shell alone may have been killed."""
        return session_members({process.pid: f"{MARK}={folder.worker}"})

    def _how_it_ended(self, folder: WorkerFolder) -> str:
        code, words = folder.exit_code(), folder.last_words()
        if code is not None:
            how = f"exit code {code}{_signal_of(code)}"
        elif folder.has_begun():
            how = "it was killed"
        else:
            how = "it was not started: the broker or the machine stopped first"
        return f"{how}; last output: {words}" if words else how

    # Ending.

    def _is_gone(self, folder: WorkerFolder) -> bool:
        return folder.labels() is None or self._phase_of(folder)[0] is Phase.ENDED

    def _tell_all(self, workers: Collection[str]) -> Collection[str]:
        """Ask for the end, and return who has not come to it."""
        folders = [self._folder(worker) for worker in workers]
        left = [folder for folder in folders if not self._is_gone(folder)]
        for folder in left:
            self._tell(folder, self._told.setdefault(folder.worker, set()))
        return {folder.worker for folder in left}

    def _tell(self, folder: WorkerFolder, told: set[Process]) -> None:
        """Ask once; who has not begun yet is asked when it has."""
        process = folder.process()
        if process is None:
            return
        workers = process.children() if process.is_alive() else self._left_of(folder, process)
        for worker in workers:
            if worker not in told:
                worker.send(signal.SIGTERM)
                told.add(worker)

    def _forget(self, workers: Collection[str]) -> None:
        """Kill what is left of some workers, and remove what is known of them."""
        folders = [self._folder(worker) for worker in workers]
        for folder in folders:
            folder.retire()
        self._clear(folders)
        for known in (self._folders, self._workers, self._spawned, self._told):
            for worker in workers:
                known.pop(worker, None)

    def _clear(self, folders: Sequence[WorkerFolder]) -> None:
        sessions = {}
        for folder in folders:
            process = _last_look(folder)
            if process is not None:
                process.send_to_group(signal.SIGKILL)
                sessions[process.pid] = f"{MARK}={folder.worker}"
        for left in session_members(sessions):
            left.send(signal.SIGKILL)
        for folder in folders:
            folder.remove(self._settings.logs_kept)


def _last_look(folder: WorkerFolder) -> Process | None:
    """Return the process of a folder that was retired, and let it finish its line."""
    patience_until = time.monotonic() + PATIENCE_S
    while folder.process() is None and folder.has_begun():
        if time.monotonic() > patience_until:
            break
        time.sleep(POLL_S)
    return folder.process()


def _signal_of(code: int) -> str:
    """Return the name of the signal that a shell reports by an exit code."""
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""
