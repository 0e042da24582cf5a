"""Administration over gRPC: API keys and namespaces."""

from __future__ import annotations

from jackalope.broker import queries
from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About, Refused
from jackalope.core.api_key import ROLES, ApiKey, Permission, Role
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace
from jackalope.core.effects import NamespaceGone
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import keys_of
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words, from_time, to_time
from jackalope.wire.views import NamespaceView

_PERMISSIONS = Words(pb.Permission, Permission)


class AdminService:
    """API keys and namespaces."""

    async def create_api_key(
        self, call: Call, request: pb.CreateApiKeyRequest
    ) -> pb.CreateApiKeyResponse:
        token, expires_us = new_token(), from_time(request, "expires_at")
        if 0 < expires_us <= call.broker.now_us():
            raise BadField("expires_at", "is in the past; use a future time, or leave it out")
        if bool(request.role) == bool(request.permissions):
            raise BadField("role", f"give permissions or a role, one of {', '.join(ROLES)}")
        if request.role and request.role not in ROLES:
            raise BadField("role", f"must be one of {', '.join(ROLES)}")
        permissions = (
            list(ROLES[Role(request.role)])
            if request.role
            else [
                _PERMISSIONS.required(each, f"permissions[{number}]")
                for number, each in enumerate(request.permissions)
            ]
        )
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
                    role=view.role,
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

    async def list_namespaces(
        self, call: Call, _: pb.ListNamespacesRequest
    ) -> pb.ListNamespacesResponse:
        views = await queries.namespace_list(call.broker, _own(call))
        return pb.ListNamespacesResponse(namespaces=map(_namespace_shown, views))

    async def get_namespace(
        self, call: Call, request: pb.GetNamespaceRequest
    ) -> pb.GetNamespaceResponse:
        return pb.GetNamespaceResponse(namespace=await _namespace(call, request.name))

    async def declare_namespace(
        self, call: Call, request: pb.DeclareNamespaceRequest
    ) -> pb.DeclareNamespaceResponse:
        given = request.settings
        changes: dict[str, object] = {
            field: getattr(given, field)
            for field in keys_of(NamespaceSettings)
            if given.HasField(field)
        }
        command = DeclareNamespace(name=request.name, changes=changes, by=call.by)
        await call.door.client_session.ask(command, who=call.principal)
        return pb.DeclareNamespaceResponse(namespace=await _namespace(call, request.name))

    async def delete_namespace(
        self, call: Call, request: pb.DeleteNamespaceRequest
    ) -> pb.DeleteNamespaceResponse:
        command = DeleteNamespace(name=request.name, force=request.force, by=call.by)
        answered = await call.door.client_session.ask(command, who=call.principal)
        return pb.DeleteNamespaceResponse(killed=of_kind(answered, NamespaceGone).killed)


async def _namespace(call: Call, name: str) -> pb.Namespace:
    view = await queries.namespace(call.broker, _own(call), About(name=name))
    return _namespace_shown(view)


def _own(call: Call) -> str:
    """Return a namespace that the API key covers."""
    key = call.principal.key
    return (key.namespace if key else "") or call.namespace


def _namespace_shown(view: NamespaceView) -> pb.Namespace:
    settings = {name: getattr(view.settings, name) for name in keys_of(NamespaceSettings)}
    return pb.Namespace(
        name=view.name,
        settings=pb.NamespaceSettings(**settings),
        used=view.used,
        queues=view.queues,
        created_at=to_time(view.created_us),
        created_by=view.by,
        is_declared=view.is_declared,
    )
