"""`must`: a check for programmer errors that `python -O` cannot remove.

A failed `must` is a bug in Jackalope, never the fault of a caller's input: the node stops before it
writes anything.
"""


class BrokenInvariant(AssertionError):
    """A bug in Jackalope: an invariant does not hold."""


def must(condition: object, what: str, *details: object) -> None:
    """Raise `BrokenInvariant` if `condition` is false."""
    if not condition:
        raise BrokenInvariant(f"{what}: {', '.join(map(repr, details))}" if details else what)
