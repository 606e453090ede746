"""``spatialstream areas``: the polygons that a live stream knows by name; and the areas of files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live, stored_settings
from spatialstream.cli import options as shared
from spatialstream.connectors.program import program
from spatialstream.model.space import Space
from spatialstream.model.tables import aligned
from spatialstream.model.terms import ANY_WORDS, TermRule
from spatialstream.records.area_files import read_geojson

if TYPE_CHECKING:
    from spatialstream.client import Areas
    from spatialstream.model.areas import Area

__all__ = ["add_parser", "areas_of"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "areas",
        help="load, list, show or delete the areas of a live stream",
        description="Areas are polygons that a stream knows by name, such as the districts of a city: a query gives "
        '{"area": NAME} as its region. They are kept in a topic of the stream. A registered query keeps the geometry '
        f"that its area had then; see {program()} queries refresh.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    load = _verb(verbs, "load", "load areas from a GeoJSON file", _load)
    load.add_argument("file", metavar="FILE", help="GeoJSON: a FeatureCollection, a Feature or a geometry; - is stdin")
    _add_names(load)
    _add_force(load)
    load.add_argument("--dry-run", action="store_true", help="say what would change, and load nothing")
    show = _verb(verbs, "show", "print areas as GeoJSON features, one a line, which load reads", _show)
    show.add_argument("names", nargs="*", metavar="NAME", help="name of an area (default: all)")
    listed = _verb(verbs, "list", "list the areas", _list)
    listed.add_argument("--json", action="store_true", help="print JSON Lines")
    delete = _verb(verbs, "delete", "delete areas; queries of them keep their geometry", _delete)
    delete.add_argument("names", nargs="+", metavar="NAME", help="name of an area")
    _add_force(delete)


def _verb(verbs: Any, name: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    live.add_broker(parser)
    shared.add_space(parser)
    shared.add_polygon_vertices(parser)
    kubernetes.add_cluster(parser)
    parser.add_argument("--quiet", action="store_true", help="print only what was asked for, and errors")
    stored_settings.add_store(parser)
    parser.set_defaults(function=function)
    return parser


def _add_names(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--id", metavar="PROPERTY", help="the property that has a feature's name (default: its own id)")
    add("--name", metavar="NAME", help="name of the only area of the file")


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="even if a SpatialArea keeps one of them")


def areas_of(options: argparse.Namespace, space: Space | None = None) -> Areas:
    """The areas of the live stream that the options locate."""
    from spatialstream.client import Areas
    from spatialstream.model.space import WGS84

    limit = getattr(options, "polygon_vertices", ANY_WORDS.polygon_vertices)
    rule = getattr(options, "rule", None) or TermRule(polygon_vertices=limit)
    return Areas(live.connection(options), options.stream, space or getattr(options, "space", None) or WGS84, rule)


def _near(options: argparse.Namespace) -> Areas:
    """The areas of the live stream, in its own space and with its own limit."""
    stored_settings.complete(options)
    return areas_of(options)


def _far(options: argparse.Namespace, words: Sequence[str], stdin: bytes = b"") -> int:
    """Run the same command in a pod of the stream."""
    found = kubernetes.resource(kubernetes.Kubectl.of(options), options.stream)
    space, rule = kubernetes.space_and_rule(found["spec"], options.space)
    given = [f"--space={space}", f"--polygon-vertices={rule.polygon_vertices}"]
    return kubernetes.run_in_pod(options, [options.verb, *given, *words], stdin)


def _load(options: argparse.Namespace) -> int:
    geojson = read_geojson(options.file)
    if kubernetes.asked(options):
        given = kubernetes.again(options, "id", "name", "force", "dry_run")
        return _far(options, ["-", *given], json.dumps(geojson).encode())
    loaded = _near(options).load(geojson, options.id, name=options.name, force=options.force, dry_run=options.dry_run)
    for names, told in ((loaded.new, "new"), (loaded.changed, "changed"), (loaded.same, "unchanged")):
        if names:
            live.say(options, f"{told}: {', '.join(names)}")
    if options.dry_run:
        live.say(options, "nothing has been loaded: --dry-run was given")
    elif loaded.changed:
        live.say(options, f"queries of changed areas keep the geometry that they have: see {program()} queries list")
    return 0


def _list(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        return _far(options, kubernetes.again(options, "json"))
    table = _near(options).table()
    if options.json:
        for each in table:
            print(json.dumps(each.to_record(), ensure_ascii=False))
    elif len(table):
        print("\n".join(_table(list(table))))
    else:
        live.say(options, f"{options.stream} has no areas")
    for name, reason in table.unusable.items():
        print(f"spatialstream: the area {name!r} cannot be used: {reason}", file=sys.stderr)
    return 0


def _table(areas: Sequence[Area]) -> list[str]:
    """A table of areas; who keeps them only if that is known of any."""
    rows = [
        [each.name, f"{len(each.polygon):,}", str(each.revision), " ".join(f"{n:.6g}" for n in each.polygon.box)]
        for each in areas
    ]
    head = ["area", "vertices", "revision", "west south east north"]
    if any(each.by for each in areas):
        head, rows = [*head, "kept by"], [[*row, each.by] for row, each in zip(rows, areas, strict=True)]
    return aligned(head, rows, right={1, 2})


def _show(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        return _far(options, options.names)
    areas = _near(options)
    for each in [areas.get(name) for name in options.names] if options.names else areas.table():
        print(json.dumps(each.to_feature(), ensure_ascii=False))
    return 0


def _delete(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        return _far(options, [*options.names, *kubernetes.again(options, "force")])
    _near(options).delete(*options.names, force=options.force)
    live.say(options, f"deleted: {', '.join(options.names)}")
    return 0
