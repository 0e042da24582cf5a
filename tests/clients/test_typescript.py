"""The TypeScript package: its own tests, and what it repeats of the protocol."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jackalope import Flow, Jackalope, group
from jackalope.core.effects import Assignment
from jackalope.core.refusals import Code
from jackalope.core.task import Options
from jackalope.tasks.references import EXTENSION
from jackalope.wire.frames import Kind
from jackalope.wire.messages import Query
from tests.clients.languages import LANGUAGES, TYPESCRIPT
from tests.doors.harness import run
from tests.doors.http.harness import Serving
from tests.doors.test_forwarding import pair

pytestmark = pytest.mark.skipif(
    bool(LANGUAGES["typescript"].why_not), reason=LANGUAGES["typescript"].why_not or "-"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    yield serving
    serving.stop()


def test_against_a_broker(broker: Serving) -> None:
    """Client and worker in one process: values, errors, progress, kills, refusals."""
    _node_test("broker", {"JACKALOPE_BROKER": f"jackalope://127.0.0.1:{broker.port}"})


def test_the_leader_of_a_cluster_is_followed() -> None:
    """A member that does not lead sends client and worker on, and hands nothing on itself."""
    language = LANGUAGES["typescript"]

    async def check() -> None:
        async with pair() as both:
            address = f"jackalope://127.0.0.1:{both.following.door.port}"
            environment = os.environ | {"JACKALOPE_BROKER": address}
            worker = await asyncio.create_subprocess_exec(*language.worker, env=environment)
            try:
                submit = await asyncio.create_subprocess_exec(
                    *language.submit, "abc", env=environment, stdout=subprocess.PIPE
                )
                out, _ = await asyncio.wait_for(submit.communicate(), 60)
            finally:
                worker.kill()
                await worker.wait()
            assert out == b"0 cba\n"
            assert both.forwarding.spliced["native"] == 0
            leading = await both.leading.peer()
            (queue,) = await leading.ask_ok(Query(0, "queues"))
            assert queue["queue"] == "demo"

    run(check())


_NODES = """
    import { NodeError, Reject, Worker } from "./dist/src/index.js";
    const size = (value) => (value instanceof NodeError ? value.type : value.length);
    await new Worker({
      queues: ["demo"],
      tasks: {
        mark: (_, text) => text + "!",
        sizes: ({ inputs }, values) => [values.map(size), inputs.map(({ node }) => node)],
        fail: () => { throw new Reject("no"); },
      },
    }).run();
"""


def test_results_of_a_flow_are_handed_on(broker: Serving) -> None:
    """A worker in TypeScript runs the nodes of a flow that was written in Python."""
    address = f"jackalope://127.0.0.1:{broker.port}"
    app = Jackalope(address)

    @app.task(name="mark", queue="demo")
    def mark(text: str) -> str:
        raise NotImplementedError(text)

    @app.task(name="sizes", queue="demo")
    def sizes(values: list[str]) -> list[object]:
        raise NotImplementedError(values)

    @app.task(name="fail", queue="demo")
    def fail() -> str:
        raise NotImplementedError

    worker = subprocess.Popen(
        ["node", "--input-type=module", "--eval", _NODES],
        cwd=TYPESCRIPT,
        env=os.environ | {"JACKALOPE_BROKER": address},
    )
    try:
        with app.sync as sync:
            marks = mark.step("a") >> mark.step() >> mark.step()
            assert sync(Flow("chain", marks).run(60)) == "a!!!"
            large = group(mark.step("ab"), mark.step("x" * 2_000_000))
            found = sync(Flow("join", large >> sizes.step()).run(60))
            assert found == [[3, 2_000_001], ["mark", "mark-2"]]
            some = sizes.step([fail.step().result, "abc"]).options(collect=True)
            assert sync(Flow("collect", some).run(60)) == [["Reject", 3], ["fail"]]
    finally:
        worker.kill()
        worker.wait()


def test_places_of_fields_are_those_of_the_protocol() -> None:
    source = (TYPESCRIPT / "src" / "worker.ts").read_text()
    fields = Options.__struct_fields__
    assert f"const ON_DEPENDENCY = {fields.index('on_dependency')};" in source
    assert f"const NODE = {fields.index('node')};" in source
    assert f"attempt.given[{Assignment.__struct_fields__.index('inputs')}]" in source
    assert f"const REFERENCE = {EXTENSION};" in (TYPESCRIPT / "src" / "msgpack.ts").read_text()


def test_parts() -> None:
    _node_test("msgpack", {})


def _node_test(name: str, variables: dict[str, str]) -> None:
    done = subprocess.run(
        ["node", "--test", f"dist/tests/{name}.test.js"],
        cwd=TYPESCRIPT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_messagepack_is_that_of_the_broker() -> None:
    """What it decodes and encodes again is byte for byte what another library has written."""
    values = [
        [None, True, 0, 127, 128, 2**16, 2**32, 2**53, 2**64 - 1, -1, -33, -(2**31), -(2**63)],
        [0.5, 1e300, "", "x" * 31, "x" * 32, "é€😀", b"", b"x" * 256, [[]], {"a": {"b": [1]}}],
    ]
    script = """
        import { decode, encode } from "./dist/src/msgpack.js";
        import { readFileSync } from "node:fs";
        for (const line of readFileSync(0, "utf8").split("\\n"))
          console.log(encode(decode(Buffer.from(line, "hex"))).toString("hex"));
    """
    lines = [msgspec.msgpack.encode(value).hex() for value in values]
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        cwd=TYPESCRIPT,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == lines


def test_codes_and_kinds_are_those_of_the_protocol() -> None:
    errors = (TYPESCRIPT / "src" / "errors.ts").read_text()
    (union,) = re.findall(r"export type RefusalCode =(.*?);", errors, re.DOTALL)
    assert re.findall(r'"(\w+)"', union) == [code.value for code in Code]
    frames = (TYPESCRIPT / "src" / "frames.ts").read_text()
    named = re.findall(r"^  ([A-Z]+): (\d+),", frames, re.MULTILINE)
    kinds = {name: int(number) for name, number in named}
    assert kinds.items() <= {kind.name: kind.value for kind in Kind}.items()


def test_package_has_no_dependencies_and_names_no_registry() -> None:
    package = msgspec.json.decode((TYPESCRIPT / "package.json").read_bytes())
    assert "dependencies" not in package
    assert "resolved" not in (TYPESCRIPT / "package-lock.json").read_text()


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_readme_compiles(tmp_path: Path) -> None:
    """Every program of the README is type-checked as it stands."""
    readme = (TYPESCRIPT / "README.md").read_text()
    programs = re.findall(r"(?s)^```ts\n(.*?)^```", readme, re.MULTILINE)
    assert programs
    folder = TYPESCRIPT / "dist" / "readme"
    folder.mkdir(exist_ok=True)
    for number, program in enumerate(programs):
        text = program.replace('"jackalope-client"', '"../src/index.js"')
        (folder / f"program{number}.ts").write_text(text + "\nexport {};\n")
    flags = "--ignoreConfig --noEmit --strict --module nodenext --types node --skipLibCheck"
    files = sorted(str(path) for path in folder.glob("*.ts"))
    done = subprocess.run(
        [str(TYPESCRIPT / "node_modules" / ".bin" / "tsc"), *flags.split(), *files],
        cwd=TYPESCRIPT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
