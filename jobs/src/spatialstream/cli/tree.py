"""``spatialstream tree``: the QT-tree that a sample gives, or that a live stream uses, with loads and balance."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.cli.pod_session import write_file
from spatialstream.model.errors import SettingError, StateError
from spatialstream.records.files import Kind

if TYPE_CHECKING:
    from spatialstream.index.statistics import Statistics
    from spatialstream.report import LeafTable
    from spatialstream.store.base import RoutingStore

__all__ = ["add_parser", "leaf_table", "live_table"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tree",
        help="show a QT-tree: of files, or of a live stream",
        description="Builds the QT-tree that a run over files would use, or reads the one that a live stream uses, and "
        "shows its leaves, loads and Lmax/Lmin; or J, the statistics that such trees are made from.",
    )
    shared.add_input(parser, required=False)
    shared.add_space(parser)
    add = parser.add_argument
    add("--leaves", type=shared.count, default=64, metavar="N", help="leaves (default 64)")
    add("--slots", type=shared.count, default=8, metavar="N", help="worker slots (default 8)")
    add("--sample", type=shared.count, default=50_000, metavar="N", help="objects to look at, at most")
    add("--svg", type=Path, metavar="FILE", help="write a picture too")
    add("--statistics", action="store_true", help="show J, which trees are made from, in place of the tree")
    add("--stream", metavar="NAME", help="show the tree of this live stream, as the routing store has it")
    live.add_store(parser)
    kubernetes.add_cluster(parser)
    add("--quiet", action="store_true", help="say nothing but the tree and errors")
    parser.set_defaults(function=_tree)


def leaf_table(version: Any, objects: Any) -> Any:
    """The leaves of a routing version as :mod:`spatialstream.report` takes them, with objects counted."""
    import numpy as np

    from spatialstream.report import LeafTable

    leaves = version.index.leaves
    return LeafTable.of(version, leaves.load, np.bincount(version.index.route_objects(objects), minlength=len(leaves)))


def live_table(store: RoutingStore) -> tuple[LeafTable, Any, str]:
    """The active version of a live stream: its leaves, its space, and whose loads they are.

    Where the jobs have written statistics of this version, objects and loads are those of now: the objects of a slot
    are counted, and its leaves share them by what came to them lately. Otherwise they are those that the version was
    made for.

    Raises:
        StateError: there is no such stream.
        Unavailable: the store does not answer.
    """
    from spatialstream.balance.loads import leaf_loads
    from spatialstream.report import LeafTable
    from spatialstream.store.reports import read_load, read_statistics

    version = store.load(store.state().active.number)
    leaves = version.index.leaves
    objects, loads, of = leaves.objects, leaves.load, "of what the version was made for"
    with suppress(StateError):  # none yet
        report, known = read_load(store), read_statistics(store)
        if known is not None and report.version == version.number:
            objects, loads, of = report.by_leaf(version), leaf_loads(version, report.counts, known), "of now"
    table = LeafTable.of(version, loads, objects)
    return table, version.index.space, f"version {version.number}; loads are those {of}"


def _tree(options: argparse.Namespace) -> int:
    if not options.objects and options.stream is None:
        options.stream = os.environ.get(live.VARIABLES["stream"])
    if (options.stream is None) == (not options.objects):
        raise SettingError("stream", "give either --stream, or --objects with files")
    if options.objects:
        return _of_files(options)
    if kubernetes.asked(options):
        files = [] if options.svg is None else [options.svg]
        return kubernetes.run_in_pod(options, kubernetes.again(options, "svg"), files=files)
    with live.store(options) as store:
        if options.statistics:
            return _statistics(options, _known(store))
        table, space, said = live_table(store)
    live.say(options, said)
    _show(options, table, space, None, estimated=True)
    return 0


def _known(store: RoutingStore) -> Statistics:
    """J of a live stream."""
    from spatialstream.store.reports import read_statistics

    store.state()  # says if there is no such stream
    known = read_statistics(store)
    if known is None:
        raise StateError("nothing is known of the stream yet: no objects or queries have come")
    return known


def _of_files(options: argparse.Namespace) -> int:
    import numpy as np

    from spatialstream.index.statistics import Statistics
    from spatialstream.index.version import build
    from spatialstream.model.objects import ObjectBatch
    from spatialstream.model.queries import QueryBatch

    objects = _sample(options.objects, "objects", options)
    queries = _sample(options.queries, "queries", options)
    objects = ObjectBatch.of([]) if objects is None else objects
    queries = QueryBatch.of([]) if queries is None else queries
    if options.statistics:
        span = float(np.ptp(objects.t)) if len(objects) else 0.0
        return _statistics(options, Statistics.of(options.space, objects, queries, span))
    version = build(options.space, objects, queries, options.leaves, options.slots)
    _show(options, leaf_table(version, objects), options.space, np.stack([objects.x, objects.y], axis=1))
    return 0


def _show(options: argparse.Namespace, table: LeafTable, space: Any, points: Any, estimated: bool = False) -> None:
    from spatialstream.report import tree_svg, tree_text

    print(tree_text(table, space, estimated))
    if options.svg:
        _draw(options, tree_svg(table, space, points=points))


def _statistics(options: argparse.Namespace, known: Statistics) -> int:
    from spatialstream.report import statistics_svg, statistics_text

    print(statistics_text(known))
    if options.svg:
        _draw(options, statistics_svg(known))
    return 0


def _draw(options: argparse.Namespace, picture: str) -> None:
    write_file(options, options.svg, picture)
    if not options.quiet:
        print(f"picture: {options.svg}", file=sys.stderr)


def _sample(files: list[Path], kind: Kind, options: argparse.Namespace) -> Any:
    """Up to ``--sample`` records, evenly over each file's blocks."""
    import numpy as np

    from spatialstream.model.terms import TermRule
    from spatialstream.records.files import decode_chunk, plan

    if not files:
        return None
    parts: list[Any] = []
    room = options.sample
    columns = options.columns if kind == "objects" else {}
    chunks = plan(files, columns, kind, space=options.space)
    for left, chunk in zip(range(len(chunks), 0, -1), chunks, strict=True):
        for decoded in decode_chunk(chunk, kind, options.space, TermRule(), columns):
            take = min(len(decoded.batch), max(1, room // left))
            if take > 0 and room > 0 and len(decoded.batch):
                parts.append(decoded.batch.take(np.linspace(0, len(decoded.batch) - 1, take).astype(np.int64)))
                room -= take
    return type(parts[0]).concat(parts) if parts else None
