"""What the systems on Redis share: the server, the forgetting, and waiting for keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from bench.peers.base import Peer, until
from bench.peers.servers import start_redis

_KEYS_A_CALL = 1_000


class RedisPeer(Peer):
    """A system that keeps tasks, results or both in Redis."""

    durability = "{redis}"

    async def open(self) -> None:
        """Start Redis."""
        self.servers.append(start_redis(self.place))
        self.redis: Any = redis.Redis(port=self.place.redis_port)

    async def reset(self) -> None:
        """Empty Redis."""
        self.redis.flushall()

    async def close(self) -> None:
        """Disconnect the extra connection."""
        if self.servers:
            self.redis.close()

    async def wait_for_keys(self, keys: Sequence[str]) -> None:
        """Return once every key exists: a cheap question, asked of the last one first."""

        async def is_last_there() -> bool:
            return bool(self.redis.exists(keys[-1]))

        async def are_all_there() -> bool:
            parts = [keys[at : at + _KEYS_A_CALL] for at in range(0, len(keys), _KEYS_A_CALL)]
            return bool(sum(self.redis.exists(*part) for part in parts) == len(keys))

        await until(is_last_there)
        await until(are_all_there)
