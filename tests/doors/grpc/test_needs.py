"""Needs over gRPC: tasks say what they need, workers what they have, and both are shown."""

import math
from typing import Any

import grpc
import pytest

from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import open_grpc
from tests.doors.harness import run


def any_of(*values: str) -> pb.LabelValues:
    return pb.LabelValues(values=values)


def test_a_worker_is_given_no_more_than_it_has() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            needs = pb.Needs(
                resources={"gpu": 1, "cpu": 0.5},
                labels={"arch": any_of("arm64", "amd64")},
                prefer={"zone": any_of("a")},
                avoid={"tier": any_of("spot")},
                sticky="user-1",
            )
            ids = [await house.client.submit(needs=needs) for _ in range(3)]
            plain = await house.client.submit()
            worker = house.client.worker()
            has = {"gpu": 2, "cpu": 8, "mem": 2.0**36}
            await worker.join(slots=9, labels={"arch": "arm64"}, resources=has)
            given = await worker.take(3)
            assert {each.task_id for each in given} == {*ids[:2], plain}
            [shown] = (await house.client.workers.ListWorkers(pb.ListWorkersRequest())).workers
            assert dict(shown.resources) == has
            assert dict(shown.used) == {"gpu": 2, "cpu": 1}
            task = await house.client.get(ids[2])
            needs.labels["arch"].values[:] = ["amd64", "arm64"]  # in the order of the alphabet
            assert task.needs == needs
            assert not (await house.client.get(plain)).HasField("needs")
            await worker.start(*given)
            first = next(each for each in given if each.task_id == ids[0])
            await worker.finish(first)
            assert [each.task_id for each in await worker.take()] == [ids[2]]

    run(check())


@pytest.mark.parametrize("amount", [-1, 0, math.nan, math.inf, 2.0**60])
def test_amounts_that_are_not_sound_are_refused(amount: float) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await house.client.submit(needs=pb.Needs(resources={"gpu": amount}))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "gpu: must be" in str(refused.value.details())

    run(check())


@pytest.mark.parametrize(
    "wrong", [{"labels": {"zone": pb.LabelValues()}}, {"prefer": {"": any_of("a")}}]
)
def test_labels_that_are_not_sound_are_refused(wrong: Any) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await house.client.submit(needs=pb.Needs(**wrong))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(check())
