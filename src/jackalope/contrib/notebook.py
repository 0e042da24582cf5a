"""For Jupyter: a task's progress as a bar below the cell.

Owns the look of the bar. Needs no widgets: the bar is HTML that is replaced as progress comes.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, TypeVar

from jackalope.client.handle import Handle
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import State
from jackalope.errors import ConfigError

R = TypeVar("R")

_COLOURS = {State.SUCCEEDED: "#2e7d32", State.DEAD: "#c62828", State.KILLED: "#c62828"}
_RUNNING = "#1565c0"


async def watch(handle: Handle[R], show: Callable[[str], object] | None = None) -> R:
    """Show a task's progress until it ends, and return its result.

    Args:
        handle: of the task.
        show: is called with the HTML each time; what shows it in a notebook if not given.

    Raises:
        TaskFailed: it ended without success.
        ConfigError: this is no notebook.
    """
    show = show or _display()
    name, percent, note = id_text(handle.id), 0.0, ""
    show(bar(name, None, percent, note))
    async for step in handle.progress():
        percent = percent if step.percent is None else step.percent
        note = step.note or note
        show(bar(name, None, percent, note))
    state = await handle.wait()
    show(bar(name, state, 100.0 if state is State.SUCCEEDED else percent, note))
    return await handle.result()


def bar(name: str, state: State | None, percent: float, note: str) -> str:
    """Return the bar of a task as HTML."""
    colour = _COLOURS.get(state, _RUNNING) if state is not None else _RUNNING
    about = state.value if state is not None else f"{percent:.0f} %"
    return (
        '<div style="font-family:monospace;max-width:40em">'
        f"<div>{escape(name)} {escape(about)} {escape(note)}</div>"
        '<div style="background:#8884;height:8px;border-radius:4px">'
        f'<div style="background:{colour};height:8px;border-radius:4px;width:{percent:.1f}%">'
        "</div></div></div>"
    )


def _display() -> Callable[[str], object]:
    try:
        from IPython import display  # noqa: PLC0415  a notebook has it
        from IPython.core.getipython import get_ipython  # noqa: PLC0415
    except ImportError:
        raise ConfigError("watch: there is no IPython here; pass show=") from None
    if get_ipython() is None:
        raise ConfigError("watch: this is no notebook; pass show=")
    cell: Any = display.display(display.HTML(""), display_id=True)
    return lambda text: cell.update(display.HTML(text))
