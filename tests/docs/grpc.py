"""What the page on gRPC says that follows from the proto: the services and their methods.

It is read as text: the page can be checked where gRPC is not installed.
"""

import re
from pathlib import Path

from tests.docs.blocks import Table

PROTO = (
    Path(__file__).resolve().parents[2]
    / "src/jackalope/doors/grpc/proto/jackalope/v1/jackalope.proto"
)

_METHOD = re.compile(
    r"((?:  //[^\n]*\n)+)  rpc (\w+)\((stream )?\w+\) returns \((stream )?\w+\);", re.MULTILINE
)
_SERVICE = re.compile(r"^service (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)

_KINDS = {
    (False, False): "one answer",
    (False, True): "a stream of answers",
    (True, False): "a stream of messages, one answer",
    (True, True): "streams both ways",
}


def methods() -> Table:
    rows = []
    for service in _SERVICE.finditer(PROTO.read_text()):
        for method in _METHOD.finditer(service[2]):
            comment = " ".join(line.strip().removeprefix("// ") for line in method[1].splitlines())
            kind = _KINDS[bool(method[3]), bool(method[4])]
            rows.append((f"`{service[1]}.{method[2]}`", kind, comment))
    return Table(("method", "kind", "what it does"), rows)


GRPC = {"methods": methods}
