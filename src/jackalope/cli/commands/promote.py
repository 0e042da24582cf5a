"""The command that lets a standby take the place of the broker that it follows."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from jackalope.cli.base import Exit, Failure, load_structlog, run_loop
from jackalope.cli.commands.serve import Flags, bad_config

if TYPE_CHECKING:
    from jackalope.broker.config.schema import Config
    from jackalope.wire.peer import Promoted


#: How long a standby may take for what it lacks.
_PROMOTED_S = 600.0


def promote(flags: Flags) -> int:
    """Let a standby take the place of the broker that it follows.

    Takes the configuration of the standby. One that runs is asked at its peer port and goes on as a
    broker; one that does not run is prepared, and leads when it is started.

    The old broker, or every node of the old cluster, is told to stop acknowledging, and does so
    after a restart as well; what the standby lacks is taken from it first. If it cannot be reached,
    this says what may be missing: make sure then that it does not come back.

    Exits with 0 when the old broker is fenced and nothing is missing, 1 when something may be or a
    failure occurred, 2 on an invalid configuration.

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
        await link.send(AskPromote())
        return await link.expect(Promoted, _PROMOTED_S)
    except PeerGone as gone:
        raise Failure(f"{host}:{config.peer.port}: {gone}") from None
    finally:
        await link.leave()


async def _promote_folder(config: "Config") -> "Promoted":
    """Promote a standby that does not run."""
    from jackalope.broker.cluster.standby import Standby
    from jackalope.broker.service import Broker
    from jackalope.cli.blob_store import store_of
    from jackalope.cli.peering import pair_of
    from jackalope.storage import Storage, StorageFault
    from jackalope.storage.standby import finish_copy, read_standby

    data = config.data
    if read_standby(Path(data.folder)) is None:
        raise Failure(f"{data.folder} is no standby", code=Exit.USAGE)
    if not config.peer.follow:
        raise bad_config(["peer.follow: needed to reach the broker that is replaced"])
    try:
        finish_copy(Path(data.folder))
        storage = Storage.open(
            Path(data.folder),
            data.durability,
            data.interval_us,
            store_of(config, os.environ),
            kind=data.journal,
        )
        standby = pair_of(Broker(storage), storage, config)
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    if not isinstance(standby, Standby):
        raise Failure(f"{data.folder} is no standby", code=Exit.USAGE)
    await standby.start()
    try:
        return await standby.promote()
    finally:
        await asyncio.shield(standby.stop())


def _report(told: "Promoted") -> int:
    import click

    reached = f", made at {_time(told.reached_us)}" if told.reached_us else ""
    click.echo(f"promoted: it leads, with everything through batch {told.sequence}{reached}")
    if told.is_fenced:
        click.echo(f"the old broker is fenced; its last batch was {told.last}{_behind(told)}")
    else:
        click.echo(_unfenced(told))
    if told.is_fenced and told.why:
        click.echo(told.why)
    if told.lacking:
        click.echo(f"{told.lacking} large payloads and results that tasks name were not copied:")
        click.echo("\n".join(f"  {name}" for name in told.names))
        if told.lacking > len(told.names):
            click.echo("  and others; the log of the broker names all of them")
    is_whole = told.is_fenced and told.sequence >= told.last
    return Exit.FAILED if told.why or told.lacking or not is_whole else Exit.DONE


def _behind(told: "Promoted") -> str:
    if told.sequence >= told.last:
        return ", nothing of it is missing"
    return f"; batches {told.sequence + 1} to {told.last} could not be taken from it"


def _unfenced(told: "Promoted") -> str:
    if not told.heard_us:
        return f"the old broker is NOT fenced: {told.why}\nit was never heard"
    lag = told.last - told.sequence
    lacking = f"batches {told.sequence + 1} to {told.last} and all" if lag > 0 else "all"
    return (
        f"the old broker is NOT fenced: {told.why}\n"
        f"it was last heard at {_time(told.heard_us)}, at batch {told.last}; the standby was then "
        f"{max(0, lag)} batches and {told.lag_us / 1e6:.1f} s behind\n"
        f"missing here: {lacking} that it acknowledged after that\n"
        "see that it does not start again: write the file `fenced` into its data folder, or "
        "remove it"
    )


def _time(at_us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
