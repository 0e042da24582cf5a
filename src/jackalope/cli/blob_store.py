"""The store of blobs that is configured, for the process of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import structlog

from jackalope.broker.config.schema import BlobsConfig, Config, Store
from jackalope.cli.commands.serve import bad_config
from jackalope.core.durations import SECOND
from jackalope.storage import Blobs, Level, OutOfReach

log = structlog.get_logger(component="blobs")


def store_of(config: Config, environment: Mapping[str, str]) -> Callable[[str], Blobs] | None:
    """Return what opens the store of blobs; None if they are in the data folder."""
    if config.blobs.store is Store.FOLDER:
        return None
    problems = []
    if not config.blobs.bucket:
        problems.append("blobs.bucket: needed with `blobs.store: s3`")
    if config.data.durability is Level.MEMORY:
        problems.append("blobs.store: `s3` needs a `data.durability` other than `memory`")
    if find_spec("obstore") is None:
        problems.append("blobs.store: `s3` needs obstore; pip install 'jackalope[s3]'")
    if problems:
        raise bad_config(problems)
    claims = not config.peer.follow  # A standby may have the bucket of the broker it follows.
    return lambda owner: _open_s3(config.blobs, environment, owner, claims=claims)


def _open_s3(
    settings: BlobsConfig, environment: Mapping[str, str], owner: str, *, claims: bool
) -> Blobs:
    from jackalope.storage.blobs.s3 import Keys, S3Blobs, S3Place, keys_from

    keys = None
    if settings.credentials_file:
        keys = keys_from(Path(settings.credentials_file))
    elif "AWS_ACCESS_KEY_ID" in environment and "AWS_SECRET_ACCESS_KEY" in environment:
        keys = Keys(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            environment.get("AWS_SESSION_TOKEN", ""),
        )
    place = S3Place(
        settings.bucket, settings.prefix.strip("/"), settings.endpoint, settings.region, keys
    )
    blobs = S3Blobs(place, owner, settings.link_life_us // SECOND)
    try:
        if claims:
            blobs.claim()
    except OutOfReach as fault:
        log.warning("the blob store is unreachable", fault=str(fault))
    return blobs
