"""Certificates for tests: an authority that nobody else trusts, and what it signs."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import trustme

from jackalope.broker.config.exposure import server_context
from jackalope.broker.config.schema import TlsConfig


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form."""

    ca: str
    cert: str
    key: str
    authority: trustme.CA

    @property
    def config(self) -> TlsConfig:
        return TlsConfig(self.cert, self.key)


_folder = TemporaryDirectory(prefix="jackalope-certificates-")


@cache
def certificates(*names: str) -> Certificates:
    """Return a certificate of these names; of this machine if there are none."""
    return _issue(trustme.CA(), names or ("127.0.0.1", "localhost"))


def issued_by(authority: Certificates, *names: str, common_name: str = "") -> Certificates:
    """Return another certificate of an authority."""
    return _issue(authority.authority, names, common_name)


def _issue(authority: trustme.CA, names: tuple[str, ...], common_name: str = "") -> Certificates:
    folder = Path(mkdtemp(dir=_folder.name))
    issued = authority.issue_cert(*names, common_name=common_name or None)
    ca, cert, key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    made = Certificates(ca, cert, key, authority)
    authority.cert_pem.write_to_path(made.ca)
    issued.private_key_pem.write_to_path(made.key)
    with Path(made.cert).open("wb") as file:
        file.writelines(pem.bytes() for pem in issued.cert_chain_pems)
    assert server_context(made.config) is not None
    return made
