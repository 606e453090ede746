"""``spatialstream tree``: build a QT-tree from a sample and show leaves, loads and balance."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from spatialstream.cli import options as shared
from spatialstream.model.files import Kind

__all__ = ["add_parser", "leaf_table"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tree",
        help="build a QT-tree from files and show it",
        description="Builds the QT-tree that a run would use, and shows its leaves, loads and Lmax/Lmin.",
    )
    shared.add_input(parser, queries_required=False)
    parser.add_argument("--leaves", type=shared.count, default=64, metavar="N", help="leaves (default 64)")
    parser.add_argument("--slots", type=shared.count, default=8, metavar="N", help="worker slots (default 8)")
    shared.add_space(parser)
    parser.add_argument("--sample", type=shared.count, default=50_000, metavar="N", help="objects to look at, at most")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture too")
    parser.set_defaults(function=_tree)


def leaf_table(version: Any, objects: Any) -> Any:
    """The leaves of a routing version as :mod:`spatialstream.report` takes them, with objects counted."""
    import numpy as np

    from spatialstream.report import LeafTable

    leaves = version.index.leaves
    counts = np.bincount(version.index.route_objects(objects), minlength=len(leaves))
    return LeafTable(leaves.box, leaves.textual, leaves.load, version.mapping, counts, version.slots)


def _tree(options: argparse.Namespace) -> int:
    import numpy as np

    from spatialstream.index.version import build
    from spatialstream.model.objects import ObjectBatch
    from spatialstream.model.queries import QueryBatch
    from spatialstream.report import tree_svg, tree_text

    objects = _sample(options.objects, "objects", options)
    queries = _sample(options.queries, "queries", options)
    objects = ObjectBatch.of([]) if objects is None else objects
    version = build(
        options.space, objects, QueryBatch.of([]) if queries is None else queries, options.leaves, options.slots
    )
    table = leaf_table(version, objects)
    print(tree_text(table, options.space))
    if options.svg:
        points = np.stack([objects.x, objects.y], axis=1)
        options.svg.write_text(tree_svg(table, options.space, points=points), encoding="utf-8")
        print(f"picture: {options.svg}", file=sys.stderr)
    return 0


def _sample(files: list[Path], kind: Kind, options: argparse.Namespace) -> Any:
    """Up to ``--sample`` records, evenly over each file's blocks."""
    import numpy as np

    from spatialstream.model.files import decode_chunk, plan
    from spatialstream.model.terms import TermRule

    if not files:
        return None
    parts: list[Any] = []
    room = options.sample
    columns = options.columns if kind == "objects" else {}
    chunks = plan(files, columns, kind)
    for left, chunk in zip(range(len(chunks), 0, -1), chunks, strict=True):
        for decoded in decode_chunk(chunk, kind, options.space, TermRule(), columns):
            take = min(len(decoded.batch), max(1, room // left))
            if take > 0 and room > 0 and len(decoded.batch):
                parts.append(decoded.batch.take(np.linspace(0, len(decoded.batch) - 1, take).astype(np.int64)))
                room -= take
    return type(parts[0]).concat(parts) if parts else None
