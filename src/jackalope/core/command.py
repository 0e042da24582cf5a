"""The command: what every request to the core has in common."""

import msgspec

DEFAULT_NAMESPACE = "default"


class Command(msgspec.Struct, kw_only=True, gc=False):
    """A request, and where its answer goes."""

    session: int = 0
    ref: int = 0
