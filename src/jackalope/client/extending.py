"""Extending an application: middleware, and what replaces dependencies in tests.

Owns both lists of the application. What a hook is and how it runs is in `jackalope.tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from jackalope.errors import ConfigError
from jackalope.tasks.middleware import Middleware

M = TypeVar("M", bound=Middleware | type[Middleware])

#: How many middlewares an application has at most.
MIDDLEWARES_MAX = 100


class Extending:
    """The part of an application that others extend."""

    def __init__(self) -> None:
        # the code around every submit and every attempt, the outermost first
        self.middlewares: list[Middleware] = []
        # what replaces the function of a dependency
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._sessions: Any = {}

    def middleware(self, middleware: M) -> M:
        """Put code around every submit and every attempt of this application.

            app.middleware(Tenancy())

        Also a decorator of a class that takes no arguments. The first one added is the outermost.

        Raises:
            ConfigError: it is none, there are too many, or the application is connected already.
        """
        made = middleware() if isinstance(middleware, type) else middleware
        if not isinstance(made, Middleware):
            raise ConfigError(f"middleware: must be a Middleware, not {type(made).__name__}")
        if len(self.middlewares) >= MIDDLEWARES_MAX:
            raise ConfigError(f"middleware: at most {MIDDLEWARES_MAX}")
        if self._sessions:
            raise ConfigError("middleware: add it before the application is first used")
        self.middlewares.append(made)
        return middleware

    @contextmanager
    def override(
        self, function: Callable[..., Any], replacement: Callable[..., Any]
    ) -> Iterator[None]:
        """Let another function make what a dependency makes, for a while: for tests.

            with app.override(session, lambda: fake):
                ...

        Isolated tasks, which run in processes of their own, do not see it.
        """
        before = self.overrides.get(function)
        self.overrides[function] = replacement
        try:
            yield
        finally:
            if before is None:
                self.overrides.pop(function, None)
            else:
                self.overrides[function] = before
