"""A real S3 server in a process of its own: moto's."""

import os
import subprocess
import sys
import threading
import urllib.request
from collections import deque
from pathlib import Path
from uuid import uuid4

from jackalope.storage.blobs.s3 import Keys, S3Place

KEYS = Keys("test-id", "test-secret")


class S3Server:
    """The server.

    Attributes:
        url: where it is.
        port: where it listens; given to another, that one takes its place.
    """

    def __init__(self, port: int = 0) -> None:
        program = str(Path(sys.executable).with_name("moto_server"))
        self._process = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": "50"},
        )
        err = self._process.stderr
        assert err is not None
        self.url = next(line for line in err if " * Running on " in line).split()[-1]
        self.port = int(self.url.rpartition(":")[2])
        # It logs every request, and a full pipe would stop it.
        self._reader = threading.Thread(target=lambda: deque(err, 0), daemon=True)
        self._reader.start()
        self.make_bucket("test")

    def place(self, **changes: str) -> S3Place:
        """Return a place that nobody else uses."""
        return S3Place("test", changes.get("prefix", f"deep/{uuid4().hex}"), self.url, keys=KEYS)

    def make_bucket(self, name: str) -> None:
        self.ask("PUT", f"/{name}")

    def uploads(self) -> int:
        """Count the uploads that have begun and not ended."""
        return self.ask("GET", "/test?uploads").count("<Upload>")

    def ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return str(answer.read().decode())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._reader.join(10)
        if self._process.stderr is not None:
            self._process.stderr.close()
