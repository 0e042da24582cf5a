"""Records: what is written once must read the same for ever."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.audit import Act
from jackalope.core.lifecycle import Event, Reason, State
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy
from jackalope.core.records import (
    LEVEL,
    SINCE,
    ActNoted,
    AnswerPinned,
    AnswersDropped,
    AnswerStored,
    AnswerUsed,
    AnyRecord,
    ApiKeyCreated,
    ApiKeyRevoked,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    Bound,
    ContractDeclared,
    ContractDeleted,
    EventSent,
    ExchangeDeclared,
    ExchangeDeleted,
    FencesReserved,
    FlowFailed,
    FlowStopped,
    Forgotten,
    GroupPinned,
    GroupsClosed,
    InputsChanged,
    NamespaceDeclared,
    NamespaceDeleted,
    NewerFormat,
    PoolDeclared,
    PoolDeleted,
    QueueDeclared,
    QueueDeleted,
    QueuePaused,
    QueueResumed,
    RequestJoined,
    RuleCleared,
    RuleSet,
    ScheduleDeclared,
    ScheduleDeleted,
    ScheduleFired,
    ScheduleOrphaned,
    SchedulePaused,
    ScheduleResumed,
    SignalAdvanced,
    SignalRequested,
    SlotsMissed,
    StepRecorded,
    TagLimited,
    TaskMoved,
    TaskPurged,
    TaskReplaced,
    TaskRevived,
    TasksDropped,
    TaskSubmitted,
    ThrottlesEnded,
    Unbound,
    WaitBegan,
    decode_batch,
    encode_batch,
)
from jackalope.core.records.limits import BucketsFilled, GatesClosed, LimitDeleted, LimitSet
from jackalope.core.shapes.contract import Contract, Parameter, ParameterKind
from jackalope.core.shapes.exchange import (
    AmqpTraits,
    AppliesTo,
    Binding,
    Exchange,
    Kind,
    Overflow,
    Rule,
)
from jackalope.core.shapes.flow import Input
from jackalope.core.shapes.limit import LimitSettings, OnFull
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import Same, StoredAnswer
from jackalope.core.shapes.schedule import CatchUp, Missed, Overlap, RunKind, ScheduleSettings
from jackalope.core.state.apply import APPLIERS
from jackalope.core.task import (
    Attempt,
    BlobRef,
    Envelope,
    Error,
    HistoryEntry,
    OnDependency,
    Options,
    Outcome,
    Retry,
    Signal,
    SignalRequest,
    Stage,
    TaskRow,
    TaskSpec,
)
from tests.core import shapes
from tests.core.driving import task_id
from tests.profiles import examples

KINDS: tuple[type, ...] = get_args(AnyRecord)

OPTIONS = Options(
    alias="alias",
    headers={"trace": "abc", "deep": [1, 2.5, None, True, b"raw"]},
    tags=("red", "blue"),
    run_at_us=11,
    expires_at_us=12,
    timeout_us=13,
    retry=Retry(4, 5, 1.5, 6),
    depends_on=(task_id(2), task_id(3)),
    on_dependency=OnDependency.RUN,
    parent=task_id(4),
    held=True,
    same=Same.REFRESH,
    version="v2",
    identity=b"i" * 32,
)

PACED = Options(pace=Pace(Pacing.DEBOUNCE, "k", 5, 60, True))

ENVELOPE = Envelope("exchange", "key", b"\x10\x00\x02")

TRAITS = AmqpTraits(
    durable=False,
    auto_delete=True,
    owner=1,
    arguments={"x-expires": 2},
    rule="rule",
    dead_letter_exchange="dead",
    dead_letter_key="letters",
    overflow=Overflow.REJECT,
    bytes_max=3,
    expires_us=4,
    priority_max=5,
    single_active=True,
)

INPUT = Input("a", task_id(2), State.DEAD, BlobRef("blob", 70_000), Error("E", "message", "trace"))

EXCHANGE = Exchange("exchange", Kind.TOPIC, False, True, True, {"a": 1}, "other", "rule")

BINDING = Binding("exchange", "q", True, "key", {"a": 1})

ROW = TaskRow(
    id=task_id(1),
    namespace="world",
    queue="q",
    name="name",
    key="key",
    priority=200,
    payload=BlobRef("blob", 70_000),
    options=OPTIONS,
    state=State.READY,
    by="ada",
    created_us=1,
    batch=2,
    rank=3,
    penalty=4,
    due_us=5,
    expires_us=6,
    waiting_for=(task_id(2),),
    failures=7,
    crashes=8,
    interruptions=9,
    attempts=10,
    guardian=task_id(4),
    avoid="w1",
    attempt=Attempt(11, "w2", 12, 13, SignalRequest(Signal.KILL, "ada", 14, Stage.DELIVERED)),
    outcome=Outcome(b"result", Error("E", "message", "trace"), Reason.FAILED, 15, 16),
    history=[HistoryEntry(17, "kill", "ada", "detail")],
    envelope=ENVELOPE,
)

SCHEDULE = ScheduleSettings(
    queue="q",
    task="report",
    key="k",
    priority=200,
    payload=b"body",
    headers={"h": 1},
    tags=("t",),
    timeout_us=1,
    time_to_live_us=2,
    retry=Retry(3, 4, 5.0, 6),
    same=Same.UNIQUE,
    version="v2",
    cron="0 3 * * *",
    zone="Europe/Berlin",
    every_us=7,
    times=(8, 9),
    start=10,
    end=11,
    jitter_us=12,
    overlap=Overlap.WAIT,
    catch_up=CatchUp.ALL,
    catch_up_within_us=13,
)

CONTRACT = Contract(
    version="1",
    parameters=(Parameter("a", ParameterKind.NAME, {"type": "string"}, default="x"),),
    doc="what it does",
)

#: One of every kind, with no field left at its default.
EVERY: list[AnyRecord] = [
    QueueDeclared(100, "world", "q", PRESETS["aiida"], "ada", TRAITS),
    QueueDeleted(101, "world", "q", "ada", True),
    QueuePaused(102, "world", "q", "ada", True),
    QueueResumed(103, "world", "q", "ada", True),
    TagLimited(104, "world", "red", 3, "ada"),
    TaskSubmitted(
        105,
        "world",
        TaskSpec(task_id(1), "q", "name", "key", 200, b"payload", OPTIONS),
        State.WAITING,
        "ada",
        7,
        106,
        (task_id(2),),
        ENVELOPE,
    ),
    TaskMoved(107, task_id(1), Event.ABANDON, State.DEAD, "ada", Reason.DEPENDENCY, "detail"),
    TaskRevived(108, ROW, "ada"),
    TaskPurged(109, task_id(1), "ada"),
    AttemptAssigned(110, task_id(1), 2**40, "w"),
    AttemptStarted(111, task_id(1)),
    AttemptFinished(112, task_id(1), BlobRef("blob", 70_000)),
    AttemptEnded(
        113,
        task_id(1),
        Event.FAIL,
        State.SCHEDULED,
        Reason.FAILED,
        Error("E", "message", "trace"),
        114,
        "ada",
        "silent",
    ),
    SignalRequested(115, task_id(1), Signal.TIMEOUT, "ada"),
    SignalAdvanced(116, task_id(1), Stage.ACKNOWLEDGED, "detail"),
    ApiKeyCreated(
        117,
        ApiKey(
            "a1",
            "0f" * 32,
            "ada",
            (Permission.SUBMIT_TASKS, Permission.WORK),
            ("q",),
            "world",
            118,
            117,
            "root",
        ),
    ),
    ApiKeyRevoked(119, "a1", "ada"),
    RequestJoined(120, task_id(1), "ada"),
    AnswerStored(
        121,
        StoredAnswer(
            "world",
            "q",
            b"i" * 32,
            task_id(1),
            "name",
            "v2",
            "w",
            State.DEAD,
            122,
            123,
            124,
            125,
            126,
            127,
            "ben",
            "ada",
        ),
    ),
    AnswerUsed(128, task_id(1), "ada"),
    AnswerPinned(129, task_id(1), "ada"),
    AnswersDropped(130, (task_id(1), task_id(2)), "evicted", "ada"),
    PoolDeclared(
        130, "world", "q", PoolSettings("local", "v1", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), "ada"
    ),
    PoolDeleted(131, "world", "q", "ada"),
    GroupPinned(132, "world", "q", "infra=42", True, "ada"),
    TasksDropped(120, [task_id(1)]),
    ExchangeDeclared(121, "world", EXCHANGE, "ada"),
    ExchangeDeleted(122, "world", "exchange", "ada", True),
    Bound(123, "world", BINDING, True),
    Unbound(124, "world", BINDING, True),
    RuleSet(125, "world", Rule("rule", "^q", {"a": 1}, 2, AppliesTo.QUEUES), "ada"),
    RuleCleared(126, "world", "rule", "ada"),
    FencesReserved(127, 2**20),
    Forgotten(128, 100),
    ScheduleDeclared(129, "world", "nightly", SCHEDULE, 130, 131, "tasks:app", "ada"),
    ScheduleDeleted(132, "world", "nightly", "ada"),
    SchedulePaused(133, "world", "nightly", "ada"),
    ScheduleResumed(134, "world", "nightly", 135, "ada"),
    ScheduleOrphaned(136, "world", "nightly"),
    ScheduleFired(137, "world", "nightly", 138, 139, task_id(1), RunKind.BACKFILL, "ada", 140),
    SlotsMissed(140, "world", "nightly", 141, 142, 143, Missed.REFUSED, "detail"),
    StepRecorded(129, task_id(1), 1, "charge", b"paid", "approved", 2, True),
    WaitBegan(130, task_id(1), 2, "sleep", "approved", 140),
    EventSent(131, task_id(1), "approved", b"yes", "ada"),
    InputsChanged(144, task_id(1), ((145, INPUT),), (task_id(2),)),
    GroupsClosed(146, task_id(1), ("pages",), "ada"),
    FlowFailed(147, task_id(1), task_id(2), "detail"),
    FlowStopped(148, task_id(1), State.DEAD, Reason.EXPIRED, "ada", "detail"),
    TaskReplaced(
        132,
        task_id(1),
        TaskSpec(task_id(2), "q", "name", "key", 200, b"later", PACED),
        State.SCHEDULED,
        133,
        134,
        "ada",
    ),
    ThrottlesEnded(135, "world", ('["q","name","k"]',)),
    ContractDeclared(149, "world", "q", "name", (CONTRACT,), "ada"),
    ContractDeleted(150, "world", "q", "name", "ada"),
    NamespaceDeclared(136, "world", NamespaceSettings("text", 2, 3, 4, 5, 6, 7, 8, 9), "ada"),
    NamespaceDeleted(137, "world", "ada"),
    LimitSet(
        150,
        "world",
        "per-user",
        LimitSettings("q", "name", ("user",), 2, 5, 60, 7, 3, "tokens", OnFull.CANCEL_NEWEST),
        "ada",
    ),
    LimitDeleted(151, "world", "per-user", "ada"),
    GatesClosed(152, "world", ('["per-user","7"]',), 160, "w1"),
    BucketsFilled(153, "world", ('["per-user","7"]',)),
    ActNoted(138, Act("pause_queue", "ada", "world", "queue q", "127.0.0.1", "forbidden")),
]


def type_name(value: object) -> str:
    return type(value).__name__


#: Those that level 1 has; all later kinds stand at the end, in the order of their levels.
FIRST = [record for record in EVERY if type(record) not in SINCE]

#: `FIRST` as level 1 has always encoded it. If a change makes this fail, it changes what old
#: journals mean: add fields at the end, or raise LEVEL and keep reading the old one.
GOLDEN = bytes.fromhex(
    "9201dc002097a5717565756564a5776f726c64a171de0019a76f6e5f6c6f7374a57061757365aa6f6e5f7265"
    "7374617274a46b656570b0726573746172745f67726163655f7573ce01312d00a77265747269657300ad7265"
    "7472795f626173655f7573ce004c4b40ac72657472795f666163746f72cb4000000000000000ac7265747279"
    "5f6361705f7573ced693a400ab63726173685f6c696d697405b2696e74657272757074696f6e5f6c696d6974"
    "00b37072656665725f6f746865725f776f726b6572c3ad7072696f726974795f64726f7000a9616765696e67"
    "5f757300af74696d655f746f5f6c6976655f757300aa74696d656f75745f757300ab64657074685f6c696d69"
    "74ce000186a0aa62617463685f73697a6564ac726574656e74696f6e5f757300ae726573756c745f6265636f"
    "6d6573a0a468656c64c3a4646f6e65a970726f636573736564ae737475636b5f61667465725f757300a47361"
    "6d65a372756ea863616368655f7573ced693a400ad63616368655f656e7472696573cd2710ab63616368655f"
    "6279746573ce10000000a36164619dc2c30181a9782d6578706972657302a472756c65a464656164a76c6574"
    "74657273ae72656a6563742d7075626c697368030405c3c096a7756e717565756565a5776f726c64a171a361"
    "6461c396a671706175736566a5776f726c64a171a3616461c396a771726573756d6567a5776f726c64a171a3"
    "616461c396a56c696d697468a5776f726c64a372656403a36164619aa67375626d697469a5776f726c6497c4"
    "1000000000000170008000000000000000a171a46e616d65a36b6579ccc8c4077061796c6f61649ea5616c69"
    "617382a57472616365a3616263a4646565709501cb4004000000000000c0c3c40372617792a3726564a4626c"
    "75650b0c0d940405cb3ff80000000000000692c41000000000000270008000000000000000c4100000000000"
    "0370008000000000000000a372756ec41000000000000470008000000000000000c3a772656672657368a276"
    "32c4206969696969696969696969696969696969696969696969696969696969696969a777616974696e67a3"
    "616461076a91c4100000000000027000800000000000000093a865786368616e6765a36b6579c40310000298"
    "a46d6f76656bc41000000000000170008000000000000000a76162616e646f6ea464656164a3616461aa6465"
    "70656e64656e6379a664657461696c94a67265766976656cdc001bc410000000000001700080000000000000"
    "00a5776f726c64a171a46e616d65a36b6579ccc893a4626c6f62ce00011170a09ea5616c69617382a5747261"
    "6365a3616263a4646565709501cb4004000000000000c0c3c40372617792a3726564a4626c75650b0c0d9404"
    "05cb3ff80000000000000692c41000000000000270008000000000000000c410000000000003700080000000"
    "00000000a372756ec41000000000000470008000000000000000c3a772656672657368a27632c42069696969"
    "69696969696969696969696969696969696969696969696969696969a57265616479a3616461010203040506"
    "91c410000000000002700080000000000000000708090ac41000000000000470008000000000000000a27731"
    "960ba277320c0d94a46b696c6ca36164610ea964656c6976657265640095c406726573756c7493a145a76d65"
    "7373616765a57472616365a66661696c65640f10919411a46b696c6ca3616461a664657461696c93a8657863"
    "68616e6765a36b6579c403100002a361646194a570757267656dc41000000000000170008000000000000000"
    "a361646195a661737369676e6ec41000000000000170008000000000000000cf0000010000000000a17793a5"
    "73746172746fc4100000000000017000800000000000000094a666696e69736870c410000000000001700080"
    "0000000000000093a4626c6f62ce00011170a09aa3656e6471c41000000000000170008000000000000000a4"
    "6661696ca97363686564756c6564a66661696c656493a145a76d657373616765a5747261636572a3616461a6"
    "73696c656e7495a67369676e616c73c41000000000000170008000000000000000a774696d656f7574a36164"
    "6195a5737461676574c41000000000000170008000000000000000ac61636b6e6f776c6564676564a6646574"
    "61696c93a36b65797589a26964a26131a468617368d940306630663066306630663066306630663066306630"
    "66306630663066306630663066306630663066306630663066306630663066306630663066306630663066a4"
    "6e616d65a3616461ab7065726d697373696f6e7392ac7375626d69745f7461736b73a4776f726ba671756575"
    "657391a171a96e616d657370616365a5776f726c64aa657870697265735f757376aa637265617465645f7573"
    "75a26279a4726f6f7494a5756e6b657977a26131a361646194a66a6f696e656478c410000000000001700080"
    "00000000000000a361646193a6616e7377657279dc0010a5776f726c64a171c4206969696969696969696969"
    "696969696969696969696969696969696969696969c41000000000000170008000000000000000a46e616d65"
    "a27632a177a4646561647a7b7c7d7e7fa362656ea361646194a3686974cc80c4100000000000017000800000"
    "0000000000a361646194a370696ecc81c41000000000000170008000000000000000a361646195a8756e616e"
    "73776572cc8292c41000000000000170008000000000000000c41000000000000270008000000000000000a7"
    "65766963746564a361646196a4706f6f6ccc82a5776f726c64a1718da86c61756e63686572a56c6f63616ca7"
    "76657273696f6ea27631ab776f726b6572735f6d696e01ab776f726b6572735f6d617802b07461736b735f70"
    "65725f776f726b657203a673706172657304aa67726f7570735f6d617805af756e62696e645f64656c61795f"
    "757306ad73746f705f64656c61795f757307af736872696e6b5f64656c61795f757308af636c6561725f7769"
    "7468696e5f757309b073746172745f74696d656f75745f75730aad73746f705f67726163655f75730ba36164"
    "6195a6756e706f6f6ccc83a5776f726c64a171a361646197a46770696ecc84a5776f726c64a171a8696e6672"
    "613d3432c3a361646193a464726f707891c4100000000000017000800000000000000095a865786368616e67"
    "6579a5776f726c6499a865786368616e6765a865786368616e6765a5746f706963c2c3c381a16101a56f7468"
    "6572a472756c65a361646196aa756e65786368616e67657aa5776f726c64a865786368616e6765a3616461c3"
    "95a462696e647ba5776f726c6496a762696e64696e67a865786368616e6765a171c3a36b657981a16101c395"
    "a6756e62696e647ca5776f726c6496a762696e64696e67a865786368616e6765a171c3a36b657981a16101c3"
    "95a472756c657da5776f726c6496a472756c65a472756c65a25e7181a1610102a6717565756573a361646195"
    "a6756e72756c657ea5776f726c64a472756c65a3616461"
)

#: The kinds that level 2 has brought.
GOLDEN_2 = bytes.fromhex("92029293a666656e6365737fce0010000093a6666f72676574cc8064")

#: The kinds that level 3 has brought.
GOLDEN_3 = bytes.fromhex(
    "92039a99a87363686564756c65cc81a5776f726c64a76e696768746c79de0016a57175657565a171a4746173"
    "6ba67265706f7274a36b6579a16ba87072696f72697479ccc8a77061796c6f6164c404626f6479a768656164"
    "65727381a16801a47461677391a174aa74696d656f75745f757301af74696d655f746f5f6c6976655f757302"
    "a57265747279940304cb401400000000000006a473616d65a6756e69717565a776657273696f6ea27632a463"
    "726f6ea9302033202a202a202aa47a6f6e65ad4575726f70652f4265726c696ea865766572795f757307a574"
    "696d6573920809a573746172740aa3656e640ba96a69747465725f75730ca76f7665726c6170a477616974a8"
    "63617463685f7570a3616c6cb263617463685f75705f77697468696e5f75730dcc82cc83a97461736b733a61"
    "7070a361646195aa756e7363686564756c65cc84a5776f726c64a76e696768746c79a361646195a873636870"
    "61757365cc85a5776f726c64a76e696768746c79a361646196a9736368726573756d65cc86a5776f726c64a7"
    "6e696768746c79cc87a361646194a66f727068616ecc88a5776f726c64a76e696768746c7999a466697265cc"
    "89a5776f726c64a76e696768746c79cc8acc8bc41000000000000170008000000000000000a86261636b6669"
    "6c6ca361646199a46d697373cc8ca5776f726c64a76e696768746c79cc8dcc8ecc8fa772656675736564a664"
    "657461696c99a473746570cc81c4100000000000017000800000000000000001a6636861726765c404706169"
    "64a8617070726f76656402c397a477616974cc82c4100000000000017000800000000000000002a5736c6565"
    "70a8617070726f766564cc8c96a56576656e74cc83c41000000000000170008000000000000000a861707072"
    "6f766564c403796573a3616461"
)

#: Each kind that level 5 has brought.
GOLDEN_5 = {
    "ContractDeclared": (
        "92059197a8636f6e7472616374cc95a5776f726c64a171a46e616d659183a776657273696f6ea131aa706172"
        "616d65746572739184a46e616d65a161a46b696e64a46e616d65a6736368656d6181a474797065a673747269"
        "6e67a764656661756c74a178a3646f63ac7768617420697420646f6573a3616461"
    ),
    "ContractDeleted": "92059196aa756e636f6e7472616374cc96a5776f726c64a171a46e616d65a3616461",
    "NamespaceDeclared": (
        "92059195a26e73cc88a5776f726c6489ab6465736372697074696f6ea474657874a677656967687402ac7461"
        "736b735f71756575656403ac62797465735f73746f72656404b27375626d6974735f7065725f7365636f6e64"
        "05ad7375626d6974735f627572737406a7776f726b65727307a86170695f6b65797308b3636f6e6375727265"
        "6e745f617474656d70747309a3616461"
    ),
    "NamespaceDeleted": ("92059194a4756e6e73cc89a5776f726c64a3616461"),
    "LimitSet": (
        "92059196a86b65796c696d6974cc96a5776f726c64a87065722d757365728aa57175657565a171a47461736b"
        "a46e616d65a46b65797391a475736572ab636f6e63757272656e637902a47261746505a67065725f75733ca5"
        "627572737407a4636f737403a8636f73745f6b6579a6746f6b656e73a76f6e5f66756c6cad63616e63656c5f"
        "6e6577657374a3616461"
    ),
    "LimitDeleted": ("92059195aa756e6b65796c696d6974cc97a5776f726c64a87065722d75736572a3616461"),
    "GatesClosed": (
        "92059196a473687574cc98a5776f726c6491b05b227065722d75736572222c2237225dcca0a27731"
    ),
    "BucketsFilled": ("92059194a666696c6c6564cc99a5776f726c6491b05b227065722d75736572222c2237225d"),
    "ActNoted": (
        "92059193a3616374cc8a96ab70617573655f7175657565a3616461a5776f726c64a771756575652071a93132"
        "372e302e302e31a9666f7262696464656e"
    ),
}

#: The kinds that level 4 has brought.
GOLDEN_4 = bytes.fromhex(
    "92049695a6696e70757473cc90c410000000000001700080000000000000009192cc9196a161c41000000000"
    "000270008000000000000000a46465616493a4626c6f62ce00011170a093a145a76d657373616765a5747261"
    "6365a091c4100000000000027000800000000000000095a5636c6f7365cc92c4100000000000017000800000"
    "000000000091a57061676573a361646195a6756e666c6f77cc93c41000000000000170008000000000000000"
    "c41000000000000270008000000000000000a664657461696c97a473746f70cc94c410000000000001700080"
    "00000000000000a464656164a765787069726564a3616461a664657461696c98a77265706c616365cc84c410"
    "0000000000017000800000000000000097c41000000000000270008000000000000000a171a46e616d65a36b"
    "6579ccc8c4056c61746572dc0012a08090000000c090a464656164c400c2c0a0c400c0c095a86465626f756e"
    "6365a16b053cc390a97363686564756c6564cc85cc86a361646194aa756e7468726f74746c65cc87a5776f72"
    "6c6491b05b2271222c226e616d65222c226b225d"
)

records = st.one_of([shapes.of(kind) for kind in KINDS])


# Encoding and decoding.


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_survives_encoding(kind: type) -> None:
    @settings(max_examples=examples(30))
    @given(shapes.of(kind))
    def check(record: Any) -> None:
        decoded = decode_batch(encode_batch([record]))
        assert decoded == [record]
        assert type(decoded[0]) is kind

    check()


@settings(max_examples=examples(50))
@given(st.lists(records, max_size=6))
def test_a_batch_survives_encoding_in_order(batch: list[AnyRecord]) -> None:
    body = encode_batch(batch)
    assert decode_batch(body) == batch
    assert encode_batch(decode_batch(body)) == body


def test_every_kind_of_record_has_a_meaning_and_its_own_tag() -> None:
    assert set(APPLIERS) == set(KINDS)
    tags = [msgspec.inspect.type_info(kind).tag for kind in KINDS]  # type: ignore[attr-defined]
    assert len(set(tags)) == len(tags)


def test_golden_batch_has_every_kind_with_every_field() -> None:
    assert [type(record) for record in EVERY] == list(KINDS)
    for record in EVERY:
        for field in msgspec.structs.fields(record):
            if not field.required:
                assert getattr(record, field.name) != field.default, (record, field.name)


def test_golden_batch_encodes_as_ever() -> None:
    """But for what later versions have at the end of rows and options, and older ones pass over."""
    level, batch = msgspec.msgpack.decode(encode_batch(FIRST, level=1))
    rows = [record[2] for record in batch if record[0] == "revive"]
    # Fields of a policy at their defaults were written, and no longer are.
    fields = Policy.__struct_fields__
    names = fields[: fields.index("retry_jitter")]
    for record in batch:
        if record[0] == "queue":
            record[4] = {**{name: getattr(DEFAULT_POLICY, name) for name in names}, **record[4]}
    assert [(row.pop(), row.pop(), row.pop()) for row in rows] == [([], None, None)]
    options = [record[3][6] for record in batch if record[0] == "submit"]
    options += [row[7] for row in rows]
    for each in options:
        del each[14:]
    assert msgspec.msgpack.encode((level, batch)).hex() == GOLDEN.hex()


def test_golden_batch_decodes_as_ever() -> None:
    assert decode_batch(GOLDEN) == FIRST


def test_later_kinds_encode_as_ever() -> None:
    """But for the fields that came after them."""
    for level, golden in ((2, GOLDEN_2), (3, GOLDEN_3), (4, GOLDEN_4)):
        kinds = [record for record in EVERY if SINCE.get(type(record)) == level]
        _, batch = msgspec.msgpack.decode(encode_batch(kinds, level))
        for record in batch:
            if record[0] == "fire":
                del record[9:]
            elif record[0] == "replace":
                del record[3][6][18:]
        assert msgspec.msgpack.encode((level, batch)).hex() == golden.hex()
        before = [_as_at_first(record) for record in kinds]
        assert decode_batch(golden) == before


def _as_at_first(record: AnyRecord) -> AnyRecord:
    """Return a record without the fields that came after its kind."""
    if isinstance(record, ScheduleFired):
        return msgspec.structs.replace(record, after_us=-1)
    return record


@pytest.mark.parametrize("record", [r for r in EVERY if SINCE.get(type(r)) == 5], ids=type_name)
def test_kinds_of_level_5_encode_as_ever(record: AnyRecord) -> None:
    golden = GOLDEN_5[type_name(record)]
    assert encode_batch([record], 5).hex() == golden
    assert decode_batch(bytes.fromhex(golden)) == [record]


def test_a_policy_without_its_later_fields_reads_with_defaults() -> None:
    """A queue that an older version declared has fewer fields in its policy."""
    version, (whole,) = msgspec.msgpack.decode(encode_batch(EVERY[:1]))
    assert "stuck_after_us" not in whole[4]  # At its default.
    assert decode_batch(msgspec.msgpack.encode((version, [whole]))) == EVERY[:1]


@pytest.mark.parametrize("record", EVERY, ids=lambda record: type(record).__name__)
def test_a_record_without_its_later_fields_reads_with_defaults(record: AnyRecord) -> None:
    """A journal of an older version has fewer fields at the end."""
    kind = type(record)
    fields = msgspec.structs.fields(kind)
    required = sum(field.required for field in fields)
    version, (whole,) = msgspec.msgpack.decode(encode_batch([record]))
    for length in range(required, len(fields) + 1):
        (decoded,) = decode_batch(msgspec.msgpack.encode((version, [whole[: 1 + length]])))
        for number, field in enumerate(fields):
            if number < length:
                assert getattr(decoded, field.name) == getattr(record, field.name)
            else:
                assert getattr(decoded, field.name) == field.default
    with pytest.raises(msgspec.DecodeError):
        decode_batch(msgspec.msgpack.encode((version, [whole[:required]])))


# What is not a batch.


@pytest.mark.parametrize("body", [[], [["unheard of", 1, 2]], {"new": "shape"}, None, EVERY])
@pytest.mark.parametrize("version", [LEVEL + 1, LEVEL + 100])
def test_a_newer_level_is_refused_by_name(version: int, body: object) -> None:
    """Whatever stands in it: what can be read today may mean something else tomorrow."""
    with pytest.raises(NewerFormat, match=str(version)):
        decode_batch(msgspec.msgpack.encode((version, body)))


def test_a_newer_level_is_not_mistaken_for_damage() -> None:
    assert not issubclass(NewerFormat, msgspec.DecodeError)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        GOLDEN[:-1],
        GOLDEN + b"\x00",
        msgspec.msgpack.encode(1),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([LEVEL]),
        msgspec.msgpack.encode([LEVEL, [["unheard of", 1]]]),
        msgspec.msgpack.encode(["one", []]),
        msgspec.msgpack.encode([LEVEL, [], []]),
        msgspec.msgpack.encode([LEVEL, [["start", "soon", b""]]]),
    ],
)
def test_damage_is_found(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_batch(body)


@settings(max_examples=examples(300))
@given(st.binary(max_size=60))
def test_garbage_is_found(body: bytes) -> None:
    try:
        decode_batch(body)
    except (msgspec.DecodeError, NewerFormat):
        return
    assert msgspec.msgpack.decode(body)[0] <= LEVEL


@settings(max_examples=examples(500))
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_found_or_harmless(place: int, flip: int) -> None:
    """Checksums are the journal's; here nothing worse than a decode error may come of it."""
    body = bytearray(GOLDEN)
    body[place % len(body)] ^= flip
    try:
        decode_batch(bytes(body))
    except (msgspec.DecodeError, NewerFormat):
        return
