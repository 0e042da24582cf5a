"""Views of namespaces: their settings, how much of their quotas is used, and the audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from jackalope.core import Core
from jackalope.core.audit import AuditEntry
from jackalope.core.shapes.namespace import Quota
from jackalope.core.state.queue import Namespace
from jackalope.wire.views import ActPage, ActView, NamespaceView


def namespace_views(core: Core, name: str = "") -> list[NamespaceView]:
    """Show all namespaces, or the one of this name."""
    found, use = sorted(core.book.namespaces.items()), quota_use(core)
    return [_view(each, use(each)) for each_name, each in found if name in ("", each_name)]


def quota_use(core: Core) -> Callable[[Namespace], dict[Quota, int]]:
    """Return what counts the use of a namespace's quotas. Bytes only where they are limited."""
    workers = Counter(namespace for namespace, _ in core.roster.workers)
    keys = Counter(key.namespace for key in core.book.api_keys.values())

    def use(namespace: Namespace) -> dict[Quota, int]:
        used = {
            Quota.TASKS_QUEUED: namespace.depth,
            Quota.WORKERS: workers[namespace.name],
            Quota.API_KEYS: keys[namespace.name],
            Quota.CONCURRENT_ATTEMPTS: namespace.leased,
        }
        if namespace.bytes_stored is not None:
            used[Quota.BYTES_STORED] = namespace.bytes_stored
        settings = namespace.settings
        if settings.submits_per_second:
            left = namespace.bucket_now.tokens(settings, core.now_us)
            used[Quota.SUBMITS_PER_SECOND] = settings.burst() - left
        return used

    return use


def _view(namespace: Namespace, used: dict[Quota, int]) -> NamespaceView:
    return NamespaceView(
        name=namespace.name,
        settings=namespace.settings,
        used={str(quota): count for quota, count in used.items()},
        queues=len(namespace.queues),
        created_us=namespace.created_us,
        by=namespace.by,
        is_declared=namespace.is_declared,
    )


class Which(msgspec.Struct, frozen=True):
    """Which acts are shown: all conditions must hold, and what is empty is none."""

    text: str = ""  # in any field
    by: str = ""  # in who did it
    what: str = ""  # in what was done
    newer_than_us: int = 0
    older_than_us: int = 0

    def __contains__(self, entry: AuditEntry) -> bool:
        act = entry.act
        return (
            entry.at_us >= self.newer_than_us
            and (not self.older_than_us or entry.at_us < self.older_than_us)
            and self.by in act.by
            and self.what in act.what
            and (not self.text or any(self.text in each for each in msgspec.structs.astuple(act)))
        )


def act_page(core: Core, own: str, which: Which, cursor: str, limit: int) -> ActPage:
    """Show the latest acts: of one namespace, or all if `own` is empty.

    Numbers of the log count the acts of all namespaces, so those of one are numbered by their time.
    """
    before = int(cursor) if cursor.isascii() and cursor.isdigit() else 0
    log = core.book.audit
    entries = _numbered_by_time(log.of(own)) if own else log.in_order()
    acts: list[ActView] = []
    for entry in reversed(entries):
        if entry.number >= before > 0 or entry not in which:
            continue
        if len(acts) == limit:
            return ActPage(acts, str(acts[-1].number))
        acts.append(ActView(entry.number, entry.at_us, **msgspec.structs.asdict(entry.act)))
    return ActPage(acts)


def latest_act_us(core: Core, namespace: str) -> int:
    """Return when the last act in a namespace was; 0 if there was none."""
    return max((entry.at_us for entry in core.book.audit.of(namespace)[-1:]), default=0)


def _numbered_by_time(entries: list[AuditEntry]) -> list[AuditEntry]:
    """Return entries numbered by their time, each higher than the one before; oldest first."""
    numbered: list[AuditEntry] = []
    last = 0
    for entry in entries:
        last = max(entry.at_us, last + 1)
        numbered.append(msgspec.structs.replace(entry, number=last))
    return numbered
