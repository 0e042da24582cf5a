"""Commands about namespaces: create, list, change and delete them."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import arg, opt
from jackalope.cli.formatting import brief, number
from jackalope.cli.options import Every, Watch, Yes, confirm, every_s, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import NamespaceView

Name = Annotated[str, arg("NAME", "The namespace.")]
Settings = Annotated[
    list[str] | None,
    arg("SETTING=VALUE", "Settings, such as tasks_queued=10000; a quota of 0 is none."),
]


async def list_(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "2s"
) -> None:
    """List namespaces: what each uses, of how much.

    Examples:
        jackalope namespaces list
        jackalope namespaces list --format json
    """
    await screen.watch(client.namespaces, _draw_list, every_s(watch, every))


def _draw_list(views: "list[NamespaceView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    if not views:
        return dim("no namespaces; create one with `jackalope namespaces create NAME`")
    drawn = table(
        "~namespace",
        ">queued",
        ">running",
        ">workers",
        ">keys",
        ">bytes",
        ">weight",
        "~description",
    )
    for view in views:
        drawn.add_row(
            brief(view.name, 40),
            _use(view, "tasks_queued"),
            _use(view, "concurrent_attempts"),
            _use(view, "workers"),
            _use(view, "api_keys"),
            _use(view, "bytes_stored"),
            str(view.settings.weight),
            brief(view.settings.description, 40),
        )
    return drawn


def _use(view: "NamespaceView", quota: str) -> str:
    limit, used = getattr(view.settings, quota), view.used.get(quota)
    if used is None:
        return "-"
    return f"{number(used)}/{number(limit)}" if limit else number(used)


async def show(
    client: "Jackalope", screen: "Screen", name: Name, watch: Watch = False, every: Every = "2s"
) -> None:
    """Show one namespace: its settings, its quotas and what it uses.

    Examples:
        jackalope namespaces show acme
    """
    await screen.watch(lambda: client.namespace_of(name), _draw, every_s(watch, every))


def _draw(view: "NamespaceView") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import changes, dim
    from jackalope.core.settings import shown
    from jackalope.core.shapes.namespace import DEFAULT_SETTINGS

    settings = changes("setting", shown(view.settings), shown(DEFAULT_SETTINGS))
    how = "" if view.is_declared else "came into being by being used, and was not created"
    return Group(_draw_list([view]), "", settings, *([dim(how)] * bool(how)))


async def create(
    client: "Jackalope", screen: "Screen", name: Name, settings: Settings = None
) -> None:
    """Create a namespace. One that exists is left as it is, but for the settings that are given.

    Examples:
        jackalope namespaces create acme
        jackalope namespaces create acme tasks_queued=100000 submits_per_second=500 workers=20
    """
    await _declare(client, screen, name, settings)


async def set_(
    client: "Jackalope", screen: "Screen", name: Name, settings: Settings = None
) -> None:
    """Change settings of a namespace. Those that are not given stay.

    Examples:
        jackalope namespaces set acme tasks_queued=0 weight=3
        jackalope namespaces set acme description="The web shop"
    """
    await client.namespace_of(name)  # To create one by a slip would be easy.
    await _declare(client, screen, name, settings)


async def _declare(
    client: "Jackalope", screen: "Screen", name: str, settings: "list[str] | None"
) -> None:
    from jackalope.core.shapes.namespace import NamespaceSettings

    changes = read_changes(NamespaceSettings, settings or [], "a namespace")
    await client.declare_namespace(name, changes)
    view = await client.namespace_of(name)
    screen.show(view, lambda: _draw(view))


async def delete(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    force: Annotated[
        bool, opt("--force", "Kill its unfinished tasks, and tell its workers to finish.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a namespace with all that is in it: queues, schedules, limits, keys, history.

    Refused while it has unfinished tasks or workers, unless forced.

    Examples:
        jackalope namespaces delete acme
        jackalope namespaces delete acme --force --yes
    """
    confirm(screen, f"delete namespace {name} with all that is in it?", is_sure=yes)
    killed = await client.delete_namespace(name, force=force)
    text = f"namespace {name} is deleted" + (f"; {killed} tasks were killed" if killed else "")
    screen.show({"name": name, "deleted": True, "killed": killed}, text)
