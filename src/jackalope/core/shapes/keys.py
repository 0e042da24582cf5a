"""Keys: named values of a task, such as its user or its tenant, by which limits and shares go.

Owns where the value of a key comes from and what text it becomes. The submitter sends keys with the
task (`Options.keys`); what it did not send is looked for in the headers, and then in the keyword
arguments of a payload that is kept inline, in JSON or MessagePack. So a client of any language gets
the same keys. Knows nothing of what they are used for.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from jackalope.core.limits import KEY_NAME_CHARS_MAX, KEY_VALUE_CHARS_MAX, KEYS_PER_TASK_MAX

#: The arguments of a call, by place and by name, each still encoded.
_Call = tuple[msgspec.Raw, dict[str, msgspec.Raw]]

_Named = dict[str, msgspec.Raw]

#: What JSON begins with here. In MessagePack these are whole numbers, which nothing follows.
_JSON_BEGINS = (b"{", b"[")

_json_call = msgspec.json.Decoder(_Call).decode
_json_named = msgspec.json.Decoder(_Named).decode
_packed_call = msgspec.msgpack.Decoder(_Call).decode
_packed_named = msgspec.msgpack.Decoder(_Named).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def text_of(value: object) -> str:
    """Return a value as the text of a key; empty if there is none.

    A text stays what it is, so that the number 7 and the text "7" are the same key. A text that is
    too long is replaced by its hash.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = b64encode(value).decode()
    else:
        try:
            text = _encode(value).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            return ""
    return text if len(text) <= KEY_VALUE_CHARS_MAX else sha256(text.encode()).hexdigest()


def value_of(
    name: str, keys: Mapping[str, str], headers: Mapping[str, Any], payload: object
) -> str:
    """Return the value of a key of a task; empty if it has none.

    Args:
        name: the key; a dotted one names a field of a header or of an argument.
        keys: what the submitter sent.
        headers: the headers of the task.
        payload: its payload; one that is not inline is not read.
    """
    found = keys.get(name)
    if found is not None:
        return found
    return text_of(_in_map(name, headers)) or text_of(_in_payload(name, payload))


def fill_in(
    names: Iterable[str], keys: Mapping[str, str], headers: Mapping[str, Any], payload: object
) -> dict[str, str]:
    """Return the keys of these names that the submitter did not send, as far as there are any."""
    found = {}
    for name in names:
        if name not in keys and (value := value_of(name, keys, headers, payload)):
            found[name] = value
    return found


def key_problems(keys: Mapping[str, str]) -> list[str]:
    """List what is wrong with the keys of a task."""
    problems = []
    if len(keys) > KEYS_PER_TASK_MAX:
        problems.append(f"keys: more than {KEYS_PER_TASK_MAX}")
    if any(key_name_problem(name) for name in keys):
        problems.append(f"keys: a name must have 1 to {KEY_NAME_CHARS_MAX} characters, none NUL")
    if any(len(value) > KEY_VALUE_CHARS_MAX or "\0" in value for value in keys.values()):
        problems.append(f"keys: a value has at most {KEY_VALUE_CHARS_MAX} characters, none NUL")
    return problems


def key_name_problem(name: str) -> str:
    """Return what is wrong with the name of a key; empty if nothing is."""
    if 0 < len(name) <= KEY_NAME_CHARS_MAX and "\0" not in name:
        return ""
    return f"must have 1 to {KEY_NAME_CHARS_MAX} characters, none of them NUL"


def _in_map(name: str, values: Mapping[str, Any]) -> object:
    """Return a value by its name or by its path; None if there is none."""
    if name in values:
        return values[name]
    found: object = values
    for part in name.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _in_payload(name: str, payload: object) -> object:
    """Return a keyword argument of a call, or a field of a map; None if there is none."""
    if not isinstance(payload, bytes) or len(payload) < 2:
        return None
    is_json = payload.startswith(_JSON_BEGINS)
    decode = msgspec.json.decode if is_json else msgspec.msgpack.decode
    named = _named_in(payload, is_json=is_json)
    first = name if name in named else name.partition(".")[0]
    if first not in named:
        return None
    try:
        value = decode(named[first])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return _in_map(name, {first: value})


def _named_in(payload: bytes, *, is_json: bool) -> _Named:
    """Return the keyword arguments of a call, or the fields of a map, each still encoded."""
    call: _Call
    named: _Named
    try:
        call = _json_call(payload) if is_json else _packed_call(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    else:
        return call[1]
    try:
        named = _json_named(payload) if is_json else _packed_named(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return named
