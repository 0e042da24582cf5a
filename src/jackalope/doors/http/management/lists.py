"""Lists of the management API: pages, columns, order and filters, as its clients ask for them."""

from __future__ import annotations

import re
from typing import Any

from jackalope.doors.http.management.words import Answer, Asked, answer, bad

Item = dict[str, Any]

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 500


def listed(request: Asked, items: list[Item]) -> Answer:
    """Answer with a list, or with a page of it if a page is asked for.

    Raises:
        Problem: the page, its size or the filter cannot be.
    """
    asked = request.query_params
    total = len(items)
    items = _filtered(items, asked.get("name", ""), is_pattern=asked.get("use_regex") == "true")
    items = _sorted(items, asked.get("sort", ""), is_reversed=asked.get("sort_reverse") == "true")
    if "page" not in asked:
        return answer([_columns(item, asked.get("columns", "")) for item in items])
    page = _count(asked["page"], "page", 10**9)
    size = _count(asked.get("page_size", str(PAGE_ROWS_DEFAULT)), "page_size", PAGE_ROWS_MAX)
    pages = -(-len(items) // size)
    if page > max(1, pages):
        raise bad(f"page out of range, page: {page} page size: {size}, len: {len(items)}")
    shown = items[(page - 1) * size : page * size]
    return answer(
        {
            "filtered_count": len(items),
            "item_count": len(shown),
            "items": [_columns(item, asked.get("columns", "")) for item in shown],
            "page": page,
            "page_count": pages,
            "page_size": size,
            "total_count": total,
        }
    )


def shown(request: Asked, item: Item) -> Answer:
    """Answer with one thing."""
    return answer(_columns(item, request.query_params.get("columns", "")))


def _columns(item: Item, names: str) -> Item:
    """Return what was asked for; a name with dots leads into what is inside."""
    if not names:
        return item
    found: Item = {}
    for name in names.split(","):
        here: Any = item
        into, parts = found, name.split(".")
        for depth, part in enumerate(parts):
            if not isinstance(here, dict) or part not in here:
                break
            here = here[part]
            if depth == len(parts) - 1:
                into[part] = here
            else:
                into = into.setdefault(part, {})
    return found


def _filtered(items: list[Item], name: str, *, is_pattern: bool) -> list[Item]:
    if not name:
        return items
    if not is_pattern:
        return [item for item in items if name.lower() in str(item.get("name", "")).lower()]
    try:
        pattern = re.compile(name, re.IGNORECASE)
    except re.error as error:
        raise bad(f"name: {error}") from None
    return [item for item in items if pattern.search(str(item.get("name", "")))]


def _sorted(items: list[Item], column: str, *, is_reversed: bool) -> list[Item]:
    if not column:
        return items

    def rank(item: Item) -> tuple[bool, Any]:
        value = item.get(column)
        is_number = isinstance(value, int | float)
        return is_number, value if is_number else str(value)

    return sorted(items, key=rank, reverse=is_reversed)


def _count(value: str, name: str, most: int) -> int:
    if not value.isdigit() or not 0 < int(value[:12]) <= most:
        raise bad(f"{name}: must be a number from 1 to {most}, got {value[:20]!r}")
    return int(value)
