"""The seal of a fan-out: the certificate that its owner shows to helpers.

Helpers know it by its fingerprint, which the broker tells them over its own encrypted connection;
so it needs no authority, and may be made on the spot.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from jackalope.link.errors import ConfigError
from jackalope.worker.surroundings import Surroundings

_MAKE_S = 20.0


def server_seal(surroundings: Surroundings) -> tuple[ssl.SSLContext | None, str]:
    """Return how to listen for helpers, and the fingerprint; nothing where the broker is plain.

    Raises:
        ConfigError: the connection to the broker is encrypted, and there is no certificate for
            helpers.
    """
    if not surroundings.address.tls:
        return None, ""
    if surroundings.fanout_cert:
        return _load(Path(surroundings.fanout_cert), Path(surroundings.fanout_key))
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ConfigError(
            "no certificate for helpers: name one with --fanout-cert, or install openssl"
        )
    with TemporaryDirectory(prefix="jackalope-fanout-") as folder:
        cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        command = [openssl, "req", "-x509", "-newkey", "ec", "-nodes", "-days", "3650"]
        command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=jackalope-fanout"]
        command += ["-keyout", str(key), "-out", str(cert)]
        try:
            # The program that the path of this worker names, with words of our own.
            subprocess.run(  # noqa: S603
                command, capture_output=True, check=True, timeout=_MAKE_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"no certificate for helpers: openssl failed: {error}") from None
        return _load(cert, key)


def _load(cert: Path, key: Path) -> tuple[ssl.SSLContext, str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
        text = cert.read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate for helpers {cert}: {error}") from None
    first = text[: text.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    der = ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN CERTIFICATE-----") :])
    return context, sha256(der).hexdigest()
