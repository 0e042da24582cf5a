"""What building a package adds to what hatchling does.

Owns that no package is made without the dashboard, and where the project lives on the web, which
the one who releases it names in the environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGE = Path("src/jackalope/doors/http/page/index.html")

#: Where the project lives on the web; the links on an index are made of it.
URL = "JACKALOPE_URL"

_MISSING = (
    "the dashboard is not built: src/jackalope/doors/http/page/index.html is missing, and a "
    "package without it would serve an empty page. Install Node 20.19 or newer with npm and build "
    "again, or run `make dashboard` where npm is; `make dist` does all of it"
)


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the dashboard into the package where it is missing, and refuses to do without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Look for the page; an editable install serves what is built later."""
        root = Path(self.root)
        if version == "editable" or (root / PAGE).is_file():
            return
        npm = shutil.which("npm")
        if npm is None or not (root / "dashboard" / "package.json").is_file():
            raise RuntimeError(_MISSING)
        print("building the dashboard with npm", file=sys.stderr)  # noqa: T201
        for arguments in (["ci", "--silent"], ["run", "--silent", "build"]):
            made = subprocess.run(  # noqa: S603  our own build
                [npm, *arguments], cwd=root / "dashboard", check=False
            )
            if made.returncode:
                raise RuntimeError(f"npm {arguments[0]} failed; {_MISSING}")
        if not (root / PAGE).is_file():
            raise RuntimeError(_MISSING)


class LinksHook(MetadataHookInterface):
    """Adds the links of the project, if its place on the web is named."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the links."""
        home = os.environ.get(URL, "").rstrip("/")
        metadata["urls"] = {} if not home else links(home)


def links(home: str) -> dict[str, str]:
    """Return the links to a repository and what is in it."""
    tree = f"{home}/blob/main"
    return {
        "Homepage": home,
        "Documentation": f"{tree}/docs/index.md",
        "Changelog": f"{tree}/CHANGELOG.md",
        "Issues": f"{home}/issues",
        "Security": f"{tree}/SECURITY.md",
    }
