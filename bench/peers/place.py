"""Where one system runs: its folder and its ports, handed to its worker by the environment."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bench.peers.processes import free_port

_PREFIX = "JACKALOPE_BENCH_"


@dataclass(frozen=True)
class Place:
    """A private folder and free ports, the same for the driver and the worker of a system."""

    name: str
    folder: str
    redis_fsync: str
    queue_type: str
    redis_port: int
    rabbitmq_port: int
    postgres_port: int
    jackalope_port: int

    @classmethod
    def new(cls, name: str, folder: Path, redis_fsync: str, queue_type: str) -> Self:
        """Choose free ports."""
        ports = [free_port() for _ in range(4)]
        return cls(name, str(folder), redis_fsync, queue_type, *ports)

    @classmethod
    def current(cls) -> Self:
        """Read the place from the environment, where `export` put it."""
        read = {
            field: os.environ.get(_PREFIX + field.upper(), "0") for field in cls.__annotations__
        }
        return cls(
            name=read["name"],
            folder=read["folder"],
            redis_fsync=read["redis_fsync"],
            queue_type=read["queue_type"],
            redis_port=int(read["redis_port"]),
            rabbitmq_port=int(read["rabbitmq_port"]),
            postgres_port=int(read["postgres_port"]),
            jackalope_port=int(read["jackalope_port"]),
        )

    def export(self) -> None:
        """Put the place into the environment, for the modules and processes to come."""
        for field, value in asdict(self).items():
            os.environ[_PREFIX + field.upper()] = str(value)

    @property
    def path(self) -> Path:
        """Return the folder."""
        return Path(self.folder)

    @property
    def redis_url(self) -> str:
        """Return where Redis will be."""
        return f"redis://127.0.0.1:{self.redis_port}/0"

    @property
    def amqp_url(self) -> str:
        """Return where RabbitMQ will be; `%2F` is its default virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.rabbitmq_port}/%2F"

    @property
    def postgres_url(self) -> str:
        """Return where PostgreSQL will be."""
        return f"postgresql://postgres@127.0.0.1:{self.postgres_port}/postgres"
