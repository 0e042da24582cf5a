"""Needs of tasks, as the library takes them."""

import pytest

from jackalope import ConfigError, Jackalope
from jackalope.core.ids import NO_TASK
from jackalope.core.shapes.needs import ONE, Needs


def test_needs_are_sent_with_a_task() -> None:
    app = Jackalope()

    @app.task(
        needs={"gpu": 1, "mem": "8GiB", "arch": "arm64"},
        prefer={"zone": ["a", "b"]},
        avoid={"tier": "spot"},
        sticky="user_id",
    )
    def train(user_id: int) -> None: ...

    plan = train.plan
    spec = plan.equip(plan.spec(NO_TASK, b""), train.definition.function, (7,), {})
    assert spec.options is not None
    assert spec.options.needs == Needs(
        (("gpu", ONE), ("mem", 8 * 2**30 * ONE)),
        (("arch", ("arm64",)),),
        (("zone", ("a", "b")),),
        (("tier", ("spot",)),),
        "7",
    )


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"needs": {"gpu": -1}}, "needs: gpu: must be 0"),
        ({"needs": {"gpu": 0, "": 1}}, "gpu: must be more than 0"),
        ({"needs": ["gpu"]}, "needs: a map"),
        ({"prefer": {"zone": 1}}, "prefer: zone: must be a text"),
        ({"sticky": "nobody"}, "sticky: no argument 'nobody'"),
    ],
)
def test_what_cannot_be_needed_is_refused(choices: dict[str, object], said: str) -> None:
    app = Jackalope()
    with pytest.raises(ConfigError, match=said):

        @app.task(**choices)  # type: ignore[call-overload, untyped-decorator]
        def train(user_id: int) -> None: ...
