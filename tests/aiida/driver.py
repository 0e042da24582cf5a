"""The driver: a program of AiiDA's environment that does with a profile what a test asks for.

Loads the profile once. Takes a JSON list on each line of the standard input, the name of a function
below and its arguments, and answers with a line of JSON.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiida import load_profile, orm
from aiida.cmdline.commands.cmd_verdi import verdi
from aiida.engine import ProcessState, submit
from aiida.engine.daemon.client import get_daemon_client
from aiida.manage import get_manager
from aiida.manage.configuration import create_profile, get_config, reset_config
from aiida.plugins import CalculationFactory, WorkflowFactory
from click.testing import CliRunner

from jackalope.cli.app import run as run_jackalope
from jackalope.core.commands import DEFAULT_NAMESPACE

PROFILE = "lab"

#: Notes that it ran, and waits until the gate is open.
_CODE = """#!/bin/bash
echo "$PWD" >> {folder}/runs.log
while [ ! -e {folder}/gate ]; do sleep 0.2; done
exec bash "$@"
"""


def make_profile(backend: str, broker_config: dict[str, Any]) -> None:
    """Make a profile."""
    config = get_config(create=True)
    create_profile(
        config,
        name=PROFILE,
        email="lab@example.org",
        storage_backend="core.sqlite_dos",
        storage_config={},
        broker_backend=backend,
        broker_config=broker_config,
    )
    config.set_default_profile(PROFILE)
    # A slow machine is no fault of the broker. The daemon looks at the profile's own options alone.
    config.set_option("daemon.timeout", 60, scope=PROFILE)
    config.set_option("broker.task_timeout", 120, scope=PROFILE)
    config.set_option("runner.poll.interval", 2, scope=PROFILE)
    config.set_option("daemon.default_workers", 2, scope=PROFILE)
    config.store()


def furnish(folder: str) -> None:
    """Load the profile as it is by now; add a computer, and a code that counts how often it ran."""
    reset_config()
    load_profile(PROFILE)
    # `jackalope aiida use` may have added it.
    _, computer = orm.Computer.collection.get_or_create(
        label="localhost",
        hostname="localhost",
        transport_type="core.local",
        scheduler_type="core.direct",
    )
    computer.set_workdir(f"{folder}/work")
    computer.store()
    computer.set_minimum_job_poll_interval(0.5)
    computer.set_default_mpiprocs_per_machine(1)
    computer.configure(safe_interval=0.0)
    script = Path(folder) / "add.sh"
    script.write_text(_CODE.format(folder=folder))
    script.chmod(0o755)
    orm.InstalledCode(label="add", computer=computer, filepath_executable=str(script)).store()


def submit_adds(number: int) -> list[int]:
    """Submit calculations, and return their pks."""
    add, code = CalculationFactory("core.arithmetic.add"), orm.load_code("add@localhost")
    return [submit(add, x=orm.Int(n), y=orm.Int(1), code=code).pk for n in range(number)]


def submit_chains(number: int) -> list[int]:
    """Submit work chains, each of which runs one calculation, and return their pks."""
    chain, code = WorkflowFactory("core.arithmetic.multiply_add"), orm.load_code("add@localhost")
    return [
        submit(chain, x=orm.Int(n), y=orm.Int(2), z=orm.Int(1), code=code).pk for n in range(number)
    ]


def states(pks: list[int]) -> list[str]:
    """Return the states of processes: what is asked for again and again must cost little."""
    get_manager().get_profile_storage().get_session().commit()  # What was read before is over.
    query = orm.QueryBuilder().append(
        orm.ProcessNode, filters={"id": {"in": pks}}, project="attributes.process_state"
    )
    return [state or "" for state in query.all(flat=True)]


def look(pks: list[int]) -> list[dict[str, Any]]:
    """Say how processes are, and all that they called."""
    get_manager().get_profile_storage().get_session().commit()  # What was read before is over.
    return [_describe(orm.load_node(pk)) for pk in pks]


def end(pk: int) -> None:
    """Have AiiDA's database say that a process was killed, and nothing else know it."""
    node = orm.load_node(pk)
    node.set_process_state(ProcessState.KILLED)
    node.seal()


def _describe(node: Any) -> dict[str, Any]:
    is_calculation = isinstance(node, orm.CalcJobNode)
    state = node.get_state() if is_calculation else None
    return {
        "pk": node.pk,
        "state": node.process_state.value if node.process_state else "",
        "exit": node.exit_status,
        "paused": bool(node.paused),
        "remote": node.get_remote_workdir() if is_calculation else "",
        "job": state.value if state else "",
        "called": [_describe(child) for child in node.called],
    }


def start_daemon(number: int) -> None:
    """Start the daemon with so many workers, as `verdi daemon start` does."""
    get_daemon_client().start_daemon(number)


def access() -> dict[str, str]:
    """Return what lets Jackalope's commands look at the profile: `jackalope aiida env`, at once."""
    address = get_manager().get_broker().access()
    return {
        "JACKALOPE_BROKER": str(replace(address, namespace=DEFAULT_NAMESPACE)),
        "JACKALOPE_NAMESPACE": address.namespace,
        "JACKALOPE_TOKEN": address.token,
        "JACKALOPE_CA": address.ca_file,
    }


def run(program: str, *words: str) -> dict[str, Any]:
    """Run a command of `verdi` or `jackalope` right here, where AiiDA is loaded already."""
    reset_config()  # What another process wrote counts.
    if program == "verdi":
        ran = CliRunner().invoke(verdi, words)
        return {"code": ran.exit_code, "out": ran.output, "err": str(ran.exception or "")}
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_jackalope(list(words))
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def workers() -> list[int]:
    """Return the processes of the daemon's workers."""
    answer = get_daemon_client().get_worker_info(timeout=60)
    return sorted(int(pid) for pid in answer["info"])


def main() -> None:
    """Answer until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # AiiDA may print what it likes.
    if len(sys.argv) > 1:
        load_profile(sys.argv[1])
    known: dict[str, Callable[..., Any]] = {
        "make_profile": make_profile,
        "furnish": furnish,
        "submit_adds": submit_adds,
        "submit_chains": submit_chains,
        "look": look,
        "states": states,
        "end": end,
        "start_daemon": start_daemon,
        "workers": workers,
        "access": access,
        "run": run,
    }
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answers.write(json.dumps(known[name](*arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
