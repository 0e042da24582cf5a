"""Commands about flows: graphs of tasks that are submitted at once."""

from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import ago, brief, id_text, now_us, number, span
from jackalope.cli.options import Every, Watch, every_s, find, states_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.text import Text

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.ids import TaskId
    from jackalope.wire.views import FlowView, NodeView

Flow = Annotated[str, arg("FLOW", "A flow: its UUID, a prefix of it, or its alias.")]

#: How many nodes are asked for at once, and how many of a flow are shown.
_PAGE_NODES = 1_000
_NODES_MAX = 5_000

#: How many members of a group are shown one by one.
_MEMBERS_MAX = 12

_BAR_CHARS = 20


async def submit(
    client: "Jackalope",
    screen: "Screen",
    file: Annotated[str, arg("FILE", "The flow as JSON, as POST /api/v1/flows takes it; - reads.")],
    wait: Annotated[bool, opt("--wait", "Wait for its end, and show its result.")] = False,
) -> None:
    """Submit a flow from a file: a graph of tasks, all of it or nothing.

    Examples:
        jackalope flow submit thumbnails.json
        generate | jackalope flow submit - --wait
    """
    import msgspec

    from jackalope.core.shapes.flow import node_id
    from jackalope.errors import ConfigError
    from jackalope.task_ids import new_task_id, to_task_id
    from jackalope.tasks.flow_form import FlowForm

    try:
        form = msgspec.json.decode(_read(file), type=FlowForm)
        flow_id = to_task_id(form.id) if form.id else new_task_id()
        command = form.command(flow_id, now_us())
    except (msgspec.DecodeError, ConfigError) as error:
        raise Failure(f"{file}: {error}", code=Exit.USAGE) from None
    await client.session().submit_flow(command, timeout_s=client.timeout_s)
    handle = client.flow_handle(flow_id)
    if not wait:
        shown = id_text(flow_id)
        names = [each.node.name for each in command.nodes]
        nodes = {name: id_text(node_id(flow_id, name)) for name in names}
        screen.show({"id": shown, "nodes": nodes}, shown)
        return
    state = await handle.wait()
    view = await _whole(client, flow_id)
    screen.show(view, lambda: draw_flow(view))
    if state != "succeeded":
        raise Failure(f"the flow is {state}", code=Exit.FAILED)


def _read(file: str) -> bytes:
    import sys
    from pathlib import Path

    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}", code=Exit.USAGE) from None


async def list_(  # noqa: PLR0917  options of the command line
    client: "Jackalope",
    screen: "Screen",
    state: Annotated[
        list[str] | None, opt("--state -s STATE", "Only in this state, or `unfinished` or `ended`.")
    ] = None,
    name: Annotated[str, opt("--name NAME", "Only with this name.")] = "",
    limit: Annotated[int, opt("--limit -n COUNT", "At most so many.")] = 50,
    watch: Watch = False,
    every: Every = "2s",
) -> None:
    """List flows, the newest first: how far each has come.

    Examples:
        jackalope flow list
        jackalope flow list --state unfinished --watch
    """
    states = states_of(state or [])

    async def ask() -> "list[FlowView]":
        found: list[FlowView] = []
        async for view in client.flows(states=states, name=name):
            found.append(view)
            if len(found) >= limit:
                break
        return found

    await screen.watch(ask, _draw_list, every_s(watch, every))


def _draw_list(views: "list[FlowView]") -> "RenderableType":
    from jackalope.cli.output import dim, state, table

    if not views:
        return dim("no flows; submit one with `jackalope flow submit FILE`")
    drawn = table("flow", "~name", "state", "progress", "", "created", "~")
    for view in views:
        drawn.add_row(
            id_text(view.id),
            brief(view.name, 30),
            state(view.state),
            _bar(view),
            f"{number(view.done)} of {number(view.total)}",
            ago(view.created_us),
            brief(_trouble(view), 60),
        )
    return drawn


async def show(
    client: "Jackalope", screen: "Screen", flow: Flow, watch: Watch = False, every: Every = "1s"
) -> None:
    """Show a flow as a tree: its nodes in their order, their states, and its groups.

    Examples:
        jackalope flow show 0193b5c2-7d1e-7c3a-9f00-2b1c3d4e5f60 --watch
        jackalope flow show nightly --format json | jq '.nodes[].state'
    """
    flow_id = await find(client, flow)
    await screen.watch(lambda: _whole(client, flow_id), draw_flow, every_s(watch, every))


async def _whole(client: "Jackalope", flow_id: "TaskId") -> "FlowView":
    """Return a flow with all of its nodes, unless they are very many."""
    import msgspec

    from jackalope.wire.views import FlowView

    nodes: list[Any] = []
    cursor, view = "", None
    while view is None or (cursor and len(nodes) < _NODES_MAX):
        about = {"id": flow_id, "limit": _PAGE_NODES, "cursor": cursor}
        view = await client.query("flow", about, FlowView)
        nodes += view.nodes
        cursor = view.cursor
    nodes.sort(key=lambda node: (node.created_us, node.index))
    return msgspec.structs.replace(view, nodes=tuple(nodes), cursor=cursor)


def draw_flow(view: "FlowView") -> "RenderableType":
    """Draw a flow: its progress, and its nodes as a tree."""
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import dim, state, table

    head = Text.assemble((view.name, "bold"), "  ", state(view.state), "  ")
    head.append_text(_bar(view))
    head.append(f"  {number(view.done)} of {number(view.total)} nodes")
    if view.phase not in ("", "running"):
        head.append(f"  {view.phase}", "yellow")
    parts: list[Any] = [head, dim(f"{id_text(view.id)}  created {ago(view.created_us)}")]
    if trouble := _trouble(view):
        parts.append(Text(trouble, "red"))
    drawn = table("~node", "state", "after", ">tries", ">took", "worker", "~")
    for indent, node, text in _tree(view):
        if node is None:
            drawn.add_row("  " * indent + text, "", "", "", "", "", "")
            continue
        drawn.add_row(
            "  " * indent + brief(node.node or node.name, 50),
            state(node.state),
            dim(brief(text, 40)),
            str(len(node.attempts)) if len(node.attempts) > 1 else "",
            _took(node),
            node.worker,
            Text(brief(_error(node), 60), "red"),
        )
    parts += ["", drawn]
    if view.cursor:
        parts.append(dim(f"and more: the first {number(len(view.nodes))} are shown"))
    return Group(*parts)


def _tree(view: "FlowView") -> "Iterator[tuple[int, NodeView | None, str]]":
    """Yield the nodes in their order, with how far to indent each and what it waits for.

    A node stands below the last of those that it waits for, further to the right where the flow
    branches.
    """
    names = {node.id: node.node for node in view.nodes}
    place = {node.id: at for at, node in enumerate(view.nodes)}
    last_of = {node.group: node.id for node in view.nodes if node.group}
    below: dict[Any, list[NodeView]] = {}
    for node in view.nodes:
        before = [each for each in node.after if each in place]
        before += [last_of[group] for group in node.groups if group in last_of]
        below.setdefault(max(before, key=place.__getitem__, default=None), []).append(node)
    shown: dict[str, int] = {}
    waiting: list[tuple[int, NodeView]] = [(0, node) for node in reversed(below.get(None, []))]
    while waiting:
        indent, node = waiting.pop()
        following = below.get(node.id, [])
        further = indent + (len(following) > 1)
        waiting += [(further, each) for each in reversed(following)]
        if node.group:
            shown[node.group] = shown.get(node.group, 0) + 1
            if shown[node.group] == 1:
                yield indent, None, _group_text(view, node.group)
            if shown[node.group] > _MEMBERS_MAX and node.state == "succeeded":
                continue
        after = [names.get(each, "?") for each in node.after]
        after += [f"group {group}" for group in node.groups]
        text = ", ".join(after)
        if node.compensates:
            text = f"undoes {node.compensates}"
        yield indent + bool(node.group), node, text


def _group_text(view: "FlowView", name: str) -> str:
    group = next((each for each in view.groups if each.name == name), None)
    if group is None:
        return f"group {name}"
    text = f"group {name}: {number(group.done)} of {number(group.total)}"
    text += f", {group.width} at once" if group.width else ""
    return text + (", open" if group.is_open else "")


def _bar(view: "FlowView") -> "Text":
    from jackalope.cli.output import bar

    return bar(view.done, max(view.total, 1), _BAR_CHARS, "red" if view.dead else "green")


def _took(node: "NodeView") -> str:
    if not node.started_us:
        return ""
    return span((node.ended_us or now_us()) - node.started_us)


def _error(node: "NodeView") -> str:
    if node.error is not None:
        return f"{node.error.type}: {node.error.message}"
    return str(node.reason or "")


def _trouble(view: "FlowView") -> str:
    if view.error is not None:
        return f"{view.error.type}: {view.error.message}" if view.error.message else view.error.type
    return str(view.reason or "")
