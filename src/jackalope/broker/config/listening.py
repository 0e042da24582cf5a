"""Settings of what listens: those that all doors share, and those of the gRPC door."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.core.durations import HOUR, SECOND

MEBIBYTE = 1024 * 1024


def about(text: str, **bounds: Any) -> Meta:
    return Meta(description=text, **bounds)


def secret(text: str) -> Meta:
    """Describe a setting whose value is never shown."""
    return Meta(description=text, extra={"secret": True})


Port = Annotated[int, about("The port to listen on; 0 for any free one.", ge=0, le=65_535)]


class ListenConfig(msgspec.Struct, frozen=True):
    """The settings that all doors share."""

    host: Annotated[
        str, about("The address to listen on; `0.0.0.0` for all interfaces.", min_length=1)
    ] = "127.0.0.1"
    port: Port = 0
    max_connections: Annotated[
        int, about("The maximum number of open connections; more are refused.", ge=1, le=1_000_000)
    ] = 10_000
    tls: Annotated[bool, about("Use TLS if `tls.cert` is set.")] = True


RatePerSecond = Annotated[
    int,
    about(
        "The rate limit of each API key, in requests per second; 0 for no limit. Without API keys "
        "there is no limit.",
        ge=0,
        le=1_000_000,
    ),
]
RateBurst = Annotated[int, about("The burst size of the rate limit.", ge=1, le=1_000_000)]


class Compression(StrEnum):
    """How the gRPC door compresses what it sends."""

    NONE = "none"
    GZIP = "gzip"
    DEFLATE = "deflate"


class GrpcConfig(ListenConfig, frozen=True):
    """The gRPC door. It needs `jackalope[grpc]`."""

    enabled: Annotated[bool, about("Open the gRPC door.")] = False
    port: Port = 7422
    message_bytes_max: Annotated[
        int,
        about(
            "The maximum size of a message that is received; larger bodies are uploaded in chunks.",
            ge=64 * 1024,
            le=256 * MEBIBYTE,
        ),
    ] = 4 * MEBIBYTE
    upload_bytes_max: Annotated[
        int,
        about(
            "The maximum size of an uploaded payload or result.",
            ge=64 * 1024,
            le=1024 * 1024 * MEBIBYTE,
        ),
    ] = 16 * 1024 * MEBIBYTE
    max_calls: Annotated[
        int,
        about(
            "The maximum number of calls under way, open streams included; more are refused.",
            ge=1,
            le=1_000_000,
        ),
    ] = 20_000
    compression: Annotated[
        Compression,
        about("How answers are compressed. What clients compress is always understood."),
    ] = Compression.NONE
    keepalive_us: Annotated[
        int,
        about(
            "How often a connection without traffic is probed. One that does not answer within "
            "the same time is closed.",
            ge=SECOND,
            le=HOUR,
        ),
    ] = 20 * SECOND
    client_ca: Annotated[
        str,
        about(
            "The certificate authorities for client certificates, in PEM format. If set, every "
            "client must show one; without a token it gets the API key with the name of its "
            "certificate."
        ),
    ] = ""
    reflection: Annotated[bool, about("Describe the services to clients that ask.")] = True
    rate_per_s: RatePerSecond = 0
    rate_burst: RateBurst = 200
