"""The command that runs a worker: reads its settings, and hands over to the worker's runtime."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Common, Exit, Failure, Options, arg, need_posix, opt
from jackalope.cli.options import reading, seconds

if TYPE_CHECKING:
    from jackalope.worker.settings import WorkerSettings

_PROCESSES = "Tasks in processes"
_TIMES = "Times"
_FANOUT = "Fan-out"


@dataclass
class Service(Options):
    """Whom the worker serves, and who it is."""

    queues: Annotated[
        str, opt("--queues -q A,B", "The queues to serve.", default="those of the tasks")
    ] = ""
    keys: Annotated[str, opt("--keys -k A,B", "The keys to serve.", default="all")] = ""
    concurrency: Annotated[
        int,
        opt(
            "--concurrency -c N",
            "How many tasks to run at once.",
            min=0,
            default="100 for coroutines, else one per core",
        ),
    ] = 0
    prefetch: Annotated[int, opt("--prefetch N", "How many more to fetch ahead.", min=0)] = 0
    namespaces: Annotated[
        str,
        opt(
            "--namespaces A,B",
            "Serve several namespaces by their weights, with its slots and resources together.",
            default="one",
        ),
    ] = ""
    tasks: Annotated[
        int, opt("--tasks N", "Exit after this many tasks.", min=0, default="never")
    ] = 0
    name: Annotated[
        str, opt("--name NAME", "Its name, which must be unique.", default="host-pid-random")
    ] = ""
    config: Annotated[
        str, opt("--config FILE", "A worker file of the task queue design; options override it.")
    ] = ""
    reload: Annotated[
        bool, opt("--reload", "Start again whenever a Python file below this folder changes.")
    ] = False
    label: Annotated[
        list[str] | None, opt("--label KEY=VALUE", "A label that it reports. Repeatable.")
    ] = None
    resource: Annotated[
        list[str] | None,
        opt("--resource NAME=AMOUNT", "What tasks can need of it, as mem=64GiB. Repeatable."),
    ] = None


@dataclass
class Times(Options):
    """How long things may take."""

    drain_deadline: Annotated[
        str,
        opt(
            "--drain-deadline DURATION",
            "How long running tasks may take to finish when it stops.",
            _TIMES,
        ),
    ] = "60s"
    stop_deadline: Annotated[
        str,
        opt(
            "--stop-deadline DURATION",
            "How long a task may take to stop before it is forced to.",
            _TIMES,
        ),
    ] = "5s"
    lease: Annotated[
        str, opt("--lease DURATION", "How long the broker waits for a sign of life.", _TIMES)
    ] = "30s"
    grace: Annotated[
        str, opt("--grace DURATION", "How long the broker waits for it to reconnect.", _TIMES)
    ] = "10s"


@dataclass
class Processes(Options):
    """How the processes of isolated tasks are kept small."""

    memory: Annotated[
        str,
        opt(
            "--memory SIZE",
            "The memory limit of each process, such as 512M. Tasks in threads have none.",
            _PROCESSES,
            default="none",
        ),
    ] = ""
    recycle_tasks: Annotated[
        int,
        opt(
            "--recycle-tasks N",
            "Replace a process after this many tasks.",
            _PROCESSES,
            default="never",
        ),
    ] = 0
    recycle_age: Annotated[
        str,
        opt(
            "--recycle-age DURATION",
            "Replace a process that is older.",
            _PROCESSES,
            default="never",
        ),
    ] = ""
    recycle_memory: Annotated[
        str,
        opt(
            "--recycle-memory SIZE",
            "Replace a process that uses more memory after a task.",
            _PROCESSES,
            default="never",
        ),
    ] = ""


@dataclass
class Fanout(Options):
    """Where the helpers of its tasks find it."""

    fanout_host: Annotated[
        str,
        opt(
            "--fanout-host HOST",
            "Where to listen for helpers.",
            _FANOUT,
            default="the address towards the broker",
        ),
    ] = ""
    fanout_advertise: Annotated[
        str,
        opt(
            "--fanout-advertise HOST",
            "The address that helpers connect to.",
            _FANOUT,
            default="the same",
        ),
    ] = ""
    fanout_cert: Annotated[
        str,
        opt(
            "--fanout-cert FILE",
            "The certificate for helpers, if the broker uses TLS.",
            _FANOUT,
            default="one made by openssl",
        ),
    ] = ""
    fanout_key: Annotated[
        str, opt("--fanout-key FILE", "The key of that certificate.", _FANOUT, default="none")
    ] = ""


@dataclass
class Log(Options):
    """What the worker logs."""

    log_level: Annotated[
        str, opt("--log-level [error|warn|info|debug|trace]", "The log level.")
    ] = "info"
    log_format: Annotated[str, opt("--log-format [auto|json|console]", "The log format.")] = "auto"
    task_logs: Annotated[
        str,
        opt(
            "--task-logs [both|broker|output]",
            "Where what tasks print goes: the broker, the output of this worker, or both.",
        ),
    ] = "both"

    def set_up(self) -> str:
        """Make the log of this process look so, and return its look for others to inherit."""
        from jackalope.log_setup import FORMS, LEVELS, set_up
        from jackalope.worker.context import name_task
        from jackalope.worker.logs.capture import TaskLogs

        _check("--log-level", self.log_level, LEVELS)
        _check("--log-format", self.log_format, FORMS)
        _check("--task-logs", self.task_logs, tuple(TaskLogs))
        set_up(self.log_level, self.log_format, about=name_task)
        return f"{self.log_level} {self.log_format}"


def worker(
    common: Common,
    *,
    application: Annotated[str, arg("MODULE:APP", "Where the tasks are, such as shop.tasks:app.")],
    service: Service,
    times: Times,
    processes: Processes,
    fanout: Fanout,
    log: Log,
) -> int:
    """Run the tasks of an application, until SIGTERM or Ctrl-C.

    Coroutines run on a loop, plain functions in threads, isolated ones in processes that can be
    stopped. On the first signal it takes no more tasks and finishes those that run, within the
    drain deadline; the rest are given back, which does not count as a failure. A second signal cuts
    this short.

    By default it runs 100 tasks at once if all are coroutines, which mostly wait; otherwise as many
    as there are cores, and at least 2.

    A worker that was started for a pool takes its queue, key and name from its environment
    (WORKER_POOL, WORKER_KEY, WORKER_ID).

    Examples:
        jackalope worker shop.tasks:app
        jackalope worker shop.tasks:app --queues images,mail --concurrency 8
        jackalope worker shop.tasks:app --reload
        jackalope worker models:app --keys paris,berlin --name gpu-1 --drain-deadline 5m
        jackalope worker shop.tasks:app --namespaces acme,globex --concurrency 8
    """
    need_posix("a worker")
    from jackalope.worker import run_worker

    look = log.set_up()
    if service.reload:
        from jackalope.cli.reloading import run_reloading

        return run_reloading([each for each in sys.argv[1:] if each != "--reload"])
    if service.config:
        common = _apply_file(service, times, common)
    options = (service, times, processes, fanout, log)
    settings = _settings(common, options, application=application, look=look)
    if problems := settings.problems():
        raise Failure("invalid settings", code=Exit.USAGE, details=problems)
    if service.namespaces:
        from jackalope.worker.namespaces import run_in_namespaces

        return run_in_namespaces(settings, _namespaces(common, service.namespaces))
    return int(run_worker(settings))


def _namespaces(common: Common, text: str) -> tuple[str, ...]:
    """Return the namespaces to serve, or refuse them with all that is wrong."""
    from jackalope.core.limits import NAME_CHARS_MAX, WORKERS_PER_SHARE_MAX

    names = _names(text)
    problems = [f"{name[:40]!r} is named twice" for name in set(names) if names.count(name) > 1]
    problems += [
        f"{name[:40]!r}: at most {NAME_CHARS_MAX} characters, none of them NUL"
        for name in names
        if len(name) > NAME_CHARS_MAX or "\0" in name
    ]
    if not names:
        problems.append("names none")
    if len(names) > WORKERS_PER_SHARE_MAX:
        problems.append(f"at most {WORKERS_PER_SHARE_MAX}, got {len(names)}")
    if common.namespace:
        problems.append("give --namespace or --namespaces, not both")
    if problems:
        raise Failure("invalid --namespaces", code=Exit.USAGE, details=problems)
    return names


def _settings(
    common: Common,
    options: tuple[Service, Times, Processes, Fanout, Log],
    *,
    application: str,
    look: str,
) -> "WorkerSettings":
    """Put the options together, with the place that a launcher gave this process."""
    service, times, processes, fanout, log = options
    from jackalope.worker.executors.processes import Recycling
    from jackalope.worker.logs.capture import TaskLogs
    from jackalope.worker.settings import WorkerSettings, default_name, pool_place

    place = pool_place(os.environ)
    has_address = common.broker or common.namespace or common.ca or common.skip_verify
    return WorkerSettings(
        application=application,
        address=common.address() if has_address else None,
        token=common.token or "",
        queues=_names(service.queues) or ((place.queue,) if place else ()),
        keys=_names(service.keys) or ((place.key,) if place else ()),
        name=service.name or (place.name if place else default_name()),
        labels={**(place.labels if place else {}), **dict(map(_pair, service.label or ()))},
        resources=dict(map(_resource, service.resource or ())),
        concurrency=service.concurrency,
        prefetch=service.prefetch,
        tasks=service.tasks,
        lease_s=seconds(times.lease),
        grace_s=seconds(times.grace),
        drain_s=seconds(times.drain_deadline),
        stop_s=seconds(times.stop_deadline),
        memory_bytes_max=reading(_size, processes.memory or "0"),
        recycling=Recycling(
            tasks=processes.recycle_tasks,
            age_s=seconds(processes.recycle_age or "0"),
            rss_bytes=reading(_size, processes.recycle_memory or "0"),
        ),
        log=look,
        task_logs=TaskLogs(log.task_logs),
        fanout_host=fanout.fanout_host,
        fanout_advertise=fanout.fanout_advertise,
        fanout_cert=fanout.fanout_cert,
        fanout_key=fanout.fanout_key,
    )


def _apply_file(service: Service, times: Times, common: Common) -> Common:
    """Take from the file what the command line does not say."""
    import structlog

    from jackalope.cli.commands.worker import read_worker_file

    given = read_worker_file(service.config)
    for option, value in given.items():
        structlog.get_logger(component="worker").info(
            "option from file", option=option, value=value
        )
    service.concurrency = service.concurrency or int(given.get("--concurrency", 0))
    if times.lease == Times.lease:
        times.lease = given.get("--lease", times.lease)
    if times.drain_deadline == Times.drain_deadline:
        times.drain_deadline = given.get("--drain-deadline", times.drain_deadline)
    return common.over(Common(broker=given.get("--broker")))


def _check(option: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise Failure(f"{option}: must be {' or '.join(words)}, got {word!r}", code=Exit.USAGE)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Failure(f"label {text!r}: write it as key=value", code=Exit.USAGE)
    return name, value


def _resource(text: str) -> tuple[str, int]:
    from jackalope.core.shapes.needs import parse_amount

    name, value = _pair(text)
    try:
        return name, parse_amount(value)
    except ValueError as error:
        raise Failure(f"resource {name}: {error}", code=Exit.USAGE) from None


def _size(text: str) -> int:
    """Read a number of bytes such as 512M or 2GiB."""
    digits = text.strip().rstrip("iIbBkKmMgG")
    unit = text.strip()[len(digits) :].lower().removesuffix("b").removesuffix("i")
    powers = {"": 0, "k": 1, "m": 2, "g": 3}
    if unit not in powers or not digits.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is not a size; write bytes, or 512K, 512M, 2G")
    return int(float(digits) * 1024 ** powers[unit])


# The worker file of the published task queue design, as options of the command. Options on the
# command line win over the file.

#: The key, and the option that it stands for.
KEYS = {
    "broker_address": "--broker",
    "concurrency": "--concurrency",
    "heartbeat_interval_secs": "--lease",
    "graceful_shutdown_timeout_secs": "--drain-deadline",
}

#: A worker is given up when this many of its heartbeats are missing.
_MISSED_BEATS = 2


def read_worker_file(file: str) -> dict[str, str]:
    """Return the options that a file stands for, with their values as they would be written."""
    import yaml

    try:
        tree = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", code=Exit.USAGE) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(
            f"{file}: not valid YAML: {' '.join(str(error).split())}", code=Exit.USAGE
        ) from None
    fields = tree.get("worker", tree) if isinstance(tree, dict) else tree
    if not isinstance(fields, dict):
        raise Failure(f"{file}: must map keys to values", code=Exit.USAGE)
    problems = [
        f"{key}: unknown key; there are {', '.join(KEYS)}" for key in fields if key not in KEYS
    ]
    problems += [
        f"{key}: must be a whole number, got {value!r}"
        for key, value in fields.items()
        if key in KEYS and key != "broker_address" and not _is_count(value)
    ]
    if problems:
        raise Failure(f"{file}: invalid settings", code=Exit.USAGE, details=problems)
    return {KEYS[key]: _written(key, value) for key, value in fields.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _written(key: str, value: Any) -> str:
    if key == "heartbeat_interval_secs":
        return f"{value * _MISSED_BEATS}s"
    return f"{value}s" if key == "graceful_shutdown_timeout_secs" else str(value)
