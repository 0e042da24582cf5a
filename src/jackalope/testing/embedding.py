"""An application with a broker and a worker inside the test.

Owns where the application finds its broker meanwhile. Nothing is imitated but the distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jackalope.client.app import Jackalope
from jackalope.embedded import EmbeddedBroker
from jackalope.link.address import parse_address


@contextmanager
def embedded(
    app: Jackalope, folder: Path | str | None = None, *, concurrency: int = 0
) -> Iterator[Jackalope]:
    """Let an application work with a broker and a worker inside this process, for a while.

        with embedded(shop.app) as app:
            assert app.sync(shop.greet.run("Ada")) == "Hello, Ada!"

    An async test uses `async with app:` within, so that its connection is closed at the end.

    Args:
        app: the application, as the program itself uses it.
        folder: where the broker keeps its data; None for memory.
        concurrency: how many tasks run at once; 0 for as many as fit their kind.

    Raises:
        StorageFault: the folder cannot be used.
    """
    app.sync.close()
    address, broker = app.address, EmbeddedBroker(folder)
    app.address = replace(parse_address(broker.address), namespace=address.namespace)
    try:
        broker.work(app, concurrency)
        yield app
    finally:
        app.sync.close()
        app.address = address
        broker.stop()
