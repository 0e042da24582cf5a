"""Certificates for tests: an authority that nobody else trusts, and what it signs."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme

from jackalope.broker.exposure import server_context
from jackalope.broker.settings import TlsConfig


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form."""

    ca: str
    cert: str
    key: str

    @property
    def config(self) -> TlsConfig:
        return TlsConfig(self.cert, self.key)


_folder = TemporaryDirectory(prefix="jackalope-certificates-")


@cache
def certificates(*names: str) -> Certificates:
    """Return a certificate of these names; of this machine if there are none."""
    folder = Path(_folder.name) / ("-".join(names) or "local")
    folder.mkdir()
    authority = trustme.CA()
    issued = authority.issue_cert(*(names or ("127.0.0.1", "localhost")))
    made = Certificates(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))
    authority.cert_pem.write_to_path(made.ca)
    issued.private_key_pem.write_to_path(made.key)
    with Path(made.cert).open("wb") as file:
        file.writelines(pem.bytes() for pem in issued.cert_chain_pems)
    assert server_context(made.config) is not None
    return made
