"""Which store of blobs a configuration means, and what is wrong with it before it is used."""

from pathlib import Path
from typing import Any

import pytest

from jackalope.broker.config.schema import BlobsConfig, Config, DataConfig, Store
from jackalope.cli.base import Exit, Failure
from jackalope.cli.blob_store import store_of
from jackalope.storage import Level, StorageFault
from jackalope.storage.blobs.s3 import Keys, S3Blobs

NOWHERE = "http://127.0.0.1:1"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "from the environment"}


def in_s3(**settings: Any) -> Config:
    known = {"bucket": "b", "endpoint": NOWHERE} | settings
    return Config(blobs=BlobsConfig(store=Store.S3, **known))


def test_folder_needs_nothing() -> None:
    assert store_of(Config(), {}) is None


def test_everything_that_is_wrong_is_told_at_once() -> None:
    config = Config(data=DataConfig(durability=Level.MEMORY), blobs=BlobsConfig(store=Store.S3))
    with pytest.raises(Failure) as raised:
        store_of(config, {})
    assert raised.value.code is Exit.USAGE
    assert [line.partition(":")[0] for line in raised.value.details] == [
        "blobs.bucket",
        "blobs.store",
    ]


def test_keys_of_the_environment() -> None:
    open_store = store_of(in_s3(), ENVIRONMENT)
    assert open_store is not None
    store = open_store("owner")  # It is out of reach, which stops nobody.
    assert isinstance(store, S3Blobs)
    assert store._place.keys == Keys("id", "from the environment")


def test_keys_of_a_file_come_first(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    open_store = store_of(in_s3(credentials_file=str(file)), ENVIRONMENT)
    assert open_store is not None
    with pytest.raises(StorageFault, match="cannot be read"):
        open_store("owner")
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = from the file\n")
    store = open_store("owner")
    assert isinstance(store, S3Blobs)
    assert store._place.keys == Keys("a", "from the file")


def test_link_life_and_prefix() -> None:
    open_store = store_of(in_s3(link_life_us=60_000_000, prefix="/a/b/"), ENVIRONMENT)
    assert open_store is not None
    store = open_store("owner")
    assert isinstance(store, S3Blobs)
    assert (store.link_life_s, str(store._place)) == (60, "s3://b/a/b")
