"""Exposure: where a broker may listen, and with which certificate.

No client is served on a network by accident: beyond this machine a broker needs keys and TLS,
unless it is configured to do without.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from functools import lru_cache

from jackalope.broker.config.schema import Config, TlsConfig


@lru_cache(1_000)
def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_open(config: Config) -> bool:
    """Return whether the broker may accept every client while it has no key."""
    return config.auth.insecure or not list(_exposed(config))


def exposure_problems(config: Config, *, has_keys: bool) -> list[str]:
    """List what is missing for the addresses where the broker must listen, and what to do."""
    if config.auth.insecure:
        return []
    problems = []
    for door, host, has_tls in _exposed(config):
        if not has_tls:
            problems.append(
                f"{door}.host is {host}, and without TLS the traffic can be intercepted: set "
                "tls.cert and tls.key"
            )
        if not has_keys:
            problems.append(
                f"{door}.host is {host}, and without an API key every client there has all "
                "permissions: create one with `jackalope keys new`, and put it into auth.keys"
            )
    peer = config.peer
    is_exposed = bool(peer.port) and not is_loopback(peer.host or "127.0.0.1")
    if is_exposed and not (config.tls.cert and peer.tls):
        problems.append(
            f"peer.host is {peer.host}, and without TLS the traffic can be intercepted: set "
            "tls.cert and tls.key"
        )
    if problems:
        problems.append("or listen on 127.0.0.1; or accept all of this with --insecure")
    return problems


def _exposed(config: Config) -> Iterable[tuple[str, str, bool]]:
    """Yield the doors that other machines reach, where they listen, and whether with TLS."""
    has_certificate = bool(config.tls.cert)
    native, http, amqp, grpc = config.native, config.http, config.amqp, config.grpc
    if not is_loopback(native.host):
        yield "native", native.host, has_certificate and native.tls
    if http.enabled and not is_loopback(http.host):
        yield "http", http.host, has_certificate and http.tls
    if amqp.enabled and not is_loopback(amqp.host):
        yield "amqp", amqp.host, has_certificate and amqp.tls
    if grpc.enabled and not is_loopback(grpc.host):
        yield "grpc", grpc.host, has_certificate and grpc.tls


def server_context(tls: TlsConfig, client_ca: str = "") -> ssl.SSLContext | None:
    """Return what the doors encrypt with; None without a certificate.

    `client_ca` is the file of authorities whose certificates clients may show; empty if clients are
    not asked for any.
    """
    if not tls.cert and not tls.key:
        if client_ca:
            raise ValueError("amqp.client_ca needs TLS; set tls.cert and tls.key")
        return None
    if not tls.cert or not tls.key:
        raise ValueError("tls.cert and tls.key must be set together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Asked for a password, it would wait at an unattended terminal.
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ValueError(f"tls.cert {tls.cert}, tls.key {tls.key}: {_reason(error)}") from None
    if client_ca:
        _ask_clients(context, client_ca)
    return context


def client_context(tls: TlsConfig, ca: str) -> ssl.SSLContext | None:
    """Return what a node encrypts with when it connects to another; None without a certificate.

    Raises:
        ValueError: the file of authorities cannot be used.
    """
    if not tls.cert:
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ValueError) as error:
            raise ValueError(f"peer.ca {ca}: {_reason(error)}") from None
    return context


def _ask_clients(context: ssl.SSLContext, client_ca: str) -> None:
    """Ask clients for a certificate; those that have none may prove otherwise who they are."""
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise ValueError(f"amqp.client_ca {client_ca}: {_reason(error)}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


def _reason(error: Exception) -> str:
    """Return why a file cannot be used, without the text that Python adds."""
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)


def _no_password() -> str:
    raise ValueError("the private key is encrypted; store it without a password")
