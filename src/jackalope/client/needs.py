"""Needs: what a task asks of its worker, as a user writes it.

Owns the checks of `needs`, `prefer`, `avoid` and `sticky`. Which worker has what is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackalope.core.shapes.needs import Labels, Needs, needs_problems, read_labels, read_needs
from jackalope.errors import ConfigError


def check_needs(value: object) -> Needs:
    """Return needs as the wire takes them. Raises `ConfigError` with all that is wrong."""
    problems: list[str] = []
    needs = read_needs(_mapping(value), problems)
    return _sound(needs, problems)


def check_labels(value: object) -> Labels:
    """Return labels as the wire takes them. Raises `ConfigError` with all that is wrong."""
    problems: list[str] = []
    labels = read_labels(_mapping(value), problems, "labels")
    _sound(Needs(labels=labels), problems)
    return labels


def join_needs(given: Mapping[str, Any]) -> Needs | None:
    """Return all that a task needs of its worker; None if it needs nothing."""
    needs: Needs = given.get("needs", Needs())
    whole = Needs(needs.resources, needs.labels, given.get("prefer", ()), given.get("avoid", ()))
    if problems := needs_problems(whole):
        raise ConfigError("; ".join(problems))
    return None if whole == Needs() else whole


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError('a map such as {"gpu": 1, "mem": "8GiB", "arch": "arm64"}')
    return value


def _sound(needs: Needs, problems: list[str]) -> Needs:
    problems += needs_problems(needs)
    if problems:
        told = (each.removeprefix("needs: ").removeprefix("labels: ") for each in problems)
        raise ConfigError("; ".join(told))
    return needs
