"""The gRPC door of a broker's process: whether it is installed, and opening it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from jackalope.broker.config.certificates import Certificates
from jackalope.broker.config.schema import Config
from jackalope.broker.service import Broker
from jackalope.cli.commands.serve import bad_config

if TYPE_CHECKING:
    from jackalope.doors.grpc.server import GrpcDoor

_HOW_TO_HAVE_IT = "grpc.enabled: needs pip install 'jackalope[grpc]'"


def grpc_problems(config: Config) -> list[str]:
    """List what keeps the door from opening, before there is a data folder."""
    if not config.grpc.enabled:
        return []
    if any(find_spec(name) is None for name in ("grpc", "grpc_health", "grpc_reflection")):
        return [_HOW_TO_HAVE_IT]
    from jackalope.doors.grpc.server import server_credentials

    try:
        server_credentials(config.tls, config.grpc.client_ca)
    except ValueError as error:
        return [str(error)]
    return []


async def open_grpc(broker: Broker, config: Config, certificates: Certificates) -> GrpcDoor | None:
    """Open the door if it is wanted; raises `OSError` if it cannot listen."""
    if problems := grpc_problems(config):
        raise bad_config(problems)
    grpc = config.grpc
    if not grpc.enabled:
        return None
    # What the library writes to the standard error has no place in a log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from jackalope.doors.grpc.server import GrpcDoor, server_credentials

    credentials = None
    if grpc.tls:
        ca = grpc.client_ca
        credentials = server_credentials(config.tls, ca, lambda: certificates.version)
        certificates.also_check(lambda: server_credentials(config.tls, ca))
    door = GrpcDoor(broker, grpc, credentials)
    await door.start()
    scheme = "grpc" if credentials is None else "grpcs"
    click.echo(f"gRPC at {scheme}://{grpc.host}:{door.port}")
    return door
