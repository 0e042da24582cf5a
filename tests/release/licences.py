"""The notices of what a package contains of others: the libraries in the dashboard."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTICES = ROOT / "THIRD_PARTY.txt"

_HEAD = """\
Jackalope's dashboard contains the libraries below, in src/jackalope/doors/http/page/assets. Each is
under the licence that follows its name. `REWRITE=1 pytest tests/release` writes this file from
dashboard/package-lock.json and the packages that it names.
"""


def bundled(root: Path = ROOT) -> dict[str, str]:
    """Return the packages that are built into the page, and their versions."""
    lock = json.loads((root / "dashboard" / "package-lock.json").read_text())
    return {
        place.removeprefix("node_modules/"): about["version"]
        for place, about in sorted(lock["packages"].items())
        if place and not about.get("dev") and not about.get("optional")
    }


def notices(root: Path = ROOT) -> str:
    """Return the notices of all of them; raises `LookupError` for one without a licence."""
    parts = [_HEAD]
    for name, version in bundled(root).items():
        folder = root / "dashboard" / "node_modules" / name
        about = json.loads((folder / "package.json").read_text())
        texts = sorted(folder.glob("LICEN[CS]E*"))
        if not texts:
            raise LookupError(f"{name}: has no licence in its package")
        title = f"{name} {version} ({about['license']})"
        parts.append(f"{title}\n{'-' * len(title)}\n\n{texts[0].read_text().strip()}\n")
    return "\n\n".join(parts)
