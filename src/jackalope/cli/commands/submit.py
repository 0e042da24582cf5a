"""The command that submits tasks: one from its options, or many from the lines of a file."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, Options, opt
from jackalope.cli.formatting import ago, id_text, now_us
from jackalope.cli.options import duration_us, find_all, moment_us
from jackalope.core.shapes.request import Same

if TYPE_CHECKING:
    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.effects import Served
    from jackalope.core.shapes.callback import Callback
    from jackalope.core.shapes.needs import Needs
    from jackalope.core.shapes.pace import Pace
    from jackalope.core.task import Options as TaskOptions
    from jackalope.core.task import Retry, TaskSpec
    from jackalope.errors import Rejected

_WHAT = "What to do"
_WHEN = "When, and how often"
_SHARED = "Equal requests"
_PACED = "Many of one kind"
_PLACED = "Where"
_NOTES_MAX = 5


@dataclass
class Work(Options):
    """What the task is."""

    queue: Annotated[
        str, opt("--queue -q QUEUE", "The queue.", _WHAT, complete=completion.queues)
    ] = "default"
    name: Annotated[
        str,
        opt(
            "--name NAME",
            "The task to run, such as app.resize. Needed unless the payload is raw.",
            _WHAT,
            complete=completion.task_names,
        ),
    ] = ""
    json: Annotated[
        str | None,
        opt(
            "--json -j VALUE",
            "Arguments: an object by name, an array in order, anything else is the only one.",
            _WHAT,
        ),
    ] = None
    payload: Annotated[str | None, opt("--payload TEXT", "Raw bytes.", _WHAT)] = None
    payload_file: Annotated[
        str | None,
        opt("--payload-file FILE", "Raw bytes of a file; - for the standard input.", _WHAT),
    ] = None
    from_lines: Annotated[
        str | None,
        opt(
            "--from-lines FILE",
            "One task for each line, read as by --json; - for the standard input.",
            _WHAT,
        ),
    ] = None
    raw: Annotated[
        bool, opt("--raw", "With --from-lines: each line is raw bytes, as by --payload.", _WHAT)
    ] = False

    def bodies(self) -> "Iterator[tuple[bytes, str]]":
        """Yield the payload of each task, and its encoding."""
        given = [self.json, self.payload, self.payload_file, self.from_lines]
        if sum(each is not None for each in given) > 1:
            message = "give one of --json, --payload, --payload-file and --from-lines"
            raise Failure(message, code=Exit.USAGE)
        is_raw = self.payload is not None or self.payload_file is not None or self.raw
        if not self.name and not is_raw:
            # A worker finds the function by its name; raw bytes may be for one that needs none.
            raise Failure(
                "no task named: name it with --name, such as --name app.resize",
                "a worker that needs no name takes a raw payload, with --payload or --payload-file",
                code=Exit.USAGE,
            )
        if self.from_lines is not None:
            for number, line in enumerate(_read(self.from_lines).splitlines(), 1):
                if self.raw:
                    yield line, "bytes"
                elif line.strip():
                    yield read_arguments(line, f"line {number}"), "json"
        elif self.payload_file is not None:
            yield _read(self.payload_file), "bytes"
        elif self.payload is not None:
            yield self.payload.encode(), "bytes"
        else:
            yield read_arguments((self.json or "[]").encode(), "--json"), "json"


@dataclass
class Terms(Options):
    """How the task wants to be treated."""

    priority: Annotated[int, opt("--priority -p", "Higher goes first.", min=0, max=255)] = 150
    key: Annotated[str, opt("--key KEY", "Only for workers that serve this key.")] = ""
    tag: Annotated[
        list[str] | None,
        opt("--tag TAG", "A label by which running tasks can be limited. Repeatable."),
    ] = None
    alias: Annotated[str, opt("--alias NAME", "An alias for the task.")] = ""
    delay: Annotated[
        str, opt("--delay DURATION", "Do not start before this duration has passed.", _WHEN)
    ] = ""
    at: Annotated[
        str,
        opt(
            "--at TIME", "Do not start before this time, such as 2030-01-31T08:00 or 08:00.", _WHEN
        ),
    ] = ""
    expires: Annotated[
        str,
        opt(
            "--expires WHEN",
            "Give it up unless it has started by this time, or within this duration.",
            _WHEN,
        ),
    ] = ""
    timeout: Annotated[str, opt("--timeout DURATION", "How long one attempt may take.", _WHEN)] = ""
    retries: Annotated[
        int | None,
        opt(
            "--retries N",
            "How many failures are retried.",
            _WHEN,
            min=0,
            default="that of the queue",
        ),
    ] = None
    depends_on: Annotated[
        list[str] | None,
        opt("--depends-on TASK", "Wait until this task has succeeded. Repeatable.", _WHEN),
    ] = None
    held: Annotated[bool, opt("--held", "Hold it until it is played.", _WHEN)] = False
    same: Annotated[
        Same | None,
        opt(
            "--same [run|unique|cached|refresh]",
            "For equal requests: run anyway, join one that is running (unique), also use a cached "
            "answer (cached), or make a new answer and cache it (refresh).",
            _SHARED,
            default="that of the queue",
        ),
    ] = None
    version: Annotated[
        str,
        opt(
            "--version TEXT",
            "The version of the code; cached answers of other versions are not used.",
            _SHARED,
        ),
    ] = ""

    debounce: Annotated[
        str,
        opt(
            "--debounce DURATION",
            "Run it when no more of its kind are submitted for this long; the latest one counts.",
            _PACED,
        ),
    ] = ""
    at_most: Annotated[
        str, opt("--at-most DURATION", "Debounced: run it so long after the first one.", _PACED)
    ] = ""
    throttle: Annotated[
        str, opt("--throttle DURATION", "Accept one of its kind in this time.", _PACED)
    ] = ""
    drop: Annotated[
        bool,
        opt("--drop", "Throttled: name the task that was accepted, rather than refuse.", _PACED),
    ] = False
    replace: Annotated[
        bool, opt("--replace", "Take the place of one of its kind that is queued.", _PACED)
    ] = False
    pace_key: Annotated[
        str, opt("--pace-key TEXT", "What tells tasks of one queue and name apart.", _PACED)
    ] = ""

    keys: Annotated[
        list[str] | None,
        opt("--keys NAME=VALUE", "A key that limits and shares go by. Repeatable."),
    ] = None
    need: Annotated[
        list[str] | None,
        opt(
            "--need NAME=VALUE",
            "What its worker must have: an amount, such as gpu=1 or mem=8GiB, or a label, such as "
            "arch=arm64. Repeatable.",
            _PLACED,
        ),
    ] = None
    prefer: Annotated[
        list[str] | None,
        opt("--prefer NAME=VALUE", "A label of workers that it goes to first.", _PLACED),
    ] = None
    avoid: Annotated[
        list[str] | None,
        opt("--avoid NAME=VALUE", "A label of workers to use only if no other can.", _PLACED),
    ] = None
    sticky: Annotated[
        str,
        opt(
            "--sticky TEXT",
            "Go to the worker of the last task of this value, if that has room.",
            _PLACED,
        ),
    ] = ""
    callback: Annotated[
        list[str] | None,
        opt(
            "--callback [ENDS=]URL",
            "Post the end to this URL: every end, or those named, such as dead=https://a.example. "
            "Repeatable.",
        ),
    ] = None

    def needs(self) -> "Needs | None":
        """Return what it asks of its worker. Of a label that is named twice one value will do."""
        from jackalope.core.shapes.needs import (
            Needs,
            needs_problems,
            read_labels,
            read_needs,
            read_pairs,
            read_values,
        )

        problems: list[str] = []
        needed, prefer, avoid = (
            read_pairs(given or (), problems, option)
            for option, given in (
                ("--need", self.need),
                ("--prefer", self.prefer),
                ("--avoid", self.avoid),
            )
        )
        known = read_needs(read_values(needed), problems)
        needs = Needs(
            known.resources,
            known.labels,
            read_labels(prefer, problems, "prefer"),
            read_labels(avoid, problems, "avoid"),
            self.sticky,
        )
        if problems := problems + needs_problems(needs):
            raise Failure("; ".join(problems), code=Exit.USAGE)
        return None if needs == Needs() else needs

    def pace(self) -> "Pace | None":
        """Return the pace; the broker says what is wrong with it."""
        from jackalope.core.shapes.pace import Pace, Pacing

        given = {
            Pacing.DEBOUNCE: self.debounce,
            Pacing.THROTTLE: self.throttle,
            Pacing.REPLACE: self.replace,
        }
        hows = [how for how, value in given.items() if value]
        if len(hows) > 1:
            raise Failure("use one of --debounce, --throttle and --replace", code=Exit.USAGE)
        if not hows:
            if self.at_most or self.drop or self.pace_key:
                message = "--at-most, --drop and --pace-key need one of the other three"
                raise Failure(message, code=Exit.USAGE)
            return None
        span_us = duration_us(self.debounce or self.throttle or "0s")
        at_most_us = duration_us(self.at_most) if self.at_most else 0
        return Pace(hows[0], self.pace_key, span_us, at_most_us, self.drop)

    async def options(self, client: "Jackalope", queue: str) -> "TaskOptions":
        """Return these as the broker takes them, without the encoding of the payload."""
        from jackalope.core.task import Options as TaskOptions

        if self.delay and self.at:
            raise Failure("use either --delay or --at", code=Exit.USAGE)
        run_at_us = moment_us(self.at) if self.at else 0
        if self.delay:
            run_at_us = now_us() + duration_us(self.delay)
        return TaskOptions(
            alias=self.alias,
            tags=tuple(self.tag or ()),
            run_at_us=run_at_us,
            expires_at_us=moment_us(self.expires) if self.expires else 0,
            timeout_us=duration_us(self.timeout) if self.timeout else 0,
            retry=None if self.retries is None else await _retry(client, queue, self.retries),
            depends_on=tuple(await find_all(client, self.depends_on or ())),
            held=self.held,
            same=self.same,
            version=self.version,
            pace=self.pace(),
            callbacks=tuple(_callback(each) for each in self.callback or ()),
            keys=dict(_key(each) for each in self.keys or ()),
            needs=self.needs(),
        )


def _key(text: str) -> tuple[str, str]:
    """Read the name and the value of a key."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Failure(f"--keys: {text!r} is not of the form NAME=VALUE", code=Exit.USAGE)
    return name, value


def _callback(text: str) -> "Callback":
    """Read a URL, with the ends before it if there are any."""
    from jackalope.core.shapes.callback import Callback, CallbackOn

    ends, equals, url = text.partition("=")
    if not equals or ":" in ends:
        return Callback(text)
    try:
        return Callback(url, tuple(CallbackOn(end.strip()) for end in ends.split(",")))
    except ValueError:
        message = f"--callback: {ends!r} is no end; use succeeded, dead or killed"
        raise Failure(message, code=Exit.USAGE) from None


async def submit(
    client: "Jackalope",
    screen: "Screen",
    work: Work,
    terms: Terms,
    wait: Annotated[bool, opt("--wait", "Wait until it ends, and show the outcome.")] = False,
) -> int:
    """Submit a task, or one for each line of a file.

    Prints the id of each task on a line of its own. It is durable when this command ends. A request
    that is served by another client's task has the id of that task.

    Examples:
        jackalope submit --queue images --name app.resize --json '["cat.png", 320]'
        jackalope submit -q mail --name app.send --json '{"to": "ada@example.org"}' --delay 10m
        jackalope submit -q reports --name app.report --alias nightly --at 02:00 --retries 5
        jackalope submit -q blobs --payload-file picture.raw --priority 220 --wait
        jackalope submit -q images --name app.resize --from-lines arguments.jsonl
        jackalope submit -q mail --name app.digest --json '["ada"]' --debounce 5s --pace-key ada
        jackalope submit -q sums --name app.add --json '[1, 2]' --same cached --version 3 --wait
    """
    from jackalope.cli.commands.tasks import wait_for

    bodies = list(work.bodies())
    if terms.alias and len(bodies) > 1:
        raise Failure("an alias names one task, not many", code=Exit.USAGE)
    specs = _specs(work, terms, bodies, await terms.options(client, work.queue))
    refused, served = await _send(client, screen, specs)
    accepted = [spec for index, spec in enumerate(specs) if index not in refused]
    for rejected in list(refused.values())[:_NOTES_MAX]:
        screen.warn(rejected.message)
    if refused:
        screen.warn(f"{len(refused)} of {len(specs)} tasks were refused")
    for how in list(served.values())[:_NOTES_MAX]:
        screen.note(_told(how))
    code = Exit.FAILED if refused else Exit.DONE
    if not wait:
        _show_ids(screen, accepted)
        return code
    contents = {spec.id: content for spec, (_, content) in zip(specs, bodies, strict=True)}
    accepted_ids = {spec.id for spec in accepted}
    waited = await wait_for(
        client, screen, {each: contents[each] for each in contents if each in accepted_ids}
    )
    return code or waited


def _specs(
    work: Work, terms: Terms, bodies: list[tuple[bytes, str]], options: "TaskOptions"
) -> "list[TaskSpec]":
    import msgspec

    from jackalope.cli.formatting import CONTENT
    from jackalope.core.task import TaskSpec
    from jackalope.task_ids import new_task_id

    by_content = {
        content: msgspec.structs.replace(options, headers={CONTENT: content})
        for content in {content for _, content in bodies}
    }
    return [
        TaskSpec(
            id=new_task_id(),
            queue=work.queue,
            name=work.name,
            key=terms.key,
            priority=terms.priority,
            payload=payload,
            options=by_content[content],
        )
        for payload, content in bodies
    ]


async def _send(
    client: "Jackalope", screen: "Screen", specs: "list[TaskSpec]"
) -> "tuple[dict[int, Rejected], dict[int, Served]]":
    """Submit tasks; return which were refused, and how requests are served, by index.

    A request that is served by another task takes on the id of that one.
    """
    served: dict[int, Served] = {}
    with screen.progress("submitting", len(specs)) as progress:

        def counted() -> "Iterator[TaskSpec]":
            for spec in specs:
                yield spec
                progress.advance(progress.task_ids[0])

        refused = await client.session().submit_many(
            counted(), timeout_s=client.timeout_s, served=served
        )
    for index, how in served.items():
        specs[index].id = how.task
    return refused, served


def _told(served: "Served") -> str:
    """Describe how a request is served."""
    if served.how == "hit":
        return f"hit: made {ago(served.made_us)} by {served.worker or 'an unknown worker'}"
    task = f"task {id_text(served.task)}"
    others = {
        "joined": f"joined: {task} is under way",
        "replaced": f"replaced: {task} was queued, and has the new arguments",
        "dropped": f"dropped: {task} was accepted shortly before",
    }
    return others.get(served.how, f"{served.how}: a task of its own")


def _show_ids(screen: "Screen", specs: "list[TaskSpec]") -> None:
    ids = [id_text(spec.id) for spec in specs]
    screen.show(ids, lambda: "\n".join(ids))


async def _retry(client: "Jackalope", queue: str, retries: int) -> "Retry":
    """Take the waits between retries from the queue: only their number was given."""
    from jackalope.core.policy import DEFAULT_POLICY
    from jackalope.core.task import Retry

    policies = {view.queue: view.policy for view in await client.queues()}
    policy = policies.get(queue, DEFAULT_POLICY)
    return Retry(retries, policy.retry_base_us, policy.retry_factor, policy.retry_cap_us)


def read_arguments(text: bytes, where: str) -> bytes:
    """Make positional and named arguments of a JSON value."""
    import msgspec

    try:
        value = msgspec.json.decode(text)
        if isinstance(value, dict):
            return msgspec.json.encode([[], value])
        return msgspec.json.encode([value if isinstance(value, list) else [value], {}])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failure(f"{where} is not JSON: {error}", code=Exit.USAGE) from None


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
