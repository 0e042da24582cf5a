"""Commands about the configuration: show it, check it, begin one."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.commands.serve import Flags, bad_config
from jackalope.cli.formatting import brief, plural

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.config.loader import Setting
    from jackalope.cli.output import Screen

_QUEUES = """
# Queues that exist from the start. A preset is a whole policy; fields beside it change it.
# queues:
#   images:
#     preset: {preset}
#     retries: 5
#     retry_base: 10s

# The policy of queues that are not declared: a preset, or fields of a policy.
# queue_defaults:
#   preset: taskqueue
#   depth_limit: 50000

# How many tasks with a tag may run at once.
# limits:
#   gpu: 4

# How many tasks with the same key may run at once, and how many may start in a span of time.
# key_limits:
#   per-user:
#     queue: mail
#     keys: [user]
#     concurrency: 2
#     rate: 100
#     per: 1m

# The same for other namespaces.
# namespaces:
#   team:
#     queues:
#       reports: {{}}
"""


def show(
    screen: "Screen",
    flags: Flags,
    changed: Annotated[
        bool, opt("--changed", "Only settings that differ from their defaults.")
    ] = False,
) -> None:
    """Show every setting, its value, and where that came from.

    Examples:
        jackalope config show
        JACKALOPE_NATIVE__PORT=7500 jackalope config show --changed
        jackalope config show --config jackalope.yaml --format json
    """
    settings = [
        each
        for each in flags.load().settings
        if not changed or each.origin.place.value != "default"
    ]
    data = [{"key": each.key, "value": each.value, "origin": str(each.origin)} for each in settings]
    screen.show(data, lambda: _draw(settings))


def _draw(settings: "list[Setting]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import dim, table

    drawn = table("key", "value", "from")
    for each in settings:
        if each.origin.place.value == "default":
            drawn.add_row(each.key, dim(brief(each.value, 36)), dim("default"))
        else:
            drawn.add_row(each.key, Text(brief(each.value, 36), "bold"), str(each.origin))
    return drawn


def check(screen: "Screen", flags: Flags) -> None:
    """Check the configuration, and list everything that is wrong with it.

    Exits with 0 if a broker can start with it, else with 2.

    Examples:
        jackalope config check --config jackalope.yaml
    """
    from jackalope.broker.config.loader import declaration_problems

    loaded = flags.load()
    if problems := declaration_problems(loaded.config):
        raise bad_config(problems)
    given = [each for each in loaded.settings if each.origin.place.value != "default"]
    text = (
        f"the configuration is valid: {plural(len(given), 'setting')} in addition to the defaults"
    )
    notes = [str(note) for note in loaded.notes]
    data = {"problems": [], "settings": len(given), "notes": notes}
    screen.show(data, "\n".join([text, *notes]))


def init(
    screen: "Screen", file: Annotated[str, arg("FILE", "Where to write it.")] = "jackalope.yaml"
) -> None:
    """Write a configuration file with every setting, its default and its meaning.

    All of it is commented out: what you do not change follows the defaults.

    Examples:
        jackalope config init
        jackalope config init /etc/jackalope.yaml
    """
    path = Path(file)
    if path.suffix not in {".yaml", ".yml"}:
        raise Failure(f"{path} must end in .yaml or .yml", code=Exit.USAGE)
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write("\n".join(template()))
    except FileExistsError:
        raise Failure(f"{path} exists already", "choose another name") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    screen.show({"file": str(path)}, f"wrote {path}; start with `jackalope serve --config {path}`")


def template() -> Iterator[str]:
    """Yield the lines of a configuration file that changes nothing."""
    from textwrap import wrap

    from jackalope.broker.config.loader import known_settings, shown
    from jackalope.broker.config.schema import COMPONENTS
    from jackalope.core.policy import PRESETS

    yield "# Configuration of a Jackalope broker. Remove a # to change a setting."
    before = ""
    for component, key, name, about in known_settings():
        if component != before:
            yield f"\n# {component}:"
            before = component
        yield from (f"#   # {line}" for line in wrap(about, 90))
        value = shown(name, getattr(COMPONENTS[component](), name))
        text = '""' if value == "" else value
        yield f"#   {key}: {text}"
    yield _QUEUES.format(preset=next(iter(PRESETS)))
