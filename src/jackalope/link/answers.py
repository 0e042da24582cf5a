"""Answers: what the body of an ACK says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jackalope.core.effects import Served
from jackalope.link.errors import Rejected


def to_rejected(refusal: Mapping[str, Any]) -> Rejected:
    """Make an error of a refusal as it stands in an answer."""
    return Rejected(refusal["code"], refusal["message"], refusal.get("retry_after_us", 0))


def refusals(body: Mapping[str, Any]) -> dict[int, Rejected]:
    """Return which items of a list were refused, by their index in the request."""
    return {index: to_rejected(refusal) for index, refusal in body.get("refused") or ()}


def served(body: Mapping[str, Any]) -> dict[int, Served]:
    """Return how those items of a list are served that are requests, by their index."""
    return {
        index: msgspec.convert(how, Served, builtin_types=(bytes,))
        for index, how in body.get("served") or ()
    }
