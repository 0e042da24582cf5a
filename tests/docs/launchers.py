"""The blocks on launchers: every setting of each."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import get_type_hints

import msgspec

from jackalope.core.durations import format_duration
from jackalope.pools.launchers.settings import SHAPES, Hpa, Keda
from tests.docs.blocks import Block, Table
from tests.docs.wording import code


def settings_of(shape: type[msgspec.Struct]) -> Table:
    hints = get_type_hints(shape, include_extras=True)
    rows = [
        (
            code(field.name.removesuffix("_us")),
            default_of(field),
            hints[field.name].__metadata__[0].description,
        )
        for field in msgspec.structs.fields(shape)
    ]
    return Table(("key", "default", "meaning"), rows)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if field.name.endswith("_us"):
        return code(format_duration(value))
    if isinstance(value, msgspec.Struct):
        return code(value.__struct_config__.tag)
    if isinstance(value, Enum):
        return code(value.value)
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(value) if value or isinstance(value, int | float) else "empty"


LAUNCHERS: dict[str, Callable[[], Block]] = {
    **{kind: partial(settings_of, shape) for kind, shape in SHAPES.items() if kind != "none"},
    "hpa": partial(settings_of, Hpa),
    "keda": partial(settings_of, Keda),
}
