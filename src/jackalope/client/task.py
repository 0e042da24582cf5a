"""Tasks: functions that can be submitted.

Owns what `@app.task` makes of a function: something that is still called like the function, and can
be submitted with the same arguments, which a type checker sees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import cached_property, partial, update_wrapper
from hashlib import blake2b
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from jackalope.client import option_checks
from jackalope.client.flows.parts import Group, Step
from jackalope.client.handle import Handle
from jackalope.client.limits import Limit, argument_keys, check_limits, limits_of
from jackalope.client.option_checks import Seconds
from jackalope.client.requests import Answer, Asked, make_answer
from jackalope.client.schedules import Scheduled
from jackalope.client.session.outbox import Uploaded
from jackalope.client.submit_options import Choices, Plan, check_choices, keep_choices, make_plan
from jackalope.core.effects import Served
from jackalope.core.lifecycle import State
from jackalope.core.limits import COUNT_MAX
from jackalope.core.shapes.request import How
from jackalope.core.task import TaskSpec
from jackalope.errors import ConfigError, PartlyRejected
from jackalope.task_ids import new_task_id
from jackalope.tasks.context import Running, resting
from jackalope.tasks.definition import ISOLATIONS, Isolation, TaskDefinition
from jackalope.tasks.serialization import CONTENT_HEADER, CONTENTS, DEFAULT_CONTENT, Content, Stream

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class TaskChoices(Choices, total=False):
    """What can be chosen for a task where it is defined; see `Choices` for the rest."""

    name: str  # what tasks are called that run this function; `module.function` if not chosen
    content: Content  # how arguments and result are encoded: `msgpack`, `json` or `bytes`
    isolation: Isolation  # where a worker runs it: `async` (on its loop), `thread` or `process`
    soft_timeout: Seconds  # after how long the worker asks it to stop, before `timeout` ends it
    memory_limit: int  # how many bytes its process may take
    # only failures with these exceptions are tried again; all if not chosen
    retry_on: type[Exception] | tuple[type[Exception], ...]
    # failures with these exceptions never are
    never_retry: type[Exception] | tuple[type[Exception], ...]
    # how many of it run at once, and start in a span of time; workers declare them when they start
    limits: Limit | Iterable[Limit]


class Call:
    """The arguments of one task of a bulk submit."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs


class Task(Generic[P, R]):
    """A function that can be submitted. Made by `@app.task`."""

    def __init__(self, app: Jackalope, definition: TaskDefinition, choices: Choices) -> None:
        self.app = app  # where it is submitted
        self.definition = definition  # the function, and how its arguments and result are encoded
        self._choices = choices
        update_wrapper(cast("Callable[..., Any]", self), definition.function)

    def __repr__(self) -> str:
        return f"<Task {self.definition.name}>"

    @property
    def name(self) -> str:
        """What tasks are called that run this function."""
        return self.definition.name

    def options(self, **choices: Unpack[Choices]) -> Self:
        """Return the same task with other choices: `resize.options(priority=200).submit(...)`."""
        changed = cast("Choices", {**self._choices, **keep_choices(choices)})
        if "delay" in choices:
            changed.pop("run_at", None)
        if "run_at" in choices:
            changed.pop("delay", None)
        other = type(self)(self.app, self.definition, changed)
        _ = other.plan  # Say now what is wrong.
        return other

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a task; it is durable with the broker when this returns.

        Submits that are made in the same iteration of the event loop travel together.

        Raises:
            Rejected: the broker did not accept it; `retry_after_us` says whether to try again.
            Timeout: no answer came in time.
            EncodeFailed: an argument cannot be sent.
        """
        plan = self.plan
        spec = self._spec(plan, args, kwargs)
        served = await self.app.session().submit(
            spec,
            plan.fence,
            wait_for_room=plan.wait_for_room,
            timeout_s=self.app.timeout_of(plan.submit_timeout_s),
        )
        task_id = spec.id if served is None else served.task
        return Handle(self.app, task_id, self.definition.result)

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Submit a task, wait for it, and return its result.

        Unlike `submit` and `result` one after the other, this cannot miss the end of a task whose
        queue forgets results at once.

        Raises:
            TaskFailed: it ended without success.
            Rejected: the broker did not accept it.
            Timeout: the broker did not accept it in time, or it has not ended within
                `result_timeout`: `options(result_timeout=60)`. It goes on.
        """
        plan = self.plan
        spec = self._spec(plan, args, kwargs)
        with resting():
            _, end = await self.app.session().serve(
                spec,
                plan.fence,
                wait_for_room=plan.wait_for_room,
                timeout_s=self.app.timeout_of(plan.submit_timeout_s),
                result_timeout_s=plan.result_timeout_s,
            )
        handle: Handle[R] = Handle(self.app, end.task, self.definition.result)
        return await handle.outcome_of(end)

    async def request(self, *args: P.args, **kwargs: P.kwargs) -> Answer[R]:
        """Ask for what the function returns, and wait for it: run at most once for all who ask.

        An equal request while it is running shares the run, and the answer is kept for
        who asks later, as the queue's policy says. `options(same="refresh")` asks for another run,
        `options(same="run")` for one of its own.

        Raises:
            TaskFailed: it ended without success. The next request runs again.
            Rejected: the broker did not accept it.
            Timeout: the broker did not accept it in time, or there is no answer within
                `result_timeout`: `options(result_timeout=60)`. The run goes on for others.
            EncodeFailed: an argument cannot be sent.
        """
        plan, spec = self.plan, self._request(args, kwargs)
        with resting():
            served, end = await self.app.session().serve(
                spec,
                plan.fence,
                wait_for_room=plan.wait_for_room,
                timeout_s=self.app.timeout_of(plan.submit_timeout_s),
                result_timeout_s=plan.result_timeout_s,
            )
        served = served or Served(How.BYPASS, spec.id)
        handle: Handle[R] = Handle(self.app, end.task, self.definition.result)
        return make_answer(served, await handle.outcome_of(end))

    async def send_request(self, *args: P.args, **kwargs: P.kwargs) -> Asked[R]:
        """Ask as `request` does, and do not wait.

        The request is durable with the broker when this returns; `answer`, `check`, `gather` or
        `app.on_answer` have its answer, and so does `find_request`, in another process as well.

        Raises:
            Rejected: the broker did not accept it.
            Timeout: no answer came in time.
            EncodeFailed: an argument cannot be sent.
        """
        plan, spec = self.plan, self._request(args, kwargs)
        served = await self.app.session().submit(
            spec,
            plan.fence,
            wait_for_room=plan.wait_for_room,
            timeout_s=self.app.timeout_of(plan.submit_timeout_s),
        )
        return Asked(self.app, served or Served(How.BYPASS, spec.id), self.definition.result)

    async def find_request(self, *args: P.args, **kwargs: P.kwargs) -> Asked[R]:
        """Return the request with these arguments that was sent before, here or elsewhere.

        Raises:
            Rejected: it was never sent, or its answer is no longer kept: `unknown_request`.
        """
        served = await self.app.find_served(self.identity(*args, **kwargs))
        return Asked(self.app, served, self.definition.result)

    def identity(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """Return what makes a request with these arguments the same as another: a hash."""
        options = self._request(args, kwargs).options
        return b"" if options is None else options.identity

    async def spawn_in(self, parent: Running, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a child of a running task: what `current().spawn` does.

        Raises:
            Rejected: the broker did not accept it.
            EncodeFailed: an argument cannot be sent.
        """
        payload = self.definition.payload(args, kwargs)
        content = blake2b(f"{self.name} {self.plan.queue} ".encode() + payload, digest_size=16)
        child = self.options(parent=parent, id=parent.child_id(content.digest()))
        handle = await child.submit(*args, **kwargs)
        if parent.attempt > 1 and (await handle.status()).state in (State.DEAD, State.KILLED):
            await handle.retry()  # Or this attempt would fail as the last one did.
        return handle

    @overload
    def step(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]: ...

    @overload
    def step(self: Task[Concatenate[Any, Q], R], *args: Q.args, **kwargs: Q.kwargs) -> Step[R]: ...

    def step(self, *args: Any, **kwargs: Any) -> Step[Any]:
        """Make a step of a flow: `resize.step("cat.png", width=320) >> publish.step()`.

        Arguments may be results of other steps, `a.result`. The first argument by place may be
        left out where the step follows another with `>>`, whose result it then is.
        """
        return Step(self, args, kwargs)

    def steps(
        self,
        items: Iterable[Any],
        *,
        name: str = "",
        width: int = 0,
        open: bool = False,  # noqa: A002
    ) -> Group[R]:
        """Make a group of steps, one for each item: `resize.steps(paths) >> merge.step()`.

        Args:
            items: the only argument of each step, or what `call` returns.
            name: the name of the group in the flow.
            width: how many of the steps may run at once; 0 for all.
            open: accept more steps later.
        """
        calls = (item if isinstance(item, Call) else Call((item,), {}) for item in items)
        members = [Step[R](self, call.args, call.kwargs) for call in calls]
        return Group(members, name=name, width=width, open=open)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Put down the arguments of one task for `submit_many`, where a type checker sees them."""
        return Call(args, kwargs)

    async def submit_many(self, calls: Iterable[tuple[Any, ...] | Call]) -> list[Handle[R]]:
        """Submit many tasks, in bulk: `await resize.submit_many([("a.png", 320), ("b.png", 640)])`.

        Args:
            calls: the arguments of each task: a tuple of them by place, or what `call` returns.
                Taken as the broker keeps up, so it may be a generator over very many.

        Returns:
            A handle for each, in order.

        Raises:
            PartlyRejected: some were not accepted; it has the handles of those that were.
            Timeout: no answer came in time.
            EncodeFailed: an argument cannot be sent. Those before it may have been accepted.
        """
        plan = self.plan
        if plan.id or (plan.options is not None and plan.options.alias):
            raise ConfigError("id and alias name one task; they cannot be chosen for many")
        handles: list[Handle[R]] = []
        served: dict[int, Served] = {}
        refused = await self.app.session().submit_many(
            self._specs(plan, calls, handles),
            plan.fence,
            wait_for_room=plan.wait_for_room,
            timeout_s=self.app.timeout_of(plan.submit_timeout_s),
            served=served,
        )
        for at, how in served.items():
            handles[at].id = how.task
        if refused:
            kept = [None if at in refused else handle for at, handle in enumerate(handles)]
            raise PartlyRejected(refused, kept)
        return handles

    async def map(self, items: Iterable[Any]) -> AsyncIterator[R]:
        """Submit a task for each item, and yield the results in the order of the items.

        Args:
            items: the only argument of each task.

        Raises:
            TaskFailed: the next task in order ended without success. The others go on.
            PartlyRejected: some were not accepted.
        """
        handles = await self.submit_many((item,) for item in items)
        session = self.app.session()
        ends = [session.watch(handle.id) for handle in handles]
        try:
            for handle, end in zip(handles, ends, strict=True):
                with resting():
                    ended = await end
                yield await handle.outcome_of(ended)
        finally:
            for handle, end in zip(handles, ends, strict=True):
                session.unwatch(handle.id, end)

    @cached_property
    def plan(self) -> Plan:
        """The choices, checked and translated."""
        content = self.definition.content
        headers = {} if content == DEFAULT_CONTENT else {CONTENT_HEADER: content}
        function = self.definition.function
        return make_plan(self._choices, name=self.name, headers=headers, function=function)

    def _spec(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskSpec:
        if plan.is_request:
            return self._request(args, kwargs)
        spec = plan.spec(plan.id or new_task_id(), self.payload_of(args, kwargs))
        return plan.equip(spec, self.definition.function, args, kwargs)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> TaskSpec:
        """Return the task that `submit` would send, without sending it.

        Raises:
            EncodeFailed: an argument cannot be sent.
        """
        return self._spec(self.plan, args, kwargs)

    def schedule_settings(self, scheduled: Scheduled) -> dict[str, Any]:
        """Return the settings of a schedule of this task, as a broker takes them.

        Raises:
            ConfigError: it cannot be scheduled with these choices.
            EncodeFailed: an argument cannot be sent.
        """
        plan = self.plan
        return scheduled.settings(
            self._spec(plan, scheduled.args, scheduled.kwargs), plan.expires_us
        )

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call; a stream is the payload itself."""
        if len(args) == 1 and not kwargs and isinstance(args[0], Stream):
            if self.definition.content != "bytes":
                raise ConfigError(f"a stream is for a task with content='bytes', not {self.name}")
            return cast("bytes", args[0] if isinstance(args[0], Uploaded) else _sent(args[0]))
        return self.definition.payload(args, kwargs)

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskSpec:
        plan, definition = self.plan, self.definition
        payload = definition.canonical_payload(args, kwargs)
        spec = plan.request(plan.id or new_task_id(), payload, definition.fingerprint)
        return plan.equip(spec, self.definition.function, args, kwargs)

    def _specs(
        self, plan: Plan, calls: Iterable[tuple[Any, ...] | Call], handles: list[Handle[R]]
    ) -> Iterator[TaskSpec]:
        """Make the tasks of a bulk submit, and a handle for each."""
        app, payload, result = self.app, self.payload_of, self.definition.result
        no_kwargs: dict[str, Any] = {}
        for call in calls:
            if isinstance(call, Call):
                args, kwargs = call.args, call.kwargs
            elif isinstance(call, tuple):
                args, kwargs = call, no_kwargs
            else:
                raise ConfigError(f"each call is a tuple of arguments, not {call!r}")
            if plan.is_request:
                spec = self._request(args, kwargs)
            else:
                spec = plan.spec(new_task_id(), payload(args, kwargs))
                spec = plan.equip(spec, self.definition.function, args, kwargs)
            handles.append(Handle(app, spec.id, result))
            yield spec


def _sent(stream: Stream) -> Uploaded | bytes:
    """Return what is sent of a stream: its bytes, or those of its file when it is time."""
    return stream.read() if stream.path is None else Uploaded(stream.path)


class PlainTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, without the broker."""
        result: R = self.definition.call_here(*args, **kwargs)
        return result


class AsyncTask(Task[P, R]):
    """A task made of a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here and now, without the broker."""
        result: Coroutine[Any, Any, R] = self.definition.call_here(*args, **kwargs)
        return result


class TaskMaker:
    """What `@app.task(...)` puts on a function."""

    def __init__(self, app: Jackalope, choices: TaskChoices) -> None:
        self._app = app
        self._choices = keep_choices(cast("Choices", choices))

    # The overlap is meant: a coroutine function is a function too, and the first fits it better.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> PlainTask[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Make a task of a function.

        Raises:
            ConfigError: the function or a choice cannot be used.
        """
        own = {each: value for each, value in self._choices.items() if each in _OF_DEFINITION}
        choices = {each: value for each, value in self._choices.items() if each not in own}
        task_name = getattr(function, "__qualname__", repr(function))
        try:
            given = check_choices(own, _OF_DEFINITION)
            limits: tuple[Limit, ...] = given.get("limits", ())
            choices = _with_keys(choices, limits)
            plan = make_plan(cast("Choices", choices), function=function)
        except ConfigError as error:
            raise ConfigError(f"{task_name} cannot be a task: {error}") from None
        definition = TaskDefinition(
            function,
            name=given.get("name", ""),
            queue=plan.queue,
            content=given.get("content", DEFAULT_CONTENT),
            isolation=given.get("isolation"),
            timeout_us=plan.options.timeout_us if plan.options is not None else 0,
            soft_timeout_us=given.get("soft_timeout", 0),
            memory_bytes_max=given.get("memory_limit", 0),
            retry_on=given.get("retry_on", ()),
            never_retry=given.get("never_retry", ()),
        )
        limited = limits_of(definition.name, limits)
        kind = AsyncTask if definition.is_async else PlainTask
        task: Task[..., Any] = kind(self._app, definition, cast("Choices", choices))
        self._app.register(definition)
        self._app.limited.update(limited)
        return task


def _with_keys(choices: dict[str, Any], limits: Iterable[Limit]) -> dict[str, Any]:
    """Have the keys that limits go by sent with each task, also those of arguments by place."""
    wanted, keys = argument_keys(limits), choices.get("keys", ())
    if not wanted:
        return choices
    if isinstance(keys, Mapping):
        missing = [name for name in wanted if name not in keys]
        if missing:
            raise ConfigError(f"limits: key: {', '.join(missing)} must be among keys, as a value")
        return choices
    named = (keys,) if isinstance(keys, str) else tuple(keys)
    return {**choices, "keys": tuple(dict.fromkeys([*named, *wanted]))}


#: What is chosen with the definition alone, and what it may be.
_OF_DEFINITION: dict[str, Callable[[Any], Any]] = {
    "name": option_checks.text,
    "content": partial(option_checks.word, words=CONTENTS),
    "isolation": partial(option_checks.word, words=ISOLATIONS),
    "soft_timeout": option_checks.duration_us,
    "retry_on": option_checks.exceptions,
    "never_retry": option_checks.exceptions,
    "limits": check_limits,
    "memory_limit": partial(option_checks.whole, least=0, most=COUNT_MAX * COUNT_MAX),
}
