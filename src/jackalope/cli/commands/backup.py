"""Commands that keep the state of a running cluster in a file, and begin another with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.commands.serve import Flags

if TYPE_CHECKING:
    from jackalope.broker.backup_file import Backup
    from jackalope.broker.config.schema import Config
    from jackalope.cli.output import Screen


def backup(
    screen: "Screen",
    flags: Flags,
    file: Annotated[str, arg("FILE", "Where to write it; a name that is free.")],
    no_blobs: Annotated[
        bool, opt("--no-blobs", "Leave out large payloads and results: they are in S3.")
    ] = False,
) -> None:
    """Write everything that a running cluster has to one file.

    Asks a node over the peer port, one that does not lead if there is one. The cluster goes on
    meanwhile; the backup is of one moment.

    Examples:
        jackalope cluster backup monday.tar --config cluster.yaml
    """
    import asyncio

    from jackalope.broker.cluster.peer_link import PeerGone
    from jackalope.storage import StorageFault

    path = Path(file)
    if path.exists():
        raise Failure(f"{path} exists already", "choose another name")
    config = flags.load().config
    try:
        made = asyncio.run(_back_up(config, path, has_blobs=not no_blobs))
    except (PeerGone, ValueError) as gone:
        raise Failure(str(gone)) from None
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    lost = f"; {len(made.missing)} were gone" if made.missing else ""
    told = f"wrote {path}: batch {made.sequence} of {made.cluster!r}, {made.blobs} blobs{lost}"
    screen.show(
        {
            "file": str(path),
            "sequence": made.sequence,
            "cluster": made.cluster,
            "blobs": made.blobs,
            "missing": list(made.missing),
        },
        told,
    )


async def _back_up(config: "Config", path: Path, *, has_blobs: bool) -> "Backup":
    from msgspec.structs import replace

    from jackalope.broker.cluster.backup import write_backup
    from jackalope.broker.cluster.leadership import Role
    from jackalope.broker.cluster.peer_link import PeerGone, connect
    from jackalope.cli.peering import credentials_of, peers_of
    from jackalope.wire.peer import AskStatus, NodeStatus

    config = replace(config, cluster=replace(config.cluster, node=""))
    places = {peer.name: (peer.host, peer.port) for peer in peers_of(config).known.values()}
    places = places or {"": (config.peer.host or "127.0.0.1", config.peer.port)}
    troubles, found = [], []
    for name, (host, port) in places.items():
        try:
            link = await connect(host, port, credentials_of(config))
            status = await link.ask(AskStatus(), NodeStatus)
        except PeerGone as gone:
            troubles.append(f"{name or host}: {gone}")
            continue
        found.append((status.role == Role.LEADING, -status.applied, name, link))
    if not found:
        raise PeerGone("; ".join(troubles))
    found.sort(key=lambda each: each[:3])
    try:
        return await write_backup(found[0][-1], path, has_blobs=has_blobs)
    finally:
        for *_, link in found:
            await link.leave()


def restore(
    screen: "Screen",
    file: Annotated[str, arg("FILE", "A backup.")],
    data: Annotated[str, opt("--data FOLDER", "The data folder to make of it.")] = "jackalope-data",
) -> None:
    """Make a data folder of a backup, with which a new cluster begins.

    Then let `jackalope cluster init --from` write the configuration of the cluster.

    Examples:
        jackalope cluster restore monday.tar --data jackalope-data
        jackalope cluster init --from jackalope-data -m a=10.0.0.1 -m b=10.0.0.2 -m c=10.0.0.3
    """
    from jackalope.broker.cluster.backup import restore_backup
    from jackalope.storage import StorageFault

    try:
        found = restore_backup(Path(file), Path(data))
    except StorageFault as fault:
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None
    told = [
        f"restored batch {found.sequence} of {found.cluster!r}, {found.blobs} blobs, to {data};",
        f"begin a cluster with it: jackalope cluster init --from {data} -m NAME=HOST ...",
    ]
    screen.show({"data": data, "sequence": found.sequence, "blobs": found.blobs}, "\n".join(told))
