"""A run as one HTML file that opens offline: a map, a timeline, the answers, and the QT-tree with its loads.

The file contains everything: styles, script, outlines of land, data. Most of its code is shared with the console
(:mod:`spatialstream.web`). Its content security policy forbids it to load anything. The data is one JSON value in a
script element of a type that browsers do not run, with every character that could end it escaped, and the script
inserts texts as text, never as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypedDict

from spatialstream.model.kinds import TYPES
from spatialstream.model.space import Space
from spatialstream.report.land import packed_land
from spatialstream.report.leaf_map import LeafTable, slot_colour
from spatialstream.report.modules import inlined
from spatialstream.report.payload import payload
from spatialstream.report.tree import tree_svg
from spatialstream.web import FOLDER

__all__ = ["Summary", "write_page"]

_HERE = Path(__file__).parent


class Summary(TypedDict, total=False):
    """Figures of a run for the head of the page; what is absent is counted from the page's data, or left out.

    Attributes:
        objects: objects that were read and accepted.
        queries: queries that were read and accepted.
        results: result rows of each type.
        rejected: records that were rejected.
        seconds: how long the run took.
    """

    objects: int
    queries: int
    results: Mapping[str, int]
    rejected: int
    seconds: float


def write_page(
    path: Path,
    title: str,
    space: Space,
    queries: Sequence[Mapping[str, Any]],
    objects: Sequence[Mapping[str, Any]],
    results: Iterable[Mapping[str, Any]],
    tree: LeafTable | None = None,
    summary: Summary | None = None,
) -> None:
    """Write the page.

    Args:
        path: the file; its folder is made.
        title: heading of the page.
        space: the space of the stream.
        queries: records of the query file.
        objects: records of the object file.
        results: result rows.
        tree: leaves of the QT-tree; None leaves its section out.
        summary: figures of the run.
    """
    data = payload(space, queries, objects, results)
    data["land"] = packed_land() if space.geographic else []
    data["summary"] = _summary(data, summary or {})
    picture = ""
    if tree is not None:
        places = data["places"]
        picture = tree_svg(tree, space, list(zip(places["x"], places["y"], strict=True)), width=1_200)
        data["tree"] = {
            "boxes": tree.boxes.tolist(),
            "slots": tree.slot.tolist(),
            "colours": [slot_colour(slot) for slot in range(len(tree.slot_load))],
        }
    page = _fill(
        (_HERE / "page.html").read_text("utf-8"),
        {
            "title": escape(title),
            "style": "".join(each.read_text("utf-8") for each in (FOLDER / "base.css", _HERE / "page.css")),
            "script": inlined(_HERE / "page.js"),
            "data": script_json(data),
            "tree": picture,
        },
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", errors="replace")


def script_json(value: object) -> str:
    r"""JSON that may stand in a script element: ASCII, and ``<``, ``>``, ``&`` as ``\u003c`` and so on.

    >>> script_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _summary(data: Mapping[str, Any], given: Summary) -> dict[str, Any]:
    summary: dict[str, Any] = {"objects": data["objects"], "queries": data["asked"], "results": data["totals"]}
    summary.update({key: value for key, value in given.items() if value is not None})
    results = summary["results"]
    summary["results"] = {kind: results[kind] for kind in TYPES if results.get(kind)}
    return summary


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """Put each part at its mark ``{{name}}``, in one pass, so that no part is searched for marks."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)
