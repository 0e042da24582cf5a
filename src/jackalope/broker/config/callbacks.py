"""Settings of callbacks: where they may go, how they are signed, how long one may take."""

from __future__ import annotations

import re
import ssl
from ipaddress import ip_network
from typing import Annotated

import msgspec

from jackalope.broker.config.listening import about, secret
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND
from jackalope.core.shapes.callback import AllowedTargets, Network

#: How many keys sign, and how long the secret of one must be.
SIGNING_KEYS_MAX = 5
SECRET_CHARS_MIN = 16

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")


class CallbacksConfig(msgspec.Struct, frozen=True):
    """HTTP callbacks on the ends of tasks, flows and batches."""

    enabled: Annotated[
        bool, about("Deliver callbacks. If off, they wait in the queue `jackalope.callbacks`.")
    ] = True
    allow: Annotated[
        tuple[str, ...],
        about(
            "Where callbacks may go besides public addresses: networks such as `10.0.0.0/8`, "
            "addresses, or host names."
        ),
    ] = ()
    keys: Annotated[
        tuple[str, ...],
        secret(
            "The keys that sign, each `name:secret`, with a secret of at least 16 characters. "
            "Every key signs every callback; without any they are not signed."
        ),
    ] = ()
    base_url: Annotated[
        str,
        about(
            "The URL of the HTTP door as receivers reach it, such as `https://broker.example`, for "
            "the links in callbacks; empty for links without a host.",
            pattern="^(https?://.+)?$",
        ),
    ] = ""
    timeout_us: Annotated[
        int,
        about(
            "How long one delivery may take, from the name's resolution to the answer.",
            ge=100 * MILLISECOND,
            le=10 * MINUTE,
        ),
    ] = 10 * SECOND
    concurrency: Annotated[
        int, about("How many callbacks of a namespace are delivered at once.", ge=1, le=1_000)
    ] = 32
    ca: Annotated[
        str,
        about("The authorities that sign receivers' certificates, in PEM; empty for the system's."),
    ] = ""


class SigningKey(msgspec.Struct, frozen=True):
    """A key that signs callbacks."""

    name: str
    secret: bytes


def callback_settings_problems(config: CallbacksConfig) -> list[str]:
    """List what is invalid in the settings; no secret is repeated."""
    problems = []
    for number, text in enumerate(config.allow):
        if _network(text) is None and not _HOST.fullmatch(text.removesuffix(".")):
            problems.append(
                f"callbacks.allow[{number}]: must be a network such as 10.0.0.0/8, an address or a "
                f"host, got {text!r}"
            )
    if len(config.keys) > SIGNING_KEYS_MAX:
        problems.append(f"callbacks.keys: {len(config.keys)}; at most {SIGNING_KEYS_MAX}")
    names = []
    for number, text in enumerate(config.keys):
        name, _, word = text.partition(":")
        names.append(name)
        if not _KEY.fullmatch(name) or len(word) < SECRET_CHARS_MIN:
            problems.append(
                f"callbacks.keys[{number}]: must be name:secret, with a secret of at least "
                f"{SECRET_CHARS_MIN} characters"
            )
    if config.ca:
        try:
            client_tls(config)
        except ValueError as error:
            problems.append(str(error))
    if len(set(names)) < len(names):
        problems.append("callbacks.keys: each must have a name of its own")
    return problems


def allowed_targets(config: CallbacksConfig) -> AllowedTargets:
    """Return where callbacks may go besides public addresses."""
    networks, hosts = [], []
    for text in config.allow:
        network = _network(text)
        if network is None:
            hosts.append(text.lower().removesuffix("."))
        else:
            networks.append(network)
    return AllowedTargets(tuple(networks), tuple(hosts))


def signing_keys(config: CallbacksConfig) -> tuple[SigningKey, ...]:
    parts = (text.partition(":") for text in config.keys)
    return tuple(SigningKey(name, word.encode()) for name, _, word in parts)


def client_tls(config: CallbacksConfig) -> ssl.SSLContext:
    """Return what verifies receivers.

    Raises:
        ValueError: the file of authorities cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.ca:
        try:
            context.load_verify_locations(config.ca)
        except (OSError, ValueError) as error:
            raise ValueError(f"callbacks.ca {config.ca}: {error}") from None
    return context


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
