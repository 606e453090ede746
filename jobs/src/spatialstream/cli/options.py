"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spatialstream.connectors.program import program
from spatialstream.index.kinds import AUTO, CHOICES, DEFAULT, KINDS
from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError
from spatialstream.model.kinds import listed
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import parse_fields
from spatialstream.model.terms import (
    EVERYTHING,
    POLYGON_VERTICES,
    QUERY_WORDS,
    SERVES,
    SUBSCRIPTIONS,
    TermRule,
    check_counts,
    extract_terms,
)
from spatialstream.model.times import TIME_UNITS, in_milliseconds, looks_like, parse_duration
from spatialstream.records.columns import check_fields, parse_columns
from spatialstream.records.inputs import expanded, spooled
from spatialstream.records.layout import InputLayout, parse_layout

__all__ = [
    "add_areas",
    "add_columns",
    "add_index",
    "add_input",
    "add_layout",
    "add_polygon_vertices",
    "add_serves",
    "add_space",
    "add_terms",
    "add_time_unit",
    "columns",
    "count",
    "duration",
    "input_files",
    "layout",
    "names",
    "query_files",
    "set_term_defaults",
    "storage",
    "tell_missing",
    "temporary",
    "term_rule",
    "value",
]

_STANDARD_INPUT = Path("-")
_TERM_DEFAULTS: Mapping[str, Any] = {
    "min_term_length": 1,
    "query_words": QUERY_WORDS,
    "polygon_vertices": POLYGON_VERTICES,
    "ranking": False,
    "term_counts": False,
    "fields": (),
}
_SHOWN_FILES = 5


def value(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a parser of an option's text, so that argparse reports its errors in one line."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except RecordError as error:
            raise argparse.ArgumentTypeError(error.problem) from None
        except SpatialStreamError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    reader.__name__ = name
    return reader


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise SettingError("value", f"{text!r} is not a whole number of at least 1")
    return number


duration = value("duration", lambda text: parse_duration(int(text) if text.isdigit() else text))
"""Milliseconds, from ``90000`` or ``"90s"``."""
columns = value("columns", parse_columns)
names = value("names", lambda text: tuple(name.strip() for name in text.split(",") if name.strip()))
"""Names separated by commas."""
count = value("count", _count)


def storage(setting: str) -> Callable[[str], Any]:
    """Return a parser of a folder's path or a URL, which gives a storage."""

    def read(text: str) -> Any:
        from spatialstream.connectors.places import storage_at

        return storage_at(text, setting)

    return value(setting, read)


def add_space(parser: argparse.ArgumentParser) -> None:
    """Add ``--space``."""
    text = '"wgs84" (default: degrees, distances in metres) or "planar:x0,y0,x1,y1"'
    parser.add_argument("--space", type=value("space", Space.parse), default=WGS84, metavar="SPACE", help=text)


def add_index(parser: Any, default: str | None = DEFAULT, text: str = "kind of global index") -> None:
    """Add ``--index``."""
    kinds = "; ".join(f"{kind.name}: {kind.summary}" for kind in KINDS.values())
    kinds += f"; {AUTO}: what suits the data, see {program()} plan"
    said = "" if default is None else f" (default {default})"
    parser.add_argument("--index", choices=CHOICES, default=default, metavar="KIND", help=f"{text}{said}. {kinds}")


def add_terms(parser: argparse.ArgumentParser) -> None:
    """Add the options of terms and of the fields of objects: ``--stop-words``, ``--property``, ``--fields``, ..."""
    add = parser.add_argument
    default = _TERM_DEFAULTS
    add("--stop-words", type=Path, metavar="FILE", help="terms to ignore, one a line")
    text = "ignore terms with fewer characters (default 1)"
    add("--min-term-length", type=count, default=default["min_term_length"], metavar="N", help=text)
    text = f"maximum number of words of a query, in keywords, any and none together (default {QUERY_WORDS})"
    add("--query-words", type=count, default=default["query_words"], metavar="N", help=text)
    add_polygon_vertices(parser)
    ranked = listed(lambda kind: kind.is_ranked)
    add("--ranking", action="store_true", help=f"count how many objects have each word, by which {ranked} rank")
    text = f"count how often a text has each word, too, so that {ranked} weigh words by that; needs --ranking"
    add("--term-counts", action="store_true", help=text)
    text = (
        "a property of objects, for conditions of queries (where): NAME:keyword, :number, :time or :boolean; repeatable"
    )
    add("--property", action="append", default=[], metavar="NAME:TYPE", dest="properties", help=text)
    text = "fields of objects that are kept, so that rows show them: text, and names of properties (default: none)"
    add("--fields", type=names, default=default["fields"], metavar="NAME,...", help=text)


def set_term_defaults(options: argparse.Namespace) -> None:
    """Give those options of :func:`add_terms` that are None their defaults."""
    for name, default in _TERM_DEFAULTS.items():
        if getattr(options, name, None) is None:
            setattr(options, name, default)
    options.properties = getattr(options, "properties", None) or []
    options.stop_words = getattr(options, "stop_words", None)


def add_serves(parser: Any) -> None:
    """Add ``--serves``, which :func:`term_rule` reads."""
    text = (
        f"{EVERYTHING} (default); or {SUBSCRIPTIONS}: continuous queries only, so that objects which none of them can "
    )
    text += "match are dropped by the router, and none are stored"
    parser.add_argument("--serves", choices=SERVES, default=EVERYTHING, metavar="WHAT", help=text)


def add_polygon_vertices(parser: argparse.ArgumentParser) -> None:
    """Add ``--polygon-vertices``."""
    text = f"maximum number of vertices of a polygon, in all its rings together (default {POLYGON_VERTICES:,})"
    parser.add_argument("--polygon-vertices", type=count, default=POLYGON_VERTICES, metavar="N", help=text)


def term_rule(options: argparse.Namespace) -> TermRule:
    """Build the term rule from the options of :func:`add_terms`, for fields of which there may be ``--columns``.

    If the stream has told its rule (:mod:`~spatialstream.cli.stored_settings`), it is that.
    """
    known: TermRule | None = getattr(options, "rule", None)
    if known is not None:
        check_fields(getattr(options, "columns", {}), known)
        return known
    words: frozenset[str] = frozenset()
    if options.stop_words is not None:
        try:
            text = options.stop_words.read_text("utf-8")
        except (FileNotFoundError, IsADirectoryError):
            raise SettingError("stop-words", f"{options.stop_words} is not a file") from None
        words = frozenset(term for line in text.splitlines() for term in extract_terms(line))
    limits = options.query_words, options.polygon_vertices, options.ranking
    properties = Properties.parse(options.properties)
    kept = parse_fields(options.fields, properties)
    serves = getattr(options, "serves", EVERYTHING)
    rule = TermRule(words, options.min_term_length, *limits, properties, kept, serves, options.term_counts)
    check_counts(rule)
    check_fields(getattr(options, "columns", {}), rule)
    return rule


def add_input(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add ``--objects``, ``--queries`` and ``--columns``."""
    add = partial(parser.add_argument, type=Path, nargs="+", action="extend", required=required, default=[])
    text = (
        "objects: .jsonl, .csv, .parquet, .geojson, .tsv or .txt, all but Parquet also .gz or .zst, in any time order; "
        "folders of such; or - for the standard input"
    )
    add("--objects", metavar="FILE", help=text)
    add("--queries", metavar="FILE", help="queries: .jsonl, also .gz")
    add_columns(parser)


def add_time_unit(parser: argparse.ArgumentParser) -> None:
    """Add ``--time-unit``, whose value is None if it is not given."""
    text = "unit of numeric times: s, ms or us (default: ms, but times that look like another unit are refused)"
    parser.add_argument("--time-unit", choices=tuple(TIME_UNITS), metavar="UNIT", help=text)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add ``--columns``."""
    text = "names of the objects' fields in the input, such as id=tweet_id,text=title+body,lon=place.point[0], or "
    text += "t=year-month-day"
    parser.add_argument("--columns", type=columns, default={}, metavar="FIELD=NAME,...", help=text)


def add_layout(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`layout`."""
    add = parser.add_argument
    text = "what separates columns: , ; | or tab (default: found in the header)"
    add("--separator", metavar="CHAR", help=text)
    add("--no-header", action="store_true", help="the first line names no columns; their names are 1, 2, ...")
    text = 'csv or none: whether " encloses cells (default: csv, but none where tabs separate the columns)'
    add("--quotes", choices=("csv", "none"), metavar="KIND", help=text)
    add("--time-format", metavar="FORMAT", help="strptime format of the objects' times, such as %%d/%%m/%%Y %%H:%%M")
    text = "time zone of objects' times that name none, such as Europe/Berlin (default UTC)"
    add("--time-zone", metavar="ZONE", help=text)
    text = "time of all objects, which then have no t: 2026-01-01T12:00Z, or now (a run of which cannot be resumed)"
    add("--at", metavar="TIME", help=text)


def input_files(options: argparse.Namespace, paths: Sequence[Path], keep: Path | None = None) -> list[Path]:
    """The files of objects that paths name: of folders those in them, and the standard input as a file.

    What is skipped is told, unless ``--quiet`` is given.

    Args:
        options: the options.
        paths: as they were given.
        keep: folder for the standard input; None: a temporary one, until the program ends.

    Raises:
        SettingError: a folder has no files of objects, or the format of the standard input cannot be told.
    """
    files, skipped = expanded(paths)
    if skipped and not getattr(options, "quiet", False):
        names = ", ".join(str(path) for path in skipped[:_SHOWN_FILES])
        more = f" and {len(skipped) - _SHOWN_FILES} more" if len(skipped) > _SHOWN_FILES else ""
        print(
            f"spatialstream: skipped, since their names do not end as those of objects do: {names}{more}",
            file=sys.stderr,
        )
    if files.count(_STANDARD_INPUT) > 1:
        raise SettingError("objects", "- is the standard input, which can be read only once")
    if _STANDARD_INPUT not in files:
        return files
    try:
        file = spooled(sys.stdin.buffer, temporary() if keep is None else keep)
    except OSError as error:
        raise SettingError("objects", f"the standard input cannot be kept: {error}") from None
    return [file if path == _STANDARD_INPUT else path for path in files]


def tell_missing(options: argparse.Namespace, files: Sequence[Path], rule: TermRule) -> None:
    """Tell, once each, which declared properties no object has because no file has their column; not with ``--quiet``.

    Args:
        options: the options.
        files: of objects.
        rule: the term rule, with the properties.
    """
    from spatialstream.records.files import without_column

    if getattr(options, "quiet", False):
        return
    for told in without_column(files, rule, options.columns, layout(options), options.space):
        print(f"spatialstream: {told}", file=sys.stderr)


def add_areas(parser: argparse.ArgumentParser) -> None:
    """Add ``--areas`` and ``--area-id``, the areas of the queries of a file."""
    add = parser.add_argument
    text = 'GeoJSON file of the areas that queries name, as {"area": NAME}'
    add("--areas", type=Path, metavar="FILE", help=text)
    add("--area-id", metavar="PROPERTY", help="the property of --areas that has an area's name (default: its own id)")


def query_files(options: argparse.Namespace, keep: Path | None = None) -> list[Path]:
    """The files of queries, with the polygons of the areas that they name if ``--areas`` is given.

    Args:
        options: the options.
        keep: folder for copies of files that name any; None: a temporary one, until the program ends.

    Raises:
        SettingError: a file cannot be read, an area is invalid, or one that is named is not there.
    """
    if options.areas is None:
        return list(options.queries)
    from spatialstream.records.area_files import areas_of_file
    from spatialstream.records.area_lines import with_areas

    table = areas_of_file(options.areas, options.area_id, options.space, term_rule(options))
    folder = temporary() if keep is None else keep
    return [with_areas(path, lambda: table, folder) for path in options.queries]


def temporary() -> Path:
    """A folder that is removed when the program ends."""
    keep = Path(tempfile.mkdtemp(prefix="spatialstream-"))
    atexit.register(shutil.rmtree, keep, ignore_errors=True)
    return keep


def layout(options: argparse.Namespace) -> InputLayout:
    """Build the layout of files of objects from the options of :func:`add_layout`.

    Raises:
        SettingError: one of them is invalid.
    """
    names = ("separator", "quotes", "time_format", "time_zone", "at")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if "at" in given and (unit := getattr(options, "time_unit", None)) is not None:
        given["at"] = _in_unit(given["at"], unit)
    try:
        return parse_layout({**given, "header": str(not options.no_header).lower()}, int(time.time() * 1000))
    except SettingError as error:
        raise SettingError(error.setting.replace("_", "-"), error.problem) from None


def _in_unit(at: str, unit: str) -> str:
    """The time of ``--at``, which has the unit of the times in files if it is a number.

    Raises:
        SettingError: in that unit it is hardly what was meant.
    """
    converted = in_milliseconds(at, unit)
    if isinstance(converted, int) and unit != "ms" and looks_like(np.array([converted])) is not None:
        raise SettingError("at", f"{at} is no recent time in {unit}, the unit of times; give RFC 3339")
    return str(converted)
