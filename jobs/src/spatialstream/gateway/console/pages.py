"""Server of the console's files: from memory, compressed, with a content security policy that allows nothing else."""

from __future__ import annotations

import gzip
import hashlib
import json
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from spatialstream.model.kinds import KINDS
from spatialstream.web import FOLDER

__all__ = ["Pages"]

_HERE = Path(__file__).parent
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".css": "text/css", ".html": "text/html; charset=utf-8"}
_POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_MISSING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Console: incomplete</title>
<h1>The console is not complete</h1>
<p>The files of its map are downloaded when the project is set up, and are missing. Run <code>make console</code> in the
project's folder, and reload this page. Everything else that this gateway serves works without them.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bytes
    tag: str
    kind: str

    @classmethod
    def of(cls, content: bytes, kind: str) -> Self:
        """A file of this content and media type."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
        return cls(content, gzip.compress(content, 6, mtime=0), tag, kind)


def _kinds() -> bytes:
    """The module ``kinds.js``: what the page has to know of each type of query."""
    kinds = {
        kind.type: {
            "title": kind.wording.title,
            "selects": kind.selection.__name__,
            "continuous": kind.continuous,
            "required": [*kind.required],
            "fields": [*kind.required, *kind.optional],
            "rows": kind.rows,
        }
        for kind in KINDS
    }
    return f"export const KINDS = {json.dumps(kinds)};\n".encode()


class Pages:
    """Serves the files of three folders: the console's ``static``, the shared ``web``, and ``vendor``.

    Besides these there is ``kinds.js``, which is made of the table of kinds.

    Args:
        folder: the folder with ``static`` and ``vendor``.
    """

    def __init__(self, folder: Path = _HERE) -> None:
        self._folder = folder
        self._files: dict[str, tuple[tuple[int, int], _File]] = {}
        self._made = {"kinds.js": _File.of(_kinds(), _TYPES[".js"])}

    def answer(self, request: Request, name: str) -> Response:
        """Answer with the file of a path below the console's; "" is the page itself."""
        name = name or "index.html"
        if name == "index.html" and not (self._folder / "vendor" / "console.lock").is_file():
            return Response(_MISSING, 503, _HEADERS, "text/html; charset=utf-8")
        file, path = self._made.get(name), self.find(name)
        if file is None and path is not None:
            file = self._file(path)
        if file is None:
            return Response("There is no such page.", 404, _HEADERS, "text/plain")
        headers = _HEADERS | {"ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
        return Response(file.content, headers=headers, media_type=file.kind)

    def find(self, name: str) -> Path | None:
        """The path of a file below the console's; None if there is no such file within the folders."""
        first, _, rest = name.partition("/")
        others = {"vendor": self._folder / "vendor", "web": FOLDER}
        base, name = (others[first], rest) if first in others else (self._folder / "static", name)
        try:
            path = (base / name).resolve()
            return path if path.is_relative_to(base.resolve()) and path.is_file() else None
        except (OSError, ValueError):  # a name that no file can have
            return None

    def _file(self, path: Path) -> _File:
        """A file's content, which is cached until the file changes."""
        stat = path.stat()
        state, key = (stat.st_mtime_ns, stat.st_size), str(path)
        if key not in self._files or self._files[key][0] != state:
            kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
            self._files[key] = state, _File.of(path.read_bytes(), kind)
        return self._files[key][1]
