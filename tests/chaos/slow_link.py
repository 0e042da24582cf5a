"""A slow link: passes on what the nats-servers of other machines are sent, some time later.

A proxy on one machine to which nftables redirects the connections that are made from there: kernels
without `tc netem` cannot delay packets. Run as a program: `PORT MILLISECONDS JITTER`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys

#: Of connections that the proxy makes itself, so that they are not redirected.
MARK = 74
_ORIGINAL_DESTINATION = 80  # of getsockopt; Python does not name it


class Link:
    """Connections, each way delayed."""

    def __init__(self, delay_ms: float, jitter_ms: float) -> None:
        self._delay_ms, self._jitter_ms = delay_ms, jitter_ms
        self._running: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket").getsockopt(
            socket.SOL_IP, _ORIGINAL_DESTINATION, struct.calcsize("!HH4s8x")
        )
        _, port, host = struct.unpack("!HH4s8x", raw)
        out = socket.socket()
        out.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        out.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(out, (socket.inet_ntoa(host), port))
        except OSError:
            writer.close()
            out.close()
            return
        far_reader, far_writer = await asyncio.open_connection(sock=out)
        for way in (self._pass(reader, far_writer), self._pass(far_reader, writer)):
            task = asyncio.create_task(way)
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, in its order, each part after its delay."""
        loop, last = asyncio.get_running_loop(), 0.0
        try:
            while data := await reader.read(65536):
                delay_ms = self._delay_ms + random.uniform(0, self._jitter_ms)
                last = max(last, loop.time() + delay_ms / 1_000)
                loop.call_at(last, writer.write, data)
        except OSError:
            pass
        loop.call_at(max(last, loop.time()), writer.close)


async def main() -> None:
    port, delay_ms, jitter_ms = sys.argv[1:]
    link = Link(float(delay_ms), float(jitter_ms))
    server = await asyncio.start_server(link.accept, "127.0.0.1", int(port))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
