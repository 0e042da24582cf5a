"""Signatures: how a receiver knows that a callback comes from this broker, and is no old one.

The signature is the HMAC-SHA256 of the timestamp, a dot and the body. Every key signs, so that a
key is changed without a moment at which both ends must do it: add the new one, give it to the
receivers, remove the old one.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from jackalope.broker.config.callbacks import SigningKey

TIMESTAMP_HEADER = "Jackalope-Timestamp"
SIGNATURE_HEADER = "Jackalope-Signature"


def sign(keys: Iterable[SigningKey], timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove where a body comes from; none without a key."""
    signed = f"{timestamp}.".encode() + body
    signatures = [f"{key.name}={hmac.digest(key.secret, signed, 'sha256').hex()}" for key in keys]
    if not signatures:
        return {}
    return {TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: ", ".join(signatures)}
