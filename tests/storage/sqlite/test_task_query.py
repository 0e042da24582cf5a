"""Filters mean in SQL what their docstring says."""

from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.task import BlobRef, Error, Options, Outcome, TaskRow
from jackalope.storage import History
from tests.storage.making import FOREVER_US, make_changes, make_row, task_id

# Few values each, so that filters match; odd ones, so that quoting and case matter.
TEXTS = ["", "a", "A", "aB", "Ab%", "a_b", "\\", "%", "_", "'", '"', "ä", "Ä", "x\0y", "00", "é[*]"]
TAGS = ["a", "A", "a,b", '"', "\\", "[1]", "ä", ",", '","']
PARENTS = [NO_TASK, task_id(7), task_id(8)]

texts = st.sampled_from(TEXTS)

#: In the row, in a column of its own, and in the blob store.
PAYLOADS = [b"", b"blue \xc3\xa4", b"-" * 5_000 + b"blue", BlobRef("b1", 3)]
ERRORS = [None, None, Error("Timed", "out"), Error("ValueError", "Blue \u00e4")]


@st.composite
def rows(draw: st.DrawFn) -> list[TaskRow]:
    return [
        make_row(
            1,
            id=TaskId(task),
            queue=draw(st.sampled_from(["q", "Q", "r"])),
            name=draw(texts),
            key=draw(texts),
            state=draw(st.sampled_from(State)),
            batch=draw(st.integers(1, 3)),
            created_us=draw(st.integers(1, 4)),
            options=Options(
                alias=draw(texts),
                tags=tuple(draw(st.lists(st.sampled_from(TAGS), max_size=3))),
                parent=draw(st.sampled_from(PARENTS)),
            ),
            payload=draw(st.sampled_from(PAYLOADS)),
            outcome=Outcome(error=draw(st.sampled_from(ERRORS)), forget_us=FOREVER_US),
        )
        for task in draw(st.lists(st.binary(min_size=16, max_size=16), max_size=12, unique=True))
    ]


# Each condition is left empty most of the time; all at once match nothing.
filters = st.builds(
    Filter,
    states=st.just(()) | st.lists(st.sampled_from(State), max_size=4).map(tuple),
    queue=st.sampled_from(["", "", "q", "Q", "s"]),
    name=st.just("") | texts,
    key=st.just("") | texts,
    tag=st.just("") | st.sampled_from(["", *TAGS]),
    parent=st.sampled_from([NO_TASK, *PARENTS]),
    batch=st.sampled_from([0, 0, 1, 2]),
    text=st.just("") | texts | st.sampled_from(["B", "b%", "0", "000", "ff", "FF", "f"]),
    older_than_us=st.sampled_from([0, 0, 2, 3, 9]),
    newer_than_us=st.sampled_from([0, 0, 2, 3, 9]),
    contains=st.sampled_from(["", "", "ä", "Ä", "BLUE", "blue", "b1", "timed: OUT"]),
    queues=st.sampled_from([(), (), ("q",), ("Q", "r", "s"), ("s",)]),
)


def fold(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def is_wanted(row: TaskRow, wanted: Filter) -> bool:
    text = fold(wanted.text)
    names = (row.name, row.key, row.options.alias)
    return all(
        (
            not wanted.states or row.state in wanted.states,
            wanted.queue in {"", row.queue},
            not wanted.queues or row.queue in wanted.queues,
            wanted.name in {"", row.name},
            wanted.key in {"", row.key},
            not wanted.tag or wanted.tag in row.options.tags,
            wanted.parent in {NO_TASK, row.options.parent},
            wanted.batch in {0, row.batch},
            any(text in fold(name) for name in names) or row.id.hex().startswith(text),
            not wanted.older_than_us or row.created_us < wanted.older_than_us,
            row.created_us >= wanted.newer_than_us,
            not wanted.contains or is_contained(row, wanted.contains),
        )
    )


def is_contained(row: TaskRow, text: str) -> bool:
    error = row.outcome.error if row.outcome else None
    is_in_error = error is not None and fold(text) in fold(f"{error.type}: {error.message}")
    return is_in_error or (isinstance(row.payload, bytes) and text.encode() in row.payload)


@settings(max_examples=300, deadline=None)
@given(rows=rows(), wanted=filters)
def test_filter_means_the_same_in_sql(rows: list[TaskRow], wanted: Filter) -> None:
    with closing(History(None)) as history:
        history.write(1, make_changes(*rows))
        found = history.page("default", wanted, limit=1_000).rows
        expected = [row for row in rows if is_wanted(row, wanted)]
        assert {row.id for row in found} == {row.id for row in expected}
        assert len(found) == len(expected)
        counts = history.count("default", wanted)
        states = [row.state for row in expected]
        assert counts == {state: states.count(state) for state in states}
