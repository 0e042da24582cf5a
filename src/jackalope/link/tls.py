"""TLS of a connection to the broker.

Owns how the broker is verified: against the system's authorities, or those of a file, and by its
name. Only who says so goes without.
"""

from __future__ import annotations

import ssl

from jackalope.link.address import Address
from jackalope.link.errors import ConfigError


def client_context(address: Address) -> ssl.SSLContext | None:
    """Return what a connection to the address is made with; None where it is plain.

    Raises:
        ConfigError: the file of authorities cannot be used.
    """
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"CA file {address.ca_file}: {reason}; name a file in PEM form") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trouble(address: Address, error: ssl.SSLError) -> str:
    """Say what is wrong with the other end's TLS, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {address} is not trusted: {error.verify_message}; "
            "name the file of the authority that signed it"
        )
    return f"{address} does not speak TLS as we do: {error.reason or error}"
