"""Make the stubs of the gRPC door from its proto: `python -m tests.doors.grpc.generate`.

The proto has the path that its package asks for, `jackalope/v1`. In Python that would be a package
of ours, so that what is generated imports itself from where it is.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[3]
DOOR = ROOT / "src/jackalope/doors/grpc"
PROTO_ROOT = DOOR / "proto"
PROTO = PROTO_ROOT / "jackalope/v1/jackalope.proto"
STUBS = DOOR / "stubs"

_PACKAGE = "jackalope.doors.grpc.stubs"


def generate() -> dict[str, str]:
    """Return the text of each generated module, by its name."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with TemporaryDirectory() as folder:
        kinds = ("python", "pyi", "grpc_python", "mypy_grpc")
        outputs = [f"--{kind}_out={'quiet:' * (kind == 'mypy_grpc')}{folder}" for kind in kinds]
        path = str(PROTO.relative_to(PROTO_ROOT))
        assert protoc.main(["protoc", f"-I{PROTO_ROOT}", f"-I{_known()}", *outputs, path]) == 0
        return {
            file.name: _ours(file.read_text()) for file in Path(folder, "jackalope/v1").iterdir()
        }


def descriptor() -> bytes:
    """Return the description of the proto, as protoc writes it."""
    with TemporaryDirectory() as folder:
        out = Path(folder, "descriptor.bin")
        arguments = ["protoc", f"-I{PROTO_ROOT}", f"-I{_known()}", f"--descriptor_set_out={out}"]
        assert protoc.main([*arguments, str(PROTO.relative_to(PROTO_ROOT))]) == 0
        return out.read_bytes()


def _known() -> Path:
    """Return the folder of the protos that come with protoc."""
    return Path(protoc.__file__).parent / "_proto"


def _ours(text: str) -> str:
    text = text.replace("from jackalope.v1 import", f"from {_PACKAGE} import")
    return text.replace("'jackalope.v1.jackalope_pb2'", f"'{_PACKAGE}.jackalope_pb2'")


if __name__ == "__main__":
    for name, text in generate().items():
        (STUBS / name).write_text(text)
