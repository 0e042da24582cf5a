"""For Flask: tasks run within the context of the application.

Owns the middleware that does it. Views submit with `app.sync(task.submit(...))`, which may be
called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jackalope.client.app import Jackalope
from jackalope.tasks.context import Running
from jackalope.tasks.middleware import Middleware


class AppContext(Middleware):
    """Runs each attempt within the context of a Flask application."""

    def __init__(self, web: Any) -> None:
        self._web = web

    def around_run(self, task: Running) -> Iterator[None]:  # noqa: ARG002  a hook's signature
        """Push the context, and pop it when the attempt has ended."""
        with self._web.app_context():
            yield


def init_app(web: Any, app: Jackalope) -> None:
    """Let tasks use `current_app`, `g` and extensions such as Flask-SQLAlchemy.

        jackalope = Jackalope("jackalope://localhost:7420")
        web = Flask(__name__)
        init_app(web, jackalope)

    `web.extensions["jackalope"]` is the application.

    Raises:
        ConfigError: the application is connected already.
    """
    app.middleware(AppContext(web))
    web.extensions["jackalope"] = app
