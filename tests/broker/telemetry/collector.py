"""A collector of traces: a real server for OTLP over HTTP that keeps what it gets."""

from __future__ import annotations

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens on a port of its own.

    Attributes:
        spans: what has come so far, each with the service that sent it.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {each.key: each.value.string_value for each in group.resource.attributes}
            service = attributes["service.name"]
            self.spans += [(service, span) for scope in group.scope_spans for span in scope.spans]

    def wait_for(self, count: int, seconds: float = 20) -> dict[str, Span]:
        """Wait for so many spans, and return them by service and name."""
        until = time.monotonic() + seconds
        while len(self.spans) < count and time.monotonic() < until:
            time.sleep(0.02)
        return {f"{service}: {span.name}": span for service, span in self.spans}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
