"""The page of the dashboard: its files, as the build has left them in the package.

Owns how they are sent: compressed beforehand, with a tag, and for ever where the name of a file
says what is in it. What the page may load and run is said here too: its own files, nothing else.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Request
from jackalope.doors.http.router import Routes

routes = Routes()


FOLDER = Path(__file__).parent.parent / "page"
INDEX = "index.html"


#: What the build makes. The tables of machines differ, and a browser runs nothing of another type.
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: How each compressed form is called by HTTP and by the build; the smallest first.
_ENCODINGS = {"br": ".br", "gzip": ".gz"}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_NOT_BUILT = (
    "this install has no dashboard: it was made from the source without Node; `make dashboard` "
    "builds it, and released packages contain it"
)


class File(msgspec.Struct, frozen=True):
    """A file of the page."""

    forms: dict[str, bytes]  # its bytes by encoding; "" for those that are not encoded
    kind: str  # its media type
    tag: str  # names these bytes
    is_lasting: bool  # its name changes with its content


class Page:
    """The files of the page."""

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        compressed = set(_ENCODINGS.values())
        self._files = {
            path.relative_to(folder).as_posix(): _read(path, folder)
            for path in paths
            if path.suffix not in compressed
        }

    def answer(self, request: Request, name: str) -> Response:
        """Answer with a file."""
        file = self._files.get(name)
        if file is None:
            message = f"no file {name[:100]!r}" if INDEX in self._files else _NOT_BUILT
            raise Rejected(404, message)
        encoding = _best(file, request.header("accept-encoding"))
        body = file.forms[encoding]
        tag = f'"{file.tag}{encoding}"'
        lasting = "public, max-age=31536000, immutable"
        headers = {
            "Cache-Control": lasting if file.is_lasting else "no-cache",
            "Content-Security-Policy": _POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "ETag": tag,
            "Vary": "Accept-Encoding",
        }
        if tag in request.header("if-none-match"):
            return Response(status=304, headers=headers)
        if encoding:
            headers["Content-Encoding"] = encoding
        headers["Content-Length"] = str(len(body))
        is_head = request.method == "HEAD"
        return Response(b"" if is_head else body, headers=headers, media_type=file.kind)


def _read(path: Path, folder: Path) -> File:
    body = path.read_bytes()
    forms = {"": body}
    for encoding, suffix in _ENCODINGS.items():
        other = path.with_name(path.name + suffix)
        if other.is_file():
            forms[encoding] = other.read_bytes()
    kind = _KINDS.get(path.suffix, "application/octet-stream")
    tag = sha256(body).hexdigest()[:20]
    return File(forms, kind, tag, is_lasting=path.parent != folder)


def _best(file: File, accepted: str) -> str:
    """Return the smallest form that the client takes."""
    words = [word.replace(" ", "").lower() for word in accepted.split(",")]
    taken = {word.partition(";")[0] for word in words if not word.endswith(("q=0", "q=0.0"))}
    return next((each for each in _ENCODINGS if each in taken and each in file.forms), "")


@cache
def _page() -> Page:
    return Page()


@routes.read("/", "")
@routes.read("/login", "")
async def read_index(request: Request) -> Response:
    """Return the page, which asks for a key where one is needed."""
    return _page().answer(request, INDEX)


@routes.read("/assets/{name}", "")
async def read_asset(request: Request, name: str) -> Response:
    """Return what the page is made of."""
    return _page().answer(request, f"assets/{name}")
