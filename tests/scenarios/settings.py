"""Fields of policies and pools, as scripts write them."""

from __future__ import annotations

from jackalope.core.policy import Policy
from jackalope.core.shapes.pool import PoolSettings
from tests.scenarios.language import parse_duration_us


def read_field(shape: type[Policy | PoolSettings], name: str, text: str) -> tuple[str, object]:
    """Read a field of a policy or a pool; a time goes without the `_us` of its name."""
    if f"{name}_us" in shape.__struct_fields__:
        return f"{name}_us", parse_duration_us(text)
    if text in {"true", "false"}:
        return name, text == "true"
    try:
        return name, float(text) if "." in text else int(text)
    except ValueError:
        return name, text
