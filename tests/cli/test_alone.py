"""The command line without a broker."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from jackalope import __version__
from jackalope.cli.app import PANELS, Deferred, app
from jackalope.cli.commands.config import template
from tests.cli.conftest import JACKALOPE, Cli, clean_environment


def commands(group: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """List every command, groups included."""
    found = []
    for name, command in getattr(group, "commands", {}).items():
        found += [(*path, name), *commands(loaded(command), (*path, name))]
    return found


def loaded(command: Any) -> Any:
    """Return a command with its options, which are made when it is used."""
    return command.load() if isinstance(command, Deferred) else command


COMMANDS = commands(app)

#: Names that only gather other commands.
_GATHERING = (
    *("aiida", "cache", "cluster", "config", "flow"),
    *("journal", "keys", "namespaces", "schedules"),
)
GROUPS = tuple((name,) for name in _GATHERING)


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    for panel, summaries in PANELS.items():
        for name, summary in summaries.items():
            deferred = app.commands[name]
            assert isinstance(deferred, Deferred)
            assert deferred.panel == panel
            command = deferred.load()
            assert (command.name, str(command.help).partition("\n\n")[0]) == (name, summary)


@pytest.mark.feature("D31")
def test_every_command_of_the_published_admin_tool_has_its_counterpart() -> None:
    names = {path[0] for path in COMMANDS}
    assert names >= {"submit", "status", "list", "cancel", "retry", "purge", "workers", "stats"}
    assert names >= {"cluster-status", "queue-depth"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_teaches_by_example_and_fits_80_columns(
    cli: Cli, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli(*path, "--help")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) == 80
    assert "…" not in ran.out  # Nothing is cut.
    examples = ran.out.partition("Examples")[2].partition("\n\n")[0].split("\n")[1:-1]
    for line, last in zip(examples, ["", *examples], strict=False):
        assert "jackalope" in line or last.rstrip().endswith("\\"), line
    if path not in GROUPS:
        assert f"jackalope {path[0]}" in ran.out.partition("Examples")[2]


def test_version(cli: Cli) -> None:
    assert __version__ in cli("version").out
    assert cli("version", "--format", "json").json["jackalope"] == __version__
    assert cli("--format", "yaml", "version").yaml["jackalope"] == __version__
    assert cli("--version").out == f"jackalope {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lst"], "No such command 'lst'. (Did you mean one of: 'cluster', 'list'?)"),
        (["list", "--nonsense"], "No such option '--nonsense'"),
        (
            ["list", "--format", "xml"],
            "'--format' / '-f': 'xml' is not one of 'table', 'json', 'yaml'",
        ),
        (
            ["--format", "xml", "list"],
            "'JACKALOPE_FORMAT'): 'xml' is not one of 'table', 'json', 'yaml'",
        ),
        (["status"], "Missing argument 'TASK'"),
        (["list", "--limit", "0"], "'--limit'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(cli: Cli, arguments: list[str], line: str) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert line in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["keys"]])
def test_a_group_without_a_command_shows_its_help(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "error" not in ran.err.partition("Options")[0]
    assert ran.err == cli(*arguments, "--help").out


def test_a_short_name_belongs_to_the_command_that_declares_it(cli: Cli) -> None:
    shown = cli("logs", "--help").out
    assert "-f, --follow" in shown
    assert "-n, --tail" in shown
    assert "-f, --format" not in shown
    assert "-f, --format" in cli("status", "--help").out


def test_no_broker_is_one_line_with_a_hint(cli: Cli) -> None:
    for arguments in (["-b", "127.0.0.1:1", "stats"], ["stats", "--broker", "127.0.0.1:1"]):
        ran = cli(*arguments)
        assert ran.code == 1
        assert ran.err == (
            "error: no broker at 127.0.0.1:1: start one with `jackalope serve`, or name it with "
            "--broker\n"
        )


def test_address_that_is_none(cli: Cli) -> None:
    ran = cli("--broker", "http://somewhere", "stats")
    assert ran.code == 2
    assert "not jackalope://" in ran.err


def test_token_is_never_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JACKALOPE_TOKEN", "s3cret")
    for arguments in (
        ["config", "show"],
        ["--broker", "jackalope://s3cret@127.0.0.1:1", "stats"],
        ["--broker", "jackalope://s3cret@", "stats"],
        ["--help"],
    ):
        ran = cli(*arguments)
        assert "s3cret" not in ran.out + ran.err


def test_script_runs() -> None:
    ran = subprocess.run(
        [JACKALOPE, "version"], env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert __version__ in ran.stdout


# The configuration.


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_here")
def test_config_show_tells_where_values_come_from(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jackalope.yaml").write_text("data: {folder: there}\nlimits: {gpu: 4}\n")
    monkeypatch.setenv("JACKALOPE_NATIVE__PORT", "7500")
    shown = cli("config", "show", "--log-level", "warn", "--format", "json").json
    origins = {each["key"]: (each["value"], each["origin"]) for each in shown}
    assert origins["data.folder"] == ("there", "file jackalope.yaml")
    assert origins["native.port"] == (7500, "environment JACKALOPE_NATIVE__PORT")
    assert origins["log.level"] == ("warn", "flag --log-level")
    assert origins["native.host"] == ("127.0.0.1", "default")
    assert origins["limits.gpu"] == (4, "file jackalope.yaml")
    table = cli("config", "show", "--changed").out
    assert "JACKALOPE_NATIVE__PORT" in table
    assert "native.host" not in table
    assert cli("config", "show", "--format", "yaml").yaml[0]["key"] == "data.folder"


@pytest.mark.usefixtures("_here")
def test_config_check_lists_everything(cli: Cli, tmp_path: Path) -> None:
    assert (
        cli("config", "check").out == "the configuration is valid: 0 settings in addition to "
        "the defaults\n"
    )
    file = tmp_path / "bad.yaml"
    file.write_text("native: {port: x}\nlgo: {}\ndata: {folder: 5}\n")
    ran = cli("config", "check", "--config", str(file))
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: invalid configuration: 3 problems",
        f"  native.port: must be a whole number, got 'x' (file {file})",
        f"  lgo: unknown key; did you mean log? (file {file})",
        f"  data.folder: must be a string, got 5 (file {file})",
    ]


@pytest.mark.usefixtures("_here")
def test_config_init_writes_a_file_that_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "init").code == 0
    assert "0 settings" in cli("config", "check").out
    again = cli("config", "init")
    assert again.code == 1
    assert "jackalope.yaml exists already" in again.err
    assert cli("config", "init", "a.toml").code == 2
    assert "No such file" in cli("config", "init", "no/where.yaml").err


def test_every_line_of_the_template_is_a_good_setting(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    lines = [line for line in "\n".join(template()).splitlines() if not line.startswith("#   #")]
    bare = [line.removeprefix("# ") for line in lines[1:] if not _is_prose(line)]
    file.write_text("\n".join(bare))
    ran = cli("config", "show", "--config", str(file), "--changed", "--format", "json")
    assert ran.code == 0, ran.err
    keys = {each["key"] for each in ran.json}
    assert keys >= {"data.folder", "shutdown.deadline", "queues.images.preset", "limits.gpu"}
    assert keys >= {"key_limits.per-user.keys", "key_limits.per-user.per"}


def _is_prose(line: str) -> bool:
    return line.startswith("# ") and line.endswith(".")
