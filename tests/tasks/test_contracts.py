"""Contracts of functions: from annotations to JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from jackalope import Depends
from jackalope.core.shapes.call import CallCheck
from jackalope.core.shapes.contract import ParameterKind, signature
from jackalope.tasks.contracts import contract_of, contracts_of
from jackalope.tasks.definition import TaskDefinition


@dataclass
class Item:
    sku: str
    count: int = 1


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Model(pydantic.BaseModel):
    inner: list[int]


def database() -> str:
    return "db"


async def order(
    item: Item,
    /,
    when: datetime | None = None,
    *,
    colour: Colour = Colour.RED,
    where: Path = Path(),
    db: Annotated[str, Depends(database)],
    **more: Annotated[int, msgspec.Meta(ge=0)],
) -> dict[str, list[UUID]]:
    """Order something."""
    raise NotImplementedError


def whatever(*args, **kwargs):  # type: ignore[no-untyped-def]
    raise NotImplementedError


def test_a_function_says_what_it_takes() -> None:
    contract = contract_of(TaskDefinition(order, name="order"))
    assert [each.name for each in contract.parameters] == [
        "item",
        "when",
        "colour",
        "where",
        "more",
    ]
    assert [each.kind for each in contract.parameters] == [
        ParameterKind.PLACE,
        ParameterKind.ANY,
        ParameterKind.NAME,
        ParameterKind.NAME,
        ParameterKind.REST_NAMED,
    ]
    assert [each.required for each in contract.parameters] == [True, False, False, False, False]
    assert contract.definitions["Item"]["required"] == ["sku"]
    assert contract.doc == "Order something."
    assert contract.parameters[2].default == "red"
    assert signature("order", contract).startswith("order(item: Item, /, when: ")


def test_what_fits_the_function_fits_its_contract() -> None:
    definition = TaskDefinition(order, name="order")
    check = CallCheck(contract_of(definition))
    fits = definition.payload(
        (Item("a"),), {"when": datetime(2030, 1, 1, tzinfo=UTC), "colour": Colour.BLUE}
    )
    assert check.problems(fits, {}) == []
    for args, kwargs in (
        ((Item("a"), 3), {}),
        ((), {}),
        (({"count": 1},), {}),
        ((Item("a"),), {"x": -1}),
    ):
        assert check.problems(msgspec.msgpack.encode((args, kwargs)), {})


def test_models_of_others_and_types_that_have_no_schema() -> None:
    def of_model(model: Model) -> None:
        raise NotImplementedError

    def of_any(thing: object, other: Any) -> None:
        raise NotImplementedError

    contract = contract_of(TaskDefinition(of_model, name="m"))
    check = CallCheck(contract)
    assert check.problems(msgspec.msgpack.encode(([{"inner": [1]}], {})), {}) == []
    assert check.problems(msgspec.msgpack.encode(([{"inner": 1}], {})), {})
    free = CallCheck(contract_of(TaskDefinition(of_any, name="a")))
    assert free.problems(msgspec.msgpack.encode(([1, "x"], {})), {}) == []
    assert free.problems(msgspec.msgpack.encode(([1], {})), {})


def test_functions_without_annotations_take_anything() -> None:
    [(name, plain)] = contracts_of([TaskDefinition(whatever, name="w")]).items()
    assert name == "w"
    assert [each["kind"] for each in plain["parameters"]] == ["rest", "rest_named"]
    check = CallCheck(contract_of(TaskDefinition(whatever, name="w")))
    assert check.problems(msgspec.msgpack.encode(([1, None], {"a": [1]})), {}) == []


@pytest.mark.parametrize("content", ["bytes", "json"])
def test_the_content_is_told(content: Any) -> None:
    def take(data: bytes) -> bytes:
        raise NotImplementedError

    contract = contract_of(TaskDefinition(take, name="t", content=content))
    assert contract.content == content
