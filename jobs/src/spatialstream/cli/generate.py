"""``spatialstream generate``: synthetic streams and query workloads, as JSON Lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import KINDS, TYPES
from spatialstream.model.properties.declared import Properties
from spatialstream.model.times import parse_time

__all__ = ["add_parser"]


def _pair(read: Callable[[str], Any], option: str) -> Callable[[str], Any]:
    """Return a parser of ``LOW:HIGH``, or of one value that is both."""

    def pair(text: str) -> tuple[Any, Any]:
        low, separator, high = text.partition(":")
        try:
            return read(low), read(high if separator else low)
        except ValueError:
            raise SettingError(option, f"{text!r} is neither a number nor LOW:HIGH") from None

    return shared.value(option, pair)


_EACH = tuple(kind.type for kind in KINDS if not kind.is_ranked)
"""The types that every stream answers."""


def _queries(text: str) -> dict[str, int]:
    try:
        if text.isdigit():
            return dict.fromkeys(_EACH, int(text))
        pairs = (each.split("=") for each in text.split(","))
        return {TYPES[TYPES.index(name)]: int(number) for name, number in pairs}
    except ValueError:
        raise SettingError("queries-per-type", f'{text!r} is neither a number nor like "CRQ=1000,SRQ=50"') from None


def add_parser(commands: Any) -> None:
    """Add the command."""
    from spatialstream.generate import GenerateSettings

    default = GenerateSettings()
    parser = commands.add_parser(
        "generate",
        help="write a synthetic stream and queries over it",
        description="Writes objects, and queries centred on them, as JSON Lines. The same options give the same bytes. "
        "Kinds: social (real cities by population, English sentences), uniform and gaussian (the "
        "papers' data sets), clusters (the workload of the benchmarks).",
    )
    parser.add_argument("--kind", choices=("social", "uniform", "gaussian", "clusters"), default=default.kind)
    parser.add_argument("--objects", type=Path, required=True, metavar="FILE", help="objects to write; .gz compresses")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="queries to write; .gz compresses")
    shared.add_space(parser)
    add = parser.add_argument_group("objects").add_argument
    text = "number of objects (default %(default)s)"
    add("--number", type=shared.count, default=default.objects, metavar="N", help=text)
    add("--seed", type=int, default=default.seed, metavar="N", help="seed of all random numbers (default 0)")
    add(
        "--start",
        type=shared.value("time", parse_time),
        default=default.start,
        metavar="TIME",
        help="time of the first object",
    )
    add("--rate", type=float, default=default.rate, metavar="R", help="objects a second (default %(default)s)")
    add("--diurnal", action="store_true", help="social: more objects by day than by night, by the sun of their place")
    text = "social: how often a flood, a festival and a blackout happen (default 0)"
    add("--events", type=int, default=default.events, metavar="N", help=text)
    add("--sigma", type=float, default=default.sigma, metavar="S", help="gaussian: standard deviation, in coordinates")
    text = "number of terms of an object (default %(default)s)"
    add("--terms", type=shared.count, default=default.terms, metavar="N", help=text)
    text = "size of the vocabulary, in words (default %(default)s)"
    add("--vocabulary", type=shared.count, default=default.vocabulary, metavar="N", help=text)
    text = "exponent of Zipf's law for the words (default %(default)s)"
    add("--zipf", type=float, default=default.zipf, metavar="E", help=text)
    text = "a property that objects have: NAME:keyword, :number, :time or :boolean; repeatable"
    add("--property", action="append", default=[], metavar="NAME:TYPE", dest="properties", help=text)
    add = parser.add_argument_group("queries").add_argument
    each = shared.value("queries", _queries)
    text = 'number of each type but those that rank, or such as "CRQ=1000,SBQ=50" (default 100)'
    add("--queries-per-type", type=each, default=dict.fromkeys(_EACH, 100), metavar="N", help=text)
    text = "size of regions in percent of the space, or from:to (default 0.01)"
    add("--region", type=_pair(float, "region"), default=default.region, metavar="P[:P]", help=text)
    add("--circles", type=float, default=default.circles, metavar="S", help="share of regions that are circles")
    add("--polygons", type=float, default=default.polygons, metavar="S", help="share of regions that are polygons")
    text = "share of polygons with a margin, of which every other one is a line (default 0)"
    add("--margins", type=float, default=default.margins, metavar="S", help=text)
    text = "number of keywords, or from:to (default 1:3)"
    add("--keywords", type=_pair(int, "keywords"), default=default.keywords, metavar="N[:N]", help=text)
    text = "share of queries that have a condition on the properties (default 0)"
    add("--where", type=float, default=default.where, metavar="S", help=text)
    text = "fields that the stream keeps, text and properties: each query asks for some of them (default: none)"
    add("--fields", type=shared.names, default=default.fields, metavar="NAME,...", help=text)
    add("--frequent", action="store_true", help="keywords are the objects' most frequent terms")
    add("--alternatives", action="store_true", help="one matching keyword is enough: each is a group of its own")
    add("--k", type=shared.count, default=default.k, metavar="K", help="k of the queries (default %(default)s)")
    text = "duration of queries (default 10m)"
    add("--duration", type=shared.duration, default=default.duration, metavar="TIME", help=text)
    add("--endless", action="store_true", help="continuous queries have no duration: they run until cancelled")
    text = "window of CTQs and of every second CKQ and CBQ (default 1m)"
    add("--window", type=shared.duration, default=default.window, metavar="TIME", help=text)
    add("--step", type=shared.duration, default=default.step, metavar="TIME", help="step of CTQs (default 10s)")
    parser.add_argument("--quiet", action="store_true", help="do not print progress")
    parser.set_defaults(function=_generate)


def _generate(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from spatialstream.generate import GenerateSettings, write_stream

    named = {each.name: vars(options)[each.name] for each in fields(GenerateSettings) if each.name in vars(options)}
    asked = options.queries_per_type if options.queries is not None else {}
    named |= {"objects": options.number, "queries": asked, "properties": Properties.parse(options.properties)}
    settings = GenerateSettings(**named)
    hidden = options.quiet or not sys.stderr.isatty()
    with tqdm(total=settings.objects, unit="object", unit_scale=True, disable=hidden, leave=False) as bar:
        write_stream(options.objects, options.queries, settings, bar.update)
    return 0
