"""The disk: making bytes and names survive a power failure, and keeping them private.

Owns the calls of the system; knows no file of ours.
"""

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "darwin":
    import fcntl


def sync_file(descriptor: int) -> None:
    """Return when the bytes of an open file are on the disk."""
    if sys.platform == "darwin":
        # There, fsync only hands the bytes to the drive, which may keep them in its cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, so that they survive a power failure."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    sync_folder(folder.parent)


def make_file(path: Path) -> None:
    """Create an empty file that is its owner's alone, unless there is one."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def keep_private(folder: Path) -> None:
    """Let only the owner into a folder and its files; one that is not ours stays as it is."""
    for path in (folder, *folder.iterdir()):
        mode = path.stat().st_mode
        if mode & 0o077 and not path.is_symlink():
            with suppress(PermissionError):
                path.chmod(stat.S_IMODE(mode) & 0o700)


def free_bytes(folder: Path) -> int:
    """Return how much of the disk of a folder is free for this user."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
