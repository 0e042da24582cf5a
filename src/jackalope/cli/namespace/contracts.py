"""Commands about the tasks that workers have declared: what each takes and returns."""

from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli import completion
from jackalope.cli.base import Failure, arg, opt
from jackalope.cli.formatting import ago, brief, number
from jackalope.cli.options import Yes, confirm

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import ContractView

Name = Annotated[str, arg("NAME", "The task, as workers call it.", complete=completion.task_names)]
OfQueue = Annotated[str, opt("--queue QUEUE", "Only in this queue.", complete=completion.queues)]


async def list_(client: "Jackalope", screen: "Screen", queue: OfQueue = "") -> None:
    """List the tasks that workers have declared, with what each takes.

    Examples:
        jackalope tasks
        jackalope tasks --queue images
    """
    views = await client.contracts(queue=queue)
    screen.show(views, lambda: _draw_list(views))


def _draw_list(views: "list[ContractView]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import dim, table

    if not views:
        return dim("no worker has declared a task; start one with `jackalope worker MODULE:APP`")
    drawn = table("~task", "queue", ">workers", "~takes")
    for view in views:
        workers = number(view.workers) if view.workers else Text("0", "red")
        takes = view.signature.removeprefix(view.name)
        drawn.add_row(view.name, view.queue, workers, brief(takes, 60))
    return drawn


async def describe(client: "Jackalope", screen: "Screen", name: Name, queue: OfQueue = "") -> None:
    """Describe a task: its parameters with their types and defaults, and what it returns.

    Examples:
        jackalope tasks describe images.resize
        jackalope tasks describe images.resize --format json | jq '.[0].arguments'
    """
    views = await client.contracts(name, queue=queue)
    if not views:
        raise Failure(f"no worker has declared a task {name!r}; see `jackalope tasks`")
    screen.show(views, lambda: _draw(views))


def _draw(views: "list[ContractView]") -> "RenderableType":
    from rich.console import Group

    return Group(*(part for view in views for part in _parts(view)))


def _parts(view: "ContractView") -> "list[Any]":
    import msgspec
    from rich.text import Text

    from jackalope.cli.output import dim, table
    from jackalope.core.shapes.contract import type_text

    parts: list[Any] = [Text(view.signature, "bold")]
    if view.doc:
        parts += ["", view.doc]
    if view.parameters:
        drawn = table("argument", "type", "default", "given")
        for each in view.parameters:
            is_rest = each.kind.startswith("rest")
            default = "" if each.required or is_rest else msgspec.json.encode(each.default).decode()
            needed = dim("further") if is_rest else "required" if each.required else default
            drawn.add_row(each.name, type_text(each.schema), needed, _GIVEN[each.kind])
        parts += ["", drawn]
    workers = "no worker knows it now" if not view.workers else f"{view.workers} workers know it"
    versions = f", {len(view.versions)} versions in use" if len(view.versions) > 1 else ""
    declared = f"declared {ago(view.declared_us)} by {view.declared_by or 'an unknown worker'}"
    parts += ["", dim(f"queue {view.queue}: {workers}{versions}; {declared}")]
    return parts


_GIVEN = {
    "any": "by place or name",
    "place": "by place",
    "name": "by name",
    "rest": "all further ones by place",
    "rest_named": "all further ones by name",
}


async def forget(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    queue: Annotated[str, opt("--queue QUEUE", "The queue.", complete=completion.queues)],
    yes: Yes = False,
) -> None:
    """Forget what a task takes, so that calls of it are not checked. Workers declare it again.

    Examples:
        jackalope tasks forget images.resize --queue images --yes
    """
    confirm(screen, f"Forget what {name} takes in queue {queue}?", is_sure=yes)
    await client.delete_contract(name, queue=queue)
