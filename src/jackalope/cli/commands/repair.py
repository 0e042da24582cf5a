"""Commands that compare the copies of a cluster, and make a new log when the old one is lost."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, opt
from jackalope.cli.commands.cluster import File, config_path, members_in, write_new
from jackalope.cli.formatting import number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.cluster.founding import Left
    from jackalope.cli.member_calls import Members
    from jackalope.cli.output import Screen
    from jackalope.cli.verdict import Verdict


def verify(
    screen: "Screen",
    data: Annotated[
        list[str] | None,
        opt(
            "--data FOLDER",
            "Read the data folder of a node that is stopped, and ask no member. Repeatable: "
            "several are held against each other.",
        ),
    ] = None,
    config: File = "",
) -> Exit:
    """Compare what the members of a cluster have, and say which of them differs.

    Each node reads its mirror of the log from its disk; the digests of the log at one batch are
    compared; the leader tells a digest of its whole state, slice by slice, and the others compare
    theirs; every copy of the shared log is read. The cluster goes on meanwhile.

    Exits with 0 if all are equal, 1 if something differs or is damaged, 5 if all that answer are
    equal but something could not be compared.

    Examples:
        jackalope cluster verify
        jackalope cluster verify --config /etc/jackalope/shop.yaml --format json
        jackalope cluster verify --data /var/lib/jackalope
    """
    import msgspec

    from jackalope.cli.verifying import verify as compare

    if data:
        return _verify_folders(screen, data)
    found = asyncio.run(compare(members_in(config)))
    screen.show(msgspec.to_builtins(found), lambda: _draw(found))
    if found.differences:
        return Exit.FAILED
    return Exit.DEGRADED if found.unknown else Exit.DONE


def _draw(found: "Verdict") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import dim, table

    drawn = table("member", "role", ">applied", "mirror", "chain", "state", "log copy", ">flushed")
    for each in found.members:
        drawn.add_row(
            each.node,
            each.role,
            number(each.applied),
            each.mirror or dim("-"),
            _toned(each.chain),
            _toned(each.state),
            each.log_copy,
            number(each.flushed),
        )
    what = f"compared at batch {number(found.at)}, in {found.slices} slices of the state"
    told = [Text(each, "red") for each in found.differences]
    told += [Text(each, "yellow") for each in found.unknown]
    is_well = [] if told else [Text("all members are equal", "green")]
    return Group(f"cluster {found.cluster}: {what}", drawn, *told, *is_well)


def _toned(word: str) -> "RenderableType":
    from rich.text import Text

    return Text(word, {"equal": "green", "differs": "red", "damaged": "red"}.get(word, "yellow"))


# Folders of nodes that are stopped.


def _left_in(folders: "dict[str, str]") -> "dict[str, Left]":
    from jackalope.broker.cluster.founding import left_in
    from jackalope.storage import FolderBusy, StorageFault

    try:
        return {name: left_in(Path(folder)) for name, folder in folders.items()}
    except FolderBusy as fault:
        raise Failure(str(fault), code=Exit.BUSY) from None
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None


def _verify_folders(screen: "Screen", folders: list[str]) -> Exit:
    from jackalope.broker.cluster.founding import lacks

    left = list(_left_in({folder: folder for folder in folders}).values())
    longest = max(left, key=lambda each: each.end)
    problems = [f"{each.folder}: {each.problem}" for each in left if each.problem]
    sound = [each for each in left if each is not longest and not each.problem]
    problems += [] if longest.problem else lacks(longest, sound)
    data = {"folders": [_plain(each) for each in left], "problems": problems}
    screen.show(data, lambda: _draw_folders(left, problems))
    return Exit.FAILED if problems else Exit.DONE


def _plain(left: "Left") -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(left)
    return data | {"digest": left.digest.hex()}


def _draw_folders(left: "list[Left]", problems: list[str]) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import table

    drawn = table("folder", "mirror", ">history", ">epoch", "led by", "chain")
    for each in left:
        drawn.add_row(
            each.folder,
            f"{each.first}-{each.last}",
            number(each.applied),
            str(each.epoch),
            each.leader or "-",
            _toned("damaged") if each.problem else each.digest.hex(),
        )
    return Group(drawn, *(Text(each, "red") for each in problems))


# A log that is lost.


def rebuild_log(
    screen: "Screen",
    source: Annotated[
        str,
        opt(
            "--from DATA|NODE",
            "The data folder of a node that is stopped, on its machine; or a member that still "
            "answers, of which a copy is made.",
        ),
    ],
    *,
    node: Annotated[
        str,
        opt(
            "--node NAME",
            "The member that begins the new log: the one whose folder it is.",
            default="that of --from, or of the file",
        ),
    ] = "",
    compare: Annotated[
        list[str] | None,
        opt("--compare NAME=DATA", "The data folder of another member, or a copy. Repeatable."),
    ] = None,
    gone: Annotated[
        list[str] | None,
        opt("--gone NAME", "A member whose disks are lost, or will never run again. Repeatable."),
    ] = None,
    accept_loss: Annotated[
        bool, opt("--accept-loss", "Go on although another member has what this one lacks.")
    ] = False,
    data: Annotated[
        str, opt("--data FOLDER", "With a NODE that answers: the folder to make.")
    ] = "jackalope-data",
    out: Annotated[
        str, opt("--out FILE", "Where to write the new file.", default="next to the old one")
    ] = "",
    config: File = "",
) -> None:
    """Make a new log from what a node has, when the log itself is lost for good.

    Only where most of its copies are gone and never come back: two logs of one cluster would be two
    truths. All members are to be stopped, with their nats-servers. Refuses while one leads, while
    it is not known what became of one, and where another member has more.

    Nothing that the mirror of the chosen node has is lost. Says what may be missing beyond that.
    The epoch of the new log is greater than all before; the chain goes on.

    Examples:
        jackalope cluster rebuild-log --from /var/lib/jackalope --node a --compare b=/mnt/b --gone c
        jackalope cluster rebuild-log --from b --gone a --gone c --data jackalope-new
    """
    members = members_in(config)
    folders = _named(compare or [])
    founder = node or (source if source in members.all else members.config.cluster.node)
    _check_names(members, [founder, *folders, *(gone or [])])
    is_running = source in members.all and not Path(source).exists()
    answering = _refuse_alive(members, source if is_running else "")
    others = _left_in(folders)
    _refuse_unknown(members, {founder, *folders, *answering, *(gone or [])})
    if is_running:
        _copy(members, source, Path(data), answering[source])
    folder = Path(data if is_running else source)
    chosen = _left_in({founder: str(folder)})[founder]
    _refuse_loss(chosen, others, answering, accepts=accept_loss)
    target = _name_founder(members, founder, out, config)
    epoch = max(each.epoch for each in (chosen, *others.values()))
    kept = _begin(folder, epoch, target if target != config_path(config) else None)
    told = _said(members, chosen, gone or [])
    told += [f"the store of the old log is kept as {folder / kept}"] if kept else []
    told += _steps([name for name in members.all if name != founder], founder, target)
    shown = {"from": _plain(chosen), "founder": founder, "file": str(target), "said": told}
    screen.show(shown, "\n".join(told))


def _named(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, _, folder = each.partition("=")
        if not name or not folder:
            raise Failure(f"{each!r} is not NAME=DATA", code=Exit.USAGE)
        found[name] = folder
    return found


def _check_names(members: "Members", names: list[str]) -> None:
    for name in names:
        if name not in members.all:
            hint = f"one of {', '.join(members.all)}; --node names the one that begins the new log"
            raise Failure(f"{name!r} is not a member", hint, Exit.USAGE)


def _refuse_alive(members: "Members", but: str) -> dict[str, int]:
    """Refuse while the log may be alive; return how far each member is that answers."""
    view = asyncio.run(members.overview())
    if view.leader:
        hint = "`jackalope cluster status` shows it; a second log would be a second truth"
        raise Failure(f"{view.leader} leads: the log is alive", hint)
    found = {each.node: each.applied for each in view.members if each.role != "unreachable"}
    if not but:
        running = [f"{name} still answers" for name in found]
        if running:
            hint = "stop all members first: one that runs would go on with the old log"
            raise Failure("members are running", hint, details=running)
    elif but not in found:
        raise Failure(f"{but} does not answer", "name its data folder with --from, on its machine")
    return found


def _refuse_unknown(members: "Members", known: set[str]) -> None:
    unknown = [name for name in members.all if name not in known]
    if unknown:
        hint = (
            "it may be a part of a log that is alive, and have what others lack. Name its folder "
            "with --compare, or say with --gone that it never comes back"
        )
        details = [f"what {name} has is not known" for name in unknown]
        raise Failure("not every member was looked at", hint, details=details)


def _copy(members: "Members", name: str, folder: Path, applied: int) -> None:
    """Make a founder's folder of the state of a member that answers, if it gives all of it."""
    import shutil
    from tempfile import TemporaryDirectory

    from jackalope.broker.cluster.backup import restore_backup, write_backup
    from jackalope.broker.cluster.peer_link import PeerGone
    from jackalope.storage import StorageFault

    async def fetch(path: Path) -> int:
        link = await members.connect(name)
        try:
            return (await write_backup(link, path, has_blobs=False)).sequence
        finally:
            await link.leave()

    try:
        with TemporaryDirectory(dir=folder.absolute().parent) as place:
            through = asyncio.run(fetch(path := Path(place) / "state.tar"))
            restore_backup(path, folder)
    except PeerGone as gone:
        raise Failure(f"{name} did not give its state", str(gone)) from None
    except StorageFault as fault:
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None
    if through < applied:
        shutil.rmtree(folder)
        hint = "try again; or stop it, and name its data folder with --from on its machine"
        raise Failure(f"{name} gave its state through batch {through} of {applied} only", hint)


def _refuse_loss(
    chosen: "Left", others: "dict[str, Left]", answering: dict[str, int], *, accepts: bool
) -> None:
    from jackalope.broker.cluster.founding import lacks

    if chosen.problem or not chosen.last:
        why = chosen.problem or "it has no batch"
        raise Failure(f"no log can be made from {chosen.folder}", why, Exit.STORAGE)
    lost = lacks(chosen, [each for each in others.values() if not each.problem])
    lost += [
        f"{name} has applied batch {applied}, and {chosen.folder} ends at {chosen.last}"
        for name, applied in answering.items()
        if applied > chosen.last
    ]
    if lost and not accepts:
        hint = "make it from the one that has most; or lose that with --accept-loss"
        raise Failure("another member has more", hint, details=lost)


def _name_founder(members: "Members", founder: str, out: str, config: str) -> Path:
    """Return the file that names the node that begins the log; write one unless there is one."""
    import yaml

    path = config_path(config)
    if members.config.cluster.founder == founder:
        return path
    if path.suffix not in {".yaml", ".yml"}:
        hint = f"set `cluster.founder` to {founder} in it first"
        raise Failure(f"{path} is not YAML", hint, Exit.USAGE)
    written = yaml.safe_load(path.read_text("utf-8"))
    written["cluster"]["founder"] = founder
    target = Path(out) if out else path.with_name(f"{path.stem}-rebuilt{path.suffix}")
    write_new(target, yaml.safe_dump(written, sort_keys=False))
    return target


def _begin(folder: Path, epoch: int, written: Path | None) -> str:
    """Let a folder begin the new log; return the name by which the old store is kept."""
    from jackalope.broker.cluster.founding import found_again
    from jackalope.storage import StorageFault

    try:
        return found_again(folder, epoch)
    except StorageFault as fault:
        if written is not None:
            written.unlink()
        raise Failure(str(fault), "nothing was changed", Exit.STORAGE) from None


def _said(members: "Members", chosen: "Left", gone: list[str]) -> list[str]:
    """Say what the new log has, and what may be missing."""
    from jackalope.broker.config.schema import Store

    said = [f"the new log begins behind batch {chosen.last}, with what {chosen.folder} has"]
    if chosen.leader in gone or (gone and not chosen.leader):
        who = f"{chosen.leader} led last, and is gone" if chosen.leader else "who led is not known"
        said.append(
            f"may be missing: {who}. What it acknowledged behind batch {chosen.last}, and no "
            "mirror that was looked at has, is lost"
        )
    else:
        who = f"{chosen.leader} led last, and its" if chosen.leader else "the last leader's"
        said.append(
            f"{who} mirror was looked at: nothing that was acknowledged is missing, unless its "
            "machine lost power: then the last moment of it may be"
        )
    if chosen.blobs and members.config.blobs.store is not Store.S3:
        said.append(
            f"missing: {chosen.blobs} large payloads and results, which were stored beside the old "
            "log; their tasks are there"
        )
    return said


def _steps(others: list[str], founder: str, file: Path) -> list[str]:
    """Say what to do, in order."""
    away = (
        f"1. on the machines of {', '.join(others)}: end broker and nats-server, and move `nats` "
        "in the data folder aside; a machine that is new begins with no data folder"
    )
    start = (
        f"3. start {founder} with this folder, and the others; each goes on from its own, or "
        "copies the state of another"
    )
    named = f"2. copy {file} to every machine: it names {founder} as the one that begins the log"
    return [away, named, start, "4. jackalope cluster verify"]
