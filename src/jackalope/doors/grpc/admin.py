"""Administration over gRPC: API keys, made, listed and revoked."""

from __future__ import annotations

from jackalope.broker import queries
from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.queries import Refused
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words, from_time, to_time

_PERMISSIONS = Words(pb.Permission, Permission)


class AdminService:
    """API keys."""

    async def create_api_key(
        self, call: Call, request: pb.CreateApiKeyRequest
    ) -> pb.CreateApiKeyResponse:
        token, expires_us = new_token(), from_time(request, "expires_at")
        if 0 < expires_us <= call.broker.now_us():
            raise BadField("expires_at", "is in the past; use a future time, or leave it out")
        permissions = [
            _PERMISSIONS.required(each, f"permissions[{number}]")
            for number, each in enumerate(request.permissions)
        ]
        key = ApiKey(
            id=id_of(token),
            hash=hash_of(token),
            name=request.name,
            permissions=tuple(dict.fromkeys(permissions)),
            queues=tuple(dict.fromkeys(request.queues)),
            namespace=request.namespace,
            expires_us=expires_us,
        )
        await call.door.client_session.ask(CreateApiKey(key=key, by=call.by), who=call.principal)
        return pb.CreateApiKeyResponse(id=key.id, token=token)

    async def list_api_keys(self, call: Call, _: pb.ListApiKeysRequest) -> pb.ListApiKeysResponse:
        views = await call.view(queries.api_keys)
        return pb.ListApiKeysResponse(
            keys=[
                pb.ApiKey(
                    id=view.id,
                    name=view.name,
                    permissions=[_PERMISSIONS.number(each) for each in view.permissions],
                    queues=view.queues,
                    namespace=view.namespace,
                    expires_at=to_time(view.expires_us),
                    created_at=to_time(view.created_us),
                    created_by=view.by,
                    is_configured=view.configured,
                )
                for view in views
            ]
        )

    async def revoke_api_key(
        self, call: Call, request: pb.RevokeApiKeyRequest
    ) -> pb.RevokeApiKeyResponse:
        if any(v.configured and v.id == request.id for v in await call.view(queries.api_keys)):
            message = (
                f"key {request.id!r} is configured: remove it from auth.keys and restart the broker"
            )
            raise Refused(Refusal(Code.WRONG_STATE, message))
        command = RevokeApiKey(key=request.id, by=call.by)
        await call.door.client_session.ask(command, who=call.principal)
        return pb.RevokeApiKeyResponse()
