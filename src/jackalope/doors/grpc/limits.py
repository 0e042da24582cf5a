"""Limits over gRPC: of tags, and by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jackalope.broker import queries
from jackalope.core.commands import LimitTag
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.shapes.limit import LimitSettings, OnFull
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words, changes_in, shown_as, to_time
from jackalope.wire.views import GateView, KeyLimitView

_ON_FULL = Words(pb.OnFull, OnFull)

#: The settings that are not as in the core: how they come in, and how they go out.
_IN: dict[str, Callable[[pb.KeyLimitSettings], object]] = {
    "keys": lambda given: list(given.keys.names),
    "on_full": lambda given: _ON_FULL.required(given.on_full, "on_full").value,
}
_OUT: dict[str, Callable[[Any], Any]] = {
    "keys": lambda keys: pb.KeyNames(names=keys),
    "on_full": _ON_FULL.number,
}


class LimitService:
    """Limits of tags, and limits by key."""

    async def list_limits(self, call: Call, _: pb.ListLimitsRequest) -> pb.ListLimitsResponse:
        views = await call.view(queries.limits)
        return pb.ListLimitsResponse(
            limits=[
                pb.Limit(
                    tag=each.tag, limit=each.limit, in_flight=each.in_flight, waiting=each.waiting
                )
                for each in views
            ]
        )

    async def set_limit(self, call: Call, request: pb.SetLimitRequest) -> pb.SetLimitResponse:
        await call.ask(LimitTag(tag=request.tag, limit=request.limit))
        return pb.SetLimitResponse()

    async def delete_limit(
        self, call: Call, request: pb.DeleteLimitRequest
    ) -> pb.DeleteLimitResponse:
        await call.ask(LimitTag(tag=request.tag, limit=-1))
        return pb.DeleteLimitResponse()

    async def list_key_limits(
        self, call: Call, _: pb.ListKeyLimitsRequest
    ) -> pb.ListKeyLimitsResponse:
        views = await call.view(queries.key_limits)
        return pb.ListKeyLimitsResponse(key_limits=map(_shown, views))

    async def declare_key_limits(
        self, call: Call, request: pb.DeclareKeyLimitsRequest
    ) -> pb.DeclareKeyLimitsResponse:
        limits = {name: _changes_of(name, given) for name, given in request.key_limits.items()}
        await call.ask(DeclareLimits(limits=limits))
        return pb.DeclareKeyLimitsResponse()

    async def delete_key_limit(
        self, call: Call, request: pb.DeleteKeyLimitRequest
    ) -> pb.DeleteKeyLimitResponse:
        await call.ask(DeleteLimit(name=request.name))
        return pb.DeleteKeyLimitResponse()


def _changes_of(name: str, given: pb.KeyLimitSettings) -> dict[str, object]:
    try:
        return changes_in(given, LimitSettings, _IN)
    except BadField as bad:
        raise bad.below(f"key_limits[{name!r}]") from None


def _shown(view: KeyLimitView) -> pb.KeyLimit:
    return pb.KeyLimit(
        name=view.name,
        settings=shown_as(pb.KeyLimitSettings, view.settings, _OUT),
        in_flight=view.in_flight,
        waiting=view.waiting,
        opens_at=to_time(view.opens_us),
        gate_count=view.gate_count,
        gates=map(_gate_shown, view.gates),
    )


def _gate_shown(view: GateView) -> pb.Gate:
    return pb.Gate(
        values=view.values,
        in_flight=view.in_flight,
        waiting=view.waiting,
        opens_at=to_time(view.opens_us),
    )
