"""Administration: namespaces, queues, tag limits and API keys."""

from jackalope.core.admin import api_keys, audit, configuration, namespaces, queues
from jackalope.core.commands import (
    CreateApiKey,
    DeclareAll,
    DeclareQueue,
    DeleteQueue,
    LimitTag,
    PauseQueue,
    ResumeQueue,
    RevokeApiKey,
)
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace, NoteAct
from jackalope.core.context import Room

ROOM = Room(
    handlers={
        DeclareQueue: queues.declare_queue,
        DeleteQueue: queues.delete_queue,
        PauseQueue: queues.pause_queue,
        ResumeQueue: queues.resume_queue,
        LimitTag: queues.limit_tag,
        DeclareAll: configuration.declare_all,
        CreateApiKey: api_keys.create_api_key,
        RevokeApiKey: api_keys.revoke_api_key,
        DeclareNamespace: namespaces.declare_namespace,
        DeleteNamespace: namespaces.delete_namespace,
        NoteAct: audit.note_act,
    },
    missing={NoteAct: audit.missing},
    settle_rest=namespaces.settle,
)
