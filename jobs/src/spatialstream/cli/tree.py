"""``spatialstream tree``: show the global index of a sample or of a live stream, with loads and balance."""

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

if TYPE_CHECKING:
    from spatialstream.index.statistics import Statistics
    from spatialstream.report import LeafTable
    from spatialstream.store.base import RoutingStore

__all__ = ["add_parser", "leaf_table", "live_table"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tree",
        help="show a global index: of files, or of a live stream",
        description="Builds the index that a run over files would use, or reads the one that a live stream uses, "
        "and shows its leaves, loads and Lmax/Lmin; or J, the statistics from which indexes are built.",
    )
    shared.add_input(parser, required=False)
    shared.add_layout(parser)
    shared.add_space(parser)
    add = parser.add_argument
    shared.add_index(parser, text="kind of index to build")
    add("--leaves", type=shared.count, default=64, metavar="N", help="leaves (default 64)")
    add("--slots", type=shared.count, default=8, metavar="N", help="worker slots (default 8)")
    text = "largest number of objects, and of queries, to sample (default 50000)"
    add("--sample", type=shared.count, default=50_000, metavar="N", help=text)
    add("--svg", type=Path, metavar="FILE", help="write a picture too")
    add("--statistics", action="store_true", help="show J, the statistics from which indexes are built, not the index")
    add("--stream", metavar="NAME", help="show the index of this live stream, from the routing store")
    live.add_store(parser)
    kubernetes.add_cluster(parser)
    add("--quiet", action="store_true", help="print only the index and errors")
    parser.set_defaults(function=_tree)


def leaf_table(version: Any, objects: Any) -> Any:
    """Build the leaf table of a routing version for :mod:`spatialstream.report`, with these objects counted."""
    import numpy as np

    from spatialstream.report import LeafTable

    leaves = version.index.leaves
    return LeafTable.of(version, leaves.load, np.bincount(version.index.route_objects(objects), minlength=len(leaves)))


def live_table(store: RoutingStore) -> tuple[LeafTable, Any, str]:
    """Read the active version of a live stream: its leaves, its space, and a text about the origin of the loads.

    If the jobs have written statistics of this version, objects and loads are current: the objects of a slot are
    counted, and divided among its leaves by their recent arrivals. Otherwise they are those that the version was
    computed for.

    Raises:
        StateError: there is no such stream.
        Unavailable: the store does not answer.
    """
    from spatialstream.balance.loads import leaf_loads
    from spatialstream.report import LeafTable
    from spatialstream.store.reports import read_load, read_statistics

    version = store.load(store.state().active.number)
    leaves = version.index.leaves
    objects, loads, of = leaves.objects, leaves.load, "loads are those that the version was computed for"
    with suppress(StateError):  # none yet
        report, known = read_load(store), read_statistics(store)
        if known is not None and report.version == version.number:
            objects, loads, of = report.by_leaf(version), leaf_loads(version, report.counts, known), "loads are current"
    table = LeafTable.of(version, loads, objects)
    return table, version.index.space, f"version {version.number}; {of}"


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
    """Read J of a live stream."""
    from spatialstream.store.reports import read_statistics

    store.state()  # raises if there is no such stream
    known = read_statistics(store)
    if known is None:
        raise StateError("the stream has no statistics yet: no objects or queries have arrived")
    return known


def _of_files(options: argparse.Namespace) -> int:
    import numpy as np

    from spatialstream.balance.planner import first_plan
    from spatialstream.cli.sampling import sampled
    from spatialstream.index.statistics import Statistics
    from spatialstream.index.version import build
    from spatialstream.model.terms import ANY_WORDS

    # how large queries may be, which properties objects have, and what is kept of them has no part in the tree
    objects, queries, weights = sampled(options, ANY_WORDS)
    if options.statistics:
        span = float(np.ptp(objects.t)) if len(objects) else 0.0
        return _statistics(options, Statistics.of(options.space, objects, queries, span))
    given = options.space, objects, queries
    made = first_plan(options.index, options.leaves, options.slots, *given, weights)
    if made.reason:
        live.say(options, made.reason)
    version = build(*given, made.leaves, options.slots, kind=made.kind)
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
