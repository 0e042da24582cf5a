"""The documentation as a site: Sphinx on the Markdown that is here, and on the docstrings.

`make docs` builds it. The pages know nothing of the site, so that they read well wherever Markdown
is shown: what the site needs besides them is added here while they are read. The navigation follows
from the links of the pages called `index`, and the API from the public names of the package.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import jackalope  # noqa: E402  found by the line above

project = "Jackalope"
author = "the authors of Jackalope"
version = release = jackalope.__version__
html_title = f"Jackalope {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["site", "monitoring"]
templates_path: list[str] = []

# Anchors as forges make them, so that links to headings are checked too.
myst_heading_anchors = 4
# Blocks of code that no lexer reads, such as a frame byte by byte, stay plain.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s#]+\.md)(?:#[^)\s]*)?\)")
#: A link that leaves the folder of the documentation.
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\.?/[^)\s#]+)(?:#[^)\s]*)?\)")

#: What the first page leads to, with the headings of the navigation.
FIRST = {
    "": ["tutorial"],
    "Guides": ["how-to/index"],
    "Facts": ["reference/index"],
    "Background": ["explanation/index", "decisions/index"],
}

#: The pages of the API, and the modules of each besides the public names.
API_PAGE = "reference/api"
API_MODULES = ("jackalope.embedded", "jackalope.testing", "jackalope.kiwipy")


def setup(app: Any) -> None:
    """Join the build."""
    app.connect("source-read", _complete)
    # Before napoleon reads it.
    app.connect("autodoc-process-docstring", _to_restructured_text, priority=100)


# Pages.


def _complete(app: Any, name: str, source: list[str]) -> None:
    """Add to a page what the site needs."""
    text = _without_links_outside(Path(app.srcdir), name, source[0])
    if name == "index":
        text += "".join(_tree(pages, caption) for caption, pages in FIRST.items())
    elif name.endswith("/index"):
        text += _tree(_pages_of(source[0]))
    elif name == API_PAGE:
        text += _api()
    source[0] = text


def _without_links_outside(docs: Path, name: str, text: str) -> str:
    """Show what is in the repository and not in the documentation as a name, without a link."""
    folder = (docs / name).parent

    def shown(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return found[0]  # What is missing is an error of the build.
        return found[1]

    return OUTSIDE.sub(shown, text)


def _pages_of(text: str) -> list[str]:
    """Return the pages next to an index that it leads to, in its order."""
    pages = [page.removesuffix(".md") for page in LINK.findall(text) if "/" not in page]
    return list(dict.fromkeys(pages))


def _tree(pages: list[str], caption: str = "") -> str:
    head = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n\n```{toctree}\n" + head + "\n" + "\n".join(pages) + "\n```\n"


# The API.


def _api() -> str:
    """Write the directives that document the public names, and the modules next to them."""
    parts = ["\n\n## jackalope\n"]
    for name in sorted(jackalope.__all__):
        value = getattr(jackalope, name)
        kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        kind = "exception" if kind == "class" and issubclass(value, BaseException) else kind
        parts.append(_directive(f"auto{kind}", f"jackalope.{name}"))
    for module in API_MODULES:
        parts += [f"\n## {module}\n", _directive("automodule", module)]
    return "\n".join(parts)


def _directive(kind: str, name: str) -> str:
    return f"```{{eval-rst}}\n.. {kind}:: {name}\n```\n"


_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Examples?|Note):\s*$")
_NAME = re.compile(r"(?<![`\w])`([^`\n]+)`(?![`\w])")


def _to_restructured_text(  # the signature is Sphinx's
    _app: object, what: str, _name: str, _thing: object, _options: object, lines: list[str]
) -> None:
    """Read a docstring as it is meant: names in backticks are code, and so is what is indented."""
    if what in {"attribute", "data", "property"} and lines:
        # Napoleon would take what is before the colon for a type.
        lines[0] = lines[0].replace(": ", " - ")
    made: list[str] = []
    in_section = False
    for line in lines:
        if line and not line[0].isspace():
            in_section = bool(_SECTION.match(line))
        is_block = line.startswith("    ") and made and not made[-1].strip() and not in_section
        if is_block and not _is_within_block(made):
            made += ["::", ""]
        made.append(_NAME.sub(r"``\1``", line))
    lines[:] = made


def _is_within_block(lines: list[str]) -> bool:
    before = [line for line in lines if line.strip()]
    return bool(before) and before[-1].startswith("    ")
