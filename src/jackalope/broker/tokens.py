"""Tokens: the secret texts by which the bearer of an API key proves to be one.

Owns their form, their making and their hash. A token is `jk_<id>_<secret>`: the id names the key in
lists and logs, the secret is 256 random bits. Of such a text a plain SHA-256 can be stored: slow
hashes protect passwords, which can be guessed, and nobody guesses 256 bits.
"""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256

_ID_BYTES = 6
_SECRET_BYTES = 32
_FORM = re.compile(r"jk_([0-9a-f]{1,32})_[A-Za-z0-9_-]{43}")

#: No token is longer; nobody can make us hash more.
TOKEN_CHARS_MAX = 128


def new_token() -> str:
    """Make a token that nobody else has."""
    return f"jk_{secrets.token_hex(_ID_BYTES)}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of(token: str) -> str:
    """Return the id of the key that a token belongs to; empty if it is none of ours."""
    if len(token) > TOKEN_CHARS_MAX:
        return ""
    found = _FORM.fullmatch(token)
    return found[1] if found else ""


def hash_of(token: str) -> str:
    """Return what is stored of a token."""
    return sha256(token.encode()).hexdigest()


def is_token_of(token: str, stored: str) -> bool:
    """Tell whether a token has this hash, in a time that does not say how nearly."""
    return hmac.compare_digest(hash_of(token), stored)
