"""Who is let in at the native door, and what each key permits there."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from jackalope import Jackalope
from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    AnswerSignal,
    ClaimTasks,
    Command,
    EndHelp,
    Heartbeat,
    JoinWorker,
    LeaveWorker,
    RecordStep,
    ReportProgress,
    RequestHelpers,
    StartAttempts,
    SubmitTasks,
    Suspend,
    WatchTasks,
)
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.shapes.flow import FlowSettings
from jackalope.core.task import Options, TaskSpec
from jackalope.errors import ConnectionLost, Rejected
from jackalope.transport.address import Address
from jackalope.wire.frames import Kind
from jackalope.wire.messages import (
    TO_BROKER,
    Ack,
    Broadcast,
    Call,
    CallReply,
    Ended,
    Events,
    Fetch,
    Hello,
    Listen,
    Logs,
    Manage,
    Nack,
    Query,
    Request,
    Result,
    Subscribe,
    Upload,
)
from tests.doors.harness import House, Peer, open_house, run, spec

NOBODYS = TaskId(bytes(16))

#: What each permission lets a peer do.
ALLOWED: dict[Permission, list[Request | Command]] = {
    Permission.SUBMIT_TASKS: [SubmitTasks(0, []), Broadcast(0, "news")],
    Permission.READ_TASKS: [
        Query(0, "stats"),
        Query(0, "tasks"),
        Query(0, "queues"),
        WatchTasks(0, ()),
        Subscribe(0),
        Listen(0),
    ],
    Permission.CANCEL_TASKS: [
        ActOnTasks(0, Action.KILL),
        ActOnTasks(0, Action.PURGE, filter=Filter()),
    ],
    Permission.WORK: [
        JoinWorker(0, "w1", ("q",)),
        StartAttempts(0, []),
        Result(0),
        CallReply(0, 1),
        LeaveWorker(0),
        Listen(0, ("clerk",)),
    ],
    Permission.ADMIN: [
        Manage(0, "declare_queue", {"queue": "q"}),
        Manage(0, "limit_tag", {"tag": "gpu", "limit": 1}),
        Query(0, "api_keys"),
    ],
}

#: What is refused for other reasons too.
OTHERS: dict[Permission, list[Request | Command]] = {
    Permission.SUBMIT_TASKS: [
        Call(0, "nobody"),
        SubmitFlow(0, TaskSpec(NOBODYS, "q"), FlowSettings(), []),
        AddNodes(0, NOBODYS),
    ],
    Permission.WORK: [
        ClaimTasks(0),
        RequestHelpers(0, NOBODYS, 1, 1),
        EndHelp(0, 1),
        ReportProgress(0, NOBODYS, 1),
        Logs(0, NOBODYS, 1),
        RecordStep(0, NOBODYS, 1, 0, "step"),
        Suspend(0, NOBODYS, 1, 0, "sleep", 1),
        AnswerSignal(0, NOBODYS, 1, "refused"),  # type: ignore[arg-type]
    ],
}


def make_key(*permissions: Permission, **limits: Any) -> tuple[str, ApiKey]:
    """Make a key and its token."""
    token = new_token()
    return token, ApiKey(id_of(token), hash_of(token), "ada", permissions, **limits)


async def create(peer: Peer, *permissions: Permission, **limits: Any) -> tuple[str, str]:
    """Let a peer make a key, and return its token and its id."""
    token = new_token()
    key = {"id": id_of(token), "hash": hash_of(token), "name": "bob", **limits}
    key["permissions"] = list(permissions)
    await peer.ask_ok(Manage(0, "create_api_key", {"key": key}))
    return token, id_of(token)


async def refused_at_the_door(house: House, hello: Hello) -> Nack:
    """Let a peer say HELLO that is not let in."""
    peer = await house.connect()
    await peer.send(hello)
    (heard,) = await peer.wait_closed()
    assert isinstance(heard, Nack)
    return heard


@pytest.mark.parametrize("having", Permission)
@pytest.mark.feature("T3")
def test_a_key_permits_what_it_names_and_nothing_else(having: Permission) -> None:
    token, key = make_key(having)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            peer = await house.peer(token=token)
            for needed, messages in ALLOWED.items():
                is_permitted = having in (needed, Permission.ADMIN)
                for message in messages:
                    message.ref = 0
                    if is_permitted:
                        await peer.ask_ok(message)
                    else:
                        refused = await peer.ask_no(message)
                        assert refused.code == "forbidden"
                        assert str(needed) in refused.message
            for needed, messages in OTHERS.items():
                for message in messages:
                    message.ref = 0
                    code = (await peer.ask_no(message)).code
                    is_permitted = having in (needed, Permission.ADMIN)
                    assert (code == "forbidden") is not is_permitted

    run(test())


def test_every_message_is_looked_at() -> None:
    looked_at = {type(message) for messages in ALLOWED.values() for message in messages}
    looked_at |= {type(message) for messages in OTHERS.values() for message in messages}
    # Parts of bodies need one of two permissions, or the right to the task: see `test_streams`.
    assert looked_at == set(TO_BROKER.values()) - {Hello, Heartbeat, Upload, Fetch}


@pytest.mark.parametrize(
    "token", ["", "nonsense", "jk_a1_short", "jk_a1_" + "x" * 43, "x" * 10_000], ids=len
)
@pytest.mark.feature("T3")
def test_without_a_good_token_nobody_is_let_in(token: str) -> None:
    _, key = make_key(Permission.ADMIN)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            heard = await refused_at_the_door(house, Hello(token=token))
            assert heard.code == "unauthorised"
            assert not token or token not in heard.message

    run(test())


@pytest.mark.feature("T3")
def test_the_right_id_with_a_wrong_secret_is_not_let_in() -> None:
    token, key = make_key(Permission.ADMIN)
    wrong = f"jk_{key.id}_{new_token().rpartition('_')[2][:43].rjust(43, 'x')}"
    assert id_of(wrong) == id_of(token)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            assert (await refused_at_the_door(house, Hello(token=wrong))).code == "unauthorised"

    run(test())


def test_an_open_broker_looks_at_no_token() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer(token="whatever")  # noqa: S106
            await peer.ask_ok(Manage(0, "declare_queue", {"queue": "q"}))

    run(test())


def test_the_first_key_closes_the_door_behind_those_without_one() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            maker, bystander = await house.peer(), await house.peer()
            token, key = await create(maker, Permission.ADMIN)
            for peer in (maker, bystander):
                (heard,) = await peer.wait_closed()
                assert isinstance(heard, Nack)
                assert heard.code == "unauthorised"
            admin = await house.peer(token=token)
            await admin.ask_ok(Manage(0, "revoke_api_key", {"key": key}))
            await admin.wait_closed()
            # Without any key it is open again, as on its own machine it may be.
            await (await house.peer()).ask_ok(Query(0, "stats"))

    run(test())


def test_a_broker_that_must_not_be_open_lets_nobody_in_without_keys() -> None:
    async def test() -> None:
        async with open_house(None, access=Access(may_be_open=False)) as house:
            assert (await refused_at_the_door(house, Hello())).code == "unauthorised"

    run(test())


def test_a_revoked_key_ends_its_sessions_at_once() -> None:
    token, key = make_key(Permission.ADMIN)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            admin = await house.peer(token=token)
            given, key_id = await create(admin, Permission.READ_TASKS)
            reader = await house.peer(token=given)
            await reader.ask_ok(Query(0, "stats"))
            await admin.ask_ok(Manage(0, "revoke_api_key", {"key": key_id}))
            (heard,) = await reader.wait_closed()
            assert isinstance(heard, Nack)
            assert (await refused_at_the_door(house, Hello(token=given))).code == "unauthorised"
            await admin.ask_ok(Query(0, "stats"))

    run(test())


def test_a_key_that_is_over_ends_its_sessions() -> None:
    token, key = make_key(Permission.ADMIN)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            admin = await house.peer(token=token)
            until_us = house.broker.now_us() + 300_000
            given, _ = await create(admin, Permission.READ_TASKS, expires_us=until_us)
            reader = await house.peer(token=given)
            heard = [one for one in await reader.wait_closed() if isinstance(one, Nack)]
            assert heard[0].code == "unauthorised"
            assert house.broker.now_us() >= until_us

    run(test())


def test_keys_survive_a_restart_and_show_no_secret(tmp_path: Any) -> None:
    token, key = make_key(Permission.ADMIN)

    async def test() -> None:
        async with open_house(tmp_path, access=Access([key])) as house:
            admin = await house.peer("root", token=token)
            given, key_id = await create(
                admin, Permission.WORK, queues=["images"], namespace="team"
            )
        async with open_house(tmp_path, access=Access([key])) as house:
            admin = await house.peer(token=token)
            configured, stored = await admin.ask_ok(Query(0, "api_keys"))
            assert configured["configured"]
            assert (stored["id"], stored["name"]) == (key_id, "bob")
            assert (stored["queues"], stored["namespace"]) == (["images"], "team")
            assert stored["by"] == "ada/root"
            assert hash_of(given) not in str([configured, stored])
            await house.peer(namespace="team", token=given)

    run(test())


def test_a_key_of_one_namespace_is_let_into_no_other() -> None:
    token, key = make_key(Permission.ADMIN, namespace="team")

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            assert (await refused_at_the_door(house, Hello(token=token))).code == "forbidden"
            peer = await house.peer(namespace="team", token=token)
            await peer.submit(spec())
            # It may do all there, and make keys, but none for other namespaces.
            (shown,) = await peer.ask_ok(Query(0, "api_keys"))
            assert shown["id"] == key.id
            made = {"id": "a1", "hash": "0" * 64, "name": "x", "permissions": ["admin"]}
            refused = await peer.ask_no(Manage(0, "create_api_key", {"key": made}))
            assert refused.code == "forbidden"

    run(test())


def test_a_key_of_some_queues_sees_no_others() -> None:
    all_token, all_key = make_key(Permission.ADMIN)
    token, key = make_key(Permission.ADMIN, queues=("images",))

    async def test() -> None:
        async with open_house(None, access=Access([key, all_key])) as house:
            root = await house.peer(token=all_token)
            peer = await house.peer(token=token)
            (mine,) = await peer.submit(spec("images"))
            (theirs,) = await root.submit(spec("sounds"))
            await root.ask_ok(JoinWorker(0, "w-sounds", ("sounds",), slots=0))

            # What is there and what never was is answered alike.
            for question in ("task", "history", "explain"):
                await peer.ask_ok(Query(0, question, {"id": mine}))
                hidden = await peer.ask_no(Query(0, question, {"id": theirs}))
                never = await peer.ask_no(Query(0, question, {"id": NOBODYS}))
                assert hidden.message.replace(theirs.hex(), "") == never.message.replace(
                    NOBODYS.hex(), ""
                )
                assert hidden.code == never.code == "unknown_task"
            hidden = await peer.ask_no(Query(0, "batches", {"queue": "sounds"}))
            never = await peer.ask_no(Query(0, "batches", {"queue": "silence"}))
            assert hidden.code == never.code == "unknown_queue"

            # Lists and numbers leave the others out.
            shown = await peer.ask_ok(Query(0, "tasks", {"queues": ["images", "sounds"]}))
            assert [task["id"] for task in shown["tasks"]] == [mine]
            shown = await peer.ask_ok(Query(0, "tasks", {"queue": "sounds"}))
            assert shown["tasks"] == []
            shown = await peer.ask_ok(Query(0, "tasks", {"queues": ["sounds"]}))
            assert shown["tasks"] == []
            assert [one["queue"] for one in await peer.ask_ok(Query(0, "queues"))] == ["images"]
            assert await peer.ask_ok(Query(0, "workers")) == []
            assert (await peer.ask_ok(Query(0, "stats")))["counts"] == {"ready": 1}

            # Nor can it do anything there.
            for message in (
                SubmitTasks(0, [spec("images"), spec("sounds")]),
                JoinWorker(0, "w1", ("images", "sounds")),
                JoinWorker(0, "w-sounds", ("images",)),
                Manage(0, "pause_queue", {"queue": "sounds"}),
                Manage(
                    0, "declare_queue", {"queue": "images", "changes": {"result_becomes": "sounds"}}
                ),
                Manage(0, "limit_tag", {"tag": "gpu", "limit": 0}),
                Manage(0, "drain_worker", {"worker": "w-sounds"}),
            ):
                assert (await peer.ask_no(message)).code == "forbidden"
            acted = await peer.ask_ok(ActOnTasks(0, Action.KILL, (mine, theirs)))
            assert acted["changed"] == 1
            assert [refused["code"] for _, refused in acted["refused"]] == ["unknown_task"]
            acted = await peer.ask_ok(ActOnTasks(0, Action.KILL, filter=Filter()))
            assert acted["changed"] == 0
            watched = await peer.ask_ok(WatchTasks(0, (theirs,)))
            assert watched["count"] == 0
            assert await root.state_of(theirs) == "ready"

    run(test())


def test_a_taken_alias_tells_one_bit_and_not_who_has_it() -> None:
    all_token, all_key = make_key(Permission.ADMIN)
    token, key = make_key(Permission.ADMIN, queues=("images",))

    async def test() -> None:
        async with open_house(None, access=Access([key, all_key])) as house:
            root, peer = await house.peer(token=all_token), await house.peer(token=token)

            def named(queue: str) -> TaskSpec:
                return spec(queue, options=Options(alias="nightly"))

            answers = []
            for queue in ("sounds", "films"):
                (holder,) = await root.submit(named(queue))
                for state in ("ready", "killed"):
                    assert await root.state_of(holder) == state
                    body = await peer.ask_ok(SubmitTasks(0, [named("images")]))
                    answers.append(body["refused"])
                    await root.ask_ok(ActOnTasks(0, Action.KILL, (holder,)))
                await root.ask_ok(ActOnTasks(0, Action.PURGE, (holder,)))
            assert all(answer == answers[0] for answer in answers)
            ((_, refusal),) = answers[0]
            assert refusal["code"] == "duplicate_alias"
            assert refusal["message"] == "alias 'nightly' is taken; choose another"
            (mine,) = await peer.submit(named("images"))
            ((_, own),) = (await peer.ask_ok(SubmitTasks(0, [named("images")])))["refused"]
            assert mine.hex() in own["message"]  # Its own it may see.

    run(test())


def test_a_key_of_some_queues_hears_of_no_others() -> None:
    all_token, all_key = make_key(Permission.ADMIN)
    token, key = make_key(Permission.READ_TASKS, queues=("images",))

    async def test() -> None:
        async with open_house(None, access=Access([key, all_key])) as house:
            root = await house.peer(token=all_token)
            reader = await house.peer(token=token)
            await reader.ask_ok(Subscribe(0))
            await root.submit(spec("sounds"))
            (mine,) = await root.submit(spec("images"))
            heard = await reader.expect(Events)
            assert [event.task for event in heard.events] == [mine]

    run(test())


def test_a_large_body_of_somebody_who_may_not_is_not_stored() -> None:
    token, key = make_key(Permission.READ_TASKS)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            peer = await house.peer(token=token)
            refused = await peer.ask_no(SubmitTasks(0, [spec(payload=bytes(200_000))]))
            assert refused.code == "forbidden"
            assert house.storage.blobs._blobs == {}  # type: ignore[attr-defined]

    run(test())


def test_a_pulse_needs_no_token_of_its_own() -> None:
    token, key = make_key(Permission.WORK)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            worker = await house.peer(token=token)
            await worker.join()
            beating = await house.connect()
            await beating.greet(Hello(pulse=worker.welcome.pulse))
            await beating.send(Query(1, "stats"))
            heard = await beating.wait_closed()
            assert "a pulse connection only sends heartbeats" in str(heard)

    run(test())


def test_who_acts_is_told_by_the_key() -> None:
    token, key = make_key(Permission.SUBMIT_TASKS, Permission.READ_TASKS)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            peer = await house.peer("somebody else", token=token)
            (task,) = await peer.submit(spec())
            assert (await peer.ask_ok(Query(0, "task", {"id": task})))["by"] == "ada/somebody else"

    run(test())


# The library.


def test_a_client_is_told_at_once_that_it_is_not_let_in() -> None:
    token, key = make_key(Permission.SUBMIT_TASKS)

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            for wrong in ("", new_token()):
                app = Jackalope(Address("127.0.0.1", house.door.port, token=wrong))
                with pytest.raises(Rejected) as refused:
                    await app.stats()
                assert refused.value.code == "unauthorised"
                await app.close()
            async with Jackalope(Address("127.0.0.1", house.door.port, token=token)) as app:
                with pytest.raises(Rejected, match="lacks the permission read_tasks"):
                    await app.stats()

    run(test())


def test_a_client_takes_its_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JACKALOPE_TOKEN", "of the environment")
    own = "jackalope://own@localhost"
    apps = [Jackalope(), Jackalope(own), Jackalope(own, token="given")]  # noqa: S106
    assert [app.address.token for app in apps] == ["of the environment", "own", "given"]
    assert "environment" not in repr(Jackalope())


def test_a_client_whose_key_is_revoked_is_told_so() -> None:
    root, root_key = make_key(Permission.ADMIN)

    async def test() -> None:
        async with open_house(None, access=Access([root_key])) as house:
            admin = await house.peer(token=root)
            token, key_id = await create(admin, Permission.READ_TASKS)
            app = Jackalope(Address("127.0.0.1", house.door.port, token=token))
            await app.stats()
            await admin.ask_ok(Manage(0, "revoke_api_key", {"key": key_id}))
            with suppress(ConnectionLost, Rejected):  # The first may find it out on its way.
                await app.stats()
            with pytest.raises(Rejected, match="unauthorised"):
                await app.stats()
            await app.close()

    run(test())


def test_a_peer_that_sends_more_elements_gains_nothing() -> None:
    """The session, namespace, name and queues of a command are the door's to set."""
    token, key = make_key(*Permission, namespace="mine", queues=("q",))

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            peer = await house.peer("ada", "mine", token)
            task = spec("q")
            for forged in (
                [0, "root", "other", ["theirs"]],  # Values that fit the fields of the command,
                ["later", {"still": "later"}],  # and what a later protocol may send.
            ):
                await peer.send_raw(Kind.SUBMIT, msgspec.msgpack.encode([5, [task], 0, *forged]))
                assert isinstance(await peer.answer(5), Ack)
            view = await peer.ask_ok(Query(0, "task", {"id": task.id}))
            assert view["by"].startswith("ada")
            assert house.broker.engine.core.book.tasks[task.id].queue.namespace.name == "mine"
            await peer.send_raw(
                Kind.WATCH, msgspec.msgpack.encode([6, [task.id], False, 99, "", "other", []])
            )
            assert isinstance(await peer.answer(6), Ack)
            # The watch is this session's: it, and no other, is told of the end.
            await peer.ask_ok(ActOnTasks(0, Action.KILL, (task.id,)))
            await peer.expect(Ended)

    run(test())


def test_a_key_that_asks_too_often_is_refused_and_its_worker_is_not() -> None:
    (token, key), (other_token, other) = (make_key(Permission.ADMIN), make_key(Permission.ADMIN))

    async def test() -> None:
        access = Access([key, other])
        async with open_house(None, access=access, rate_per_s=1, rate_burst=3) as house:
            peer, second = await house.peer(token=token), await house.peer(token=token)
            await peer.ask_ok(JoinWorker(0, "w", ("q",)))
            for _ in range(3):
                await peer.ask_ok(Query(0, "stats"))
            # The limit is the key's, whatever the connection; nothing is submitted.
            refused = await second.ask(SubmitTasks(0, [spec()]))
            assert isinstance(refused, Nack)
            assert (refused.code, 0 < refused.retry_after_us <= 1_000_000) == ("rate_limited", True)
            for _ in range(10):
                await peer.ask_ok(Heartbeat(ref=0))
            stranger = await house.peer(token=other_token)
            await stranger.ask_ok(Query(0, "stats"))
            view = await stranger.ask_ok(Query(0, "tasks"))
            assert view["tasks"] == []

    run(test())


def test_what_administrators_do_is_in_the_audit_log_of_their_namespace() -> None:
    root_token, root = make_key(Permission.ADMIN)
    token, key = make_key(Permission.ADMIN, namespace="team")
    reader_token, reader = make_key(Permission.READ_TASKS, namespace="team")

    async def test() -> None:
        async with open_house(None, access=Access([root, key, reader])) as house:
            peer = await house.peer(namespace="team", token=token)
            await peer.ask_ok(Manage(0, "declare_queue", {"queue": "q"}))
            operator = await house.peer(token=root_token)
            await operator.ask_ok(Manage(0, "declare_queue", {"queue": "secret"}))
            low = await house.peer(namespace="team", token=reader_token)
            refused = await low.ask_no(Manage(0, "pause_queue", {"queue": "q"}))
            assert refused.code == "forbidden"
            assert (await low.ask_no(Query(0, "audit"))).code == "forbidden"
            mine = (await peer.ask_ok(Query(0, "audit")))["acts"]
            assert [(act["what"], act["outcome"]) for act in mine] == [
                ("pause_queue", "forbidden"),
                ("declare_queue", "done"),
            ]
            assert mine[1]["origin"] == "127.0.0.1"
            assert mine[1]["by"].startswith(key.name)
            assert "secret" not in str(mine)
            first = await operator.ask_ok(Query(0, "audit", {"limit": 2}))
            assert len(first["acts"]) == 2
            rest = await operator.ask_ok(Query(0, "audit", {"cursor": first["cursor"]}))
            assert [act["namespace"] for act in rest["acts"]] == ["team"]

    run(test())


def test_a_tenant_is_not_told_of_other_namespaces() -> None:
    root_token, root = make_key(Permission.ADMIN)
    token, key = make_key(Permission.ADMIN, namespace="team")

    async def test() -> None:
        async with open_house(None, access=Access([root, key])) as house:
            operator = await house.peer(namespace="rivals", token=root_token)
            await operator.submit(spec())
            peer = await house.peer(namespace="team", token=token)
            await peer.submit(spec())
            names = [view["name"] for view in await peer.ask_ok(Query(0, "namespace_list"))]
            assert names == ["team"]
            texts = []
            for name in ("rivals", "nowhere"):
                refused = await peer.ask_no(Query(0, "namespace", {"name": name}))
                texts.append((refused.code, refused.message.replace(name, "x")))
                for what in ("declare_namespace", "delete_namespace"):
                    refused = await peer.ask_no(Manage(0, what, {"name": name}))
                    texts.append((refused.code, refused.message.replace(name, "x")))
            assert texts[:3] == texts[3:]
            assert (await peer.ask_ok(Query(0, "stats")))["sessions"] == 0

    run(test())
