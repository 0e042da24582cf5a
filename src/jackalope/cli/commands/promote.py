"""The command that lets a standby take the place of the broker that it follows."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from jackalope.cli.base import Exit, Failure, load_structlog, run_loop
from jackalope.cli.commands.serve import Flags, bad_config

if TYPE_CHECKING:
    from jackalope.broker.config.schema import Config
    from jackalope.wire.peer import Promoted


def promote(flags: Flags) -> int:
    """Let a standby take the place of the broker that it follows.

    Takes the configuration of the standby. One that runs is asked at its peer port and goes on as a
    broker; one that does not run is prepared, and is then started without --follow.

    The old broker is told to stop acknowledging, and does so after its own restart as well; what
    the standby lacks is taken from it first. If it cannot be reached, this says what may be
    missing: make sure then that it does not come back.

    Exits with 0 when the old broker is fenced, 1 when it could not be reached or a failure
    occurred, 2 on an invalid configuration.

    Examples:
        jackalope promote --config standby.yaml
    """
    load_structlog()
    from jackalope.log_setup import set_up

    config = flags.load().config
    if not config.peer.secret:
        raise bad_config(["peer.secret: needed to reach the standby and the broker"])
    close_log = set_up("error", "auto")
    try:
        return _report(run_loop(_promote(config)))
    finally:
        close_log()


async def _promote(config: "Config") -> "Promoted":
    from jackalope.broker.cluster.peer_link import PeerGone, PeerRefused, connect
    from jackalope.cli.peering import credentials_of
    from jackalope.wire.peer import AskPromote, Promoted

    who = credentials_of(config)._replace(cluster="", node="")
    host = config.peer.host or "127.0.0.1"
    try:
        link = await connect(host, config.peer.port, who)
    except PeerRefused as refused:
        raise Failure(f"{host}:{config.peer.port}: {refused}") from None
    except PeerGone:
        return await _promote_folder(config)
    try:
        return await link.ask(AskPromote(), Promoted)
    except PeerGone as gone:
        raise Failure(f"{host}:{config.peer.port}: {gone}") from None
    finally:
        await link.leave()


async def _promote_folder(config: "Config") -> "Promoted":
    """Promote a standby that does not run."""
    from jackalope.broker.cluster.standby import Standby
    from jackalope.broker.service import Broker
    from jackalope.cli.peering import pair_of
    from jackalope.storage import Storage, StorageFault
    from jackalope.storage.standby import read_standby
    from jackalope.wire.peer import Promoted

    data = config.data
    if read_standby(Path(data.folder)) is None:
        raise Failure(f"{data.folder} is no standby", code=Exit.USAGE)
    if not config.peer.follow:
        raise bad_config(["peer.follow: needed to reach the broker that is replaced"])
    try:
        storage = Storage.open(Path(data.folder), data.durability, data.interval_us)
        standby = pair_of(Broker(storage), storage, config)
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    if not isinstance(standby, Standby):
        raise Failure(f"{data.folder} is no standby", code=Exit.USAGE)
    await standby.start()
    try:
        return Promoted(*await standby.promote())
    finally:
        await asyncio.shield(standby.stop())


def _report(told: "Promoted") -> int:
    import typer

    from jackalope.broker.clock import wall_us

    typer.echo(f"promoted: it leads, with everything through batch {told.sequence}")
    if told.is_fenced:
        typer.echo(f"the old broker is fenced; its last batch was {told.last}, nothing is missing")
        return Exit.DONE
    ago_s = (wall_us() - told.heard_us) // 1_000_000 if told.heard_us else None
    when = "never heard" if ago_s is None else f"last heard {ago_s} s ago, at batch {told.last}"
    typer.echo(
        f"the old broker is NOT fenced: {told.why}\n"
        f"it was {when}; what it acknowledged since, and batches {told.sequence + 1} to "
        f"{max(told.last, told.sequence + 1)} if they exist, are missing here.\n"
        "see that it does not start again: write the file `fenced` into its data folder, or "
        "remove it"
    )
    return Exit.FAILED
