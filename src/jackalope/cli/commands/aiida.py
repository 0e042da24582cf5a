"""Commands for users of AiiDA: give a profile this broker, give it back, show its state."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from jackalope.cli.base import Common, Exit, Failure, Options, arg, opt

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.aiida.profiles import Profiles, Settings
    from jackalope.cli.output import Screen
    from jackalope.core.policy import OnLost

Profile = Annotated[str, arg("PROFILE", "The name of the profile.")]


@dataclass
class Ways(Options):
    """How a profile uses the broker."""

    on_lost: Annotated[
        str | None,
        opt(
            "--on-lost [continue|pause]",
            "Whether a process whose worker died continues on another, or pauses.",
            default="unchanged; continue for a new profile",
        ),
    ] = None
    autostart: Annotated[
        bool,
        opt(
            "--autostart/--no-autostart",
            "Start your own broker whenever it is needed and not running.",
        ),
    ] = True

    def settings(self, common: Common) -> "Settings":
        """Return how the profile reaches the broker that was named, or one's own."""
        from jackalope.aiida.profiles import Settings
        from jackalope.core.commands import DEFAULT_NAMESPACE

        self.policy()
        if not common.broker:
            return Settings(namespace=common.namespace or "", autostart=self.autostart)
        address = common.address()
        if not address.verify:
            raise Failure("a profile always verifies its broker", "use --ca", Exit.USAGE)
        is_named = common.namespace or address.namespace != DEFAULT_NAMESPACE
        return Settings(
            address=str(replace(address, namespace=DEFAULT_NAMESPACE)),
            namespace=address.namespace if is_named else "",
            key=address.token,
            ca_file=str(Path(address.ca_file).absolute()) if address.ca_file else "",
            autostart=False,
        )

    def policy(self) -> "OnLost | None":
        """Return what to do with a process whose worker died, if that was given."""
        from jackalope.core.policy import OnLost

        known = {None: None, "continue": OnLost.REQUEUE, "pause": OnLost.PAUSE}
        if self.on_lost not in known:
            raise Failure(
                f"--on-lost: must be continue or pause, got {self.on_lost!r}", code=Exit.USAGE
            )
        return known[self.on_lost]


def use(common: Common, profile: Profile, ways: Ways) -> None:
    """Make a profile use this broker. Its daemon must not be running.

    Without --broker it is your own broker on this machine, which is created and started if
    necessary. The previous broker is kept for `revert`, and AiiDA's configuration file is copied.
    Nothing is changed before the broker has answered.

    Unfinished processes have their tasks in the old broker: run `verdi process repair` once
    afterwards to give them new ones.

    Examples:
        jackalope aiida use main
        jackalope aiida use main --broker jackalopes://broker.example:7420 --ca ca.pem
        jackalope aiida use main --on-lost pause
    """
    profiles, settings = _profiles(), ways.settings(common)
    profiles.draft(profile, settings).prepare(ways.policy())
    copy = profiles.use(profile, settings)
    broker, code = profiles.broker_of(profile), _furnish(profiles, profile)
    data = {"profile": profile, "address": str(broker.access()), "copy": str(copy or "")}
    _screen(common).show(
        data | {"code": code},
        f"profile {profile} uses {broker}\n"
        f"AiiDA's configuration as it was: {copy}\n{_added(code)}"
        f"next: verdi -p {profile} process repair, then verdi -p {profile} daemon start",
    )


def new(
    common: Common,
    profile: Profile,
    ways: Ways,
    email: Annotated[
        str, opt("--email EMAIL", "Your e-mail address, for AiiDA.")
    ] = "aiida@localhost",
) -> None:
    """Create a profile with SQLite storage and this broker; nothing else is needed.

    Its computer is this machine, with a code that runs shell scripts.

    Examples:
        jackalope aiida new main --email ada@example.org
        jackalope aiida new main --broker jackalopes://broker.example:7420
    """
    profiles, settings = _profiles(), ways.settings(common)
    profiles.make(profile, email, settings)
    broker = profiles.broker_of(profile)
    broker.prepare(ways.policy())
    code = profiles.furnish(profile)
    _screen(common).show(
        {"profile": profile, "address": str(broker.access()), "code": code},
        f"profile {profile} uses {broker}\n{_added(code)}next: verdi -p {profile} daemon start",
    )


def revert(screen: "Screen", profile: Profile) -> None:
    """Make a profile use its previous broker again. Its daemon must not be running.

    Examples:
        jackalope aiida revert main
    """
    backend, copy = _profiles().revert(profile)
    screen.show(
        {"profile": profile, "backend": backend, "copy": str(copy or "")},
        f"profile {profile} uses {backend} again\n"
        f"AiiDA's configuration as it was: {copy}\n"
        f"next: verdi -p {profile} process repair, then verdi -p {profile} daemon start",
    )


def status(screen: "Screen") -> int:
    """Show your own broker, and which broker each AiiDA profile uses.

    Exits with 1 if the broker of a profile does not answer.

    Examples:
        jackalope aiida status
    """
    from concurrent.futures import ThreadPoolExecutor

    from jackalope.aiida.local_broker import LocalBroker
    from jackalope.aiida.profiles import BACKEND

    own, profiles = LocalBroker.of_user(), _profiles()
    ours = [name for name in profiles.names() if profiles.backend_of(name) == BACKEND]
    with ThreadPoolExecutor(max(1, len(ours))) as asking:
        brokers = [profiles.broker_of(name) for name in ours]
        answering = asking.map(lambda broker: broker.probe_service_status(), brokers)
        answers = dict(zip(ours, answering, strict=True))
    about = {
        name: answers.get(name) or {"backend": profiles.backend_of(name)}
        for name in profiles.names()
    }
    mine = {
        "folder": str(own.folder),
        "address": own.address if own.is_made() else "",
        "dashboard": own.dashboard if own.is_made() else "",
        "pid": own.pid(),
    }
    screen.show({"own": mine, "profiles": about}, lambda: _draw(mine, about))
    is_well = all(answer["connected"] for answer in answers.values())
    return Exit.DONE if is_well else Exit.FAILED


def env(screen: "Screen", profile: Profile) -> None:
    """Print the variables with which other commands use the broker of a profile, for your shell.

    Examples:
        eval "$(jackalope aiida env main)"; jackalope list
    """
    from shlex import quote

    from jackalope.core.commands import DEFAULT_NAMESPACE

    address = _profiles().broker_of(profile).access()
    variables = {
        "JACKALOPE_BROKER": str(replace(address, namespace=DEFAULT_NAMESPACE)),
        "JACKALOPE_NAMESPACE": address.namespace,
        "JACKALOPE_TOKEN": address.token,
        "JACKALOPE_CA": address.ca_file,
    }
    said = {name: text for name, text in variables.items() if text}
    if not screen.is_human:
        screen.write(said)
        return
    for name, text in said.items():
        click.echo(f"export {name}={quote(text)}")


def stop(screen: "Screen") -> None:
    """Stop your own broker. A running daemon starts it again: stop the daemons first.

    Examples:
        verdi daemon stop; jackalope aiida stop
    """
    from jackalope.aiida.local_broker import LocalBroker

    ran = LocalBroker.of_user().stop()
    daemons = _daemons() if ran else []
    told = "your broker has stopped" if ran else "your broker was not running"
    if daemons:
        told += f"; these daemons run, and start it again: {', '.join(daemons)}"
    screen.show({"stopped": ran, "daemons": daemons}, told)


def _daemons() -> list[str]:
    """Return the profiles whose daemon runs; none where AiiDA is not installed."""
    try:
        return _profiles().daemons()
    except Failure:
        return []


def _furnish(profiles: "Profiles", profile: str) -> str:
    """Add a computer and a code to a profile that has none; its storage may be out of reach."""
    try:
        return profiles.furnish(profile)
    except Exception as error:  # noqa: BLE001  AiiDA's storage; the broker is in use all the same
        click.echo(f"the computers of profile {profile} cannot be read: {error}", err=True)
        return ""


def _added(code: str) -> str:
    return f"code {code} was added, on this machine as its computer\n" if code else ""


def _profiles() -> "Profiles":
    try:
        from jackalope.aiida.profiles import Profiles
    except ModuleNotFoundError as error:
        hint = "pip install 'jackalope[aiida]' where AiiDA is"
        raise Failure(f"{error.name} is not installed here", hint) from None
    return Profiles()


def _screen(common: Common) -> "Screen":
    from jackalope.cli.base import Format
    from jackalope.cli.output import Screen

    return Screen(common.format or Format.TABLE)


def _draw(own: dict[str, Any], profiles: dict[str, dict[str, Any]]) -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import dim, table

    runs = f"runs as process {own['pid']}" if own["pid"] else "does not run"
    mine = f"your broker: {own['address']} {runs}" if own["address"] else "no broker of your own"
    drawn = table("profile", "broker", "pending", "running")
    for name, about in profiles.items():
        if "backend" in about:
            drawn.add_row(name, dim(about["backend"] or "none"), "", "")
        elif about["connected"]:
            counts = str(about["pending_tasks"]), str(about["processing_tasks"])
            drawn.add_row(name, about["address"], *counts)
        else:
            drawn.add_row(name, "does not answer", "", "")
    more = [f"dashboard: {own['dashboard']}"] if own["dashboard"] else []
    errors = [f"{name}: {about['error']}" for name, about in profiles.items() if about.get("error")]
    return Group(mine, *more, drawn, *errors)
