"""Limits by key over gRPC: declared, listed and deleted, and closed by a worker's verdict."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from jackalope.broker.access import Access
from jackalope.core.api_key import Permission
from jackalope.core.settings import keys_of
from jackalope.core.shapes.limit import LimitSettings
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import House, open_grpc, refused
from tests.doors.grpc.test_door import key
from tests.doors.harness import run


def declare(house: House, metadata: Any = None, **key_limits: pb.KeyLimitSettings) -> Any:
    request = pb.DeclareKeyLimitsRequest(key_limits=key_limits)
    return house.client.limits.DeclareKeyLimits(request, metadata=metadata)


async def listed(house: House) -> list[pb.KeyLimit]:
    return list((await house.client.limits.ListKeyLimits(pb.ListKeyLimitsRequest())).key_limits)


def by(*names: str) -> pb.KeyNames:
    return pb.KeyNames(names=names)


def test_settings_that_are_not_set_stay() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            whole = pb.KeyLimitSettings(
                queue="mail",
                task="send",
                keys=by("user", "tenant"),
                concurrency=2,
                rate=100,
                per=Duration(seconds=60),
                burst=20,
                cost=3,
                cost_key="",
                on_full=pb.ON_FULL_WAIT,
            )
            assert {field.name for field, _ in whole.ListFields()} == set(keys_of(LimitSettings))
            await declare(house, one=whole)
            (limit,) = await listed(house)
            assert (limit.name, limit.settings) == ("one", whole)
            changes = pb.KeyLimitSettings(rate=50, task="", keys=by())
            await declare(house, one=changes, other=pb.KeyLimitSettings(concurrency=0))
            one, other = await listed(house)
            whole.MergeFrom(pb.KeyLimitSettings(rate=50, task=""))
            whole.keys.Clear()
            assert one.settings == whole
            assert (other.settings.concurrency, other.settings.rate) == (0, 0)
            await house.client.limits.DeleteKeyLimit(pb.DeleteKeyLimitRequest(name="one"))
            assert [each.name for each in await listed(house)] == ["other"]

    run(check())


def test_all_are_declared_or_none_and_every_problem_is_named() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            good = pb.KeyLimitSettings(concurrency=1)
            bad = pb.KeyLimitSettings(rate=1, cost=5)
            worse = pb.KeyLimitSettings(burst=3)
            why = await refused(declare(house, good=good, bad=bad, worse=worse))
            assert why.reason == "INVALID"
            assert "bad: cost: 5 is more than a full bucket has" in why.message
            assert "worse: burst: is for a limit with a rate" in why.message
            unset = pb.KeyLimitSettings(on_full=pb.ON_FULL_UNSPECIFIED)
            why = await refused(declare(house, good=good, unset=unset))
            assert "key_limits['unset'].on_full" in why.message
            assert await listed(house) == []

    run(check())


def test_its_use_and_its_busiest_values_are_shown() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await declare(house, users=pb.KeyLimitSettings(keys=by("user"), concurrency=1))
            for user in ("ada", "ada", "bob"):
                await house.client.submit(keys={"user": user})
            worker = house.client.worker()
            await worker.join(slots=3)
            taken = await worker.take(2)
            (limit,) = await listed(house)
            assert (limit.in_flight, limit.waiting, limit.gate_count) == (2, 1, 2)
            assert [list(gate.values) for gate in limit.gates] == [["ada"], ["bob"]]
            assert not limit.HasField("opens_at")
            assert len(taken) == 2

    run(check())


def test_who_administers_declares_and_who_reads_lists() -> None:
    admin_token, admin = key("admin", Permission.ADMIN)
    reader_token, reader = key("reader", Permission.READ_TASKS)

    async def check() -> None:
        async with open_grpc(access=Access([admin, reader])) as house:
            limits, good = house.client.limits, pb.KeyLimitSettings(concurrency=1)
            by_admin = house.connect(admin_token).metadata
            by_reader = house.connect(reader_token).metadata
            assert (await refused(declare(house, by_reader, one=good))).reason == "FORBIDDEN"
            await declare(house, by_admin, one=good)
            listing = pb.ListKeyLimitsRequest()
            shown = await limits.ListKeyLimits(listing, metadata=by_reader)
            assert [each.name for each in shown.key_limits] == ["one"]
            deleting = pb.DeleteKeyLimitRequest(name="one")
            why = await refused(limits.DeleteKeyLimit(deleting, metadata=by_reader))
            assert why.reason == "FORBIDDEN"
            await limits.DeleteKeyLimit(deleting, metadata=by_admin)

    run(check())
