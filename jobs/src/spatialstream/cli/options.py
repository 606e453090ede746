"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError
from spatialstream.model.space import Space
from spatialstream.model.times import parse_duration

__all__ = ["add_input", "add_space", "columns", "count", "duration", "value"]


def value(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader of an option's text whose errors argparse reports as one clear line."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except RecordError as error:
            raise argparse.ArgumentTypeError(error.problem) from None
        except SpatialStreamError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    reader.__name__ = name
    return reader


def _columns(text: str) -> dict[str, str]:
    known = ("id", "t", "lon", "lat", "x", "y", "text", "terms")
    result = {}
    for pair in text.split(","):
        ours, separator, theirs = pair.partition("=")
        if not separator or not theirs or ours not in known:
            raise SettingError("columns", f"{pair!r} is not FIELD=NAME with FIELD one of {', '.join(known)}")
        result[ours] = theirs
    return result


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
columns = value("columns", _columns)
count = value("count", _count)


def add_space(parser: argparse.ArgumentParser) -> None:
    """``--space``."""
    parser.add_argument(
        "--space",
        type=value("space", Space.parse),
        default=Space.parse("wgs84"),
        metavar="SPACE",
        help='"wgs84" (default: degrees, distances in metres) or "planar:x0,y0,x1,y1"',
    )


def add_input(parser: argparse.ArgumentParser, queries_required: bool) -> None:
    """``--objects``, ``--queries``, ``--columns``."""
    parser.add_argument(
        "--objects",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="objects: .jsonl, .csv or .parquet, the first two also .gz; in any order of time",
    )
    parser.add_argument(
        "--queries",
        type=Path,
        nargs="+",
        action="extend",
        required=queries_required,
        default=None if queries_required else [],
        metavar="FILE",
        help="queries: .jsonl, also .gz",
    )
    parser.add_argument(
        "--columns",
        type=columns,
        default={},
        metavar="FIELD=NAME,...",
        help="names of the objects' fields in the input, such as id=tweet_id,text=body",
    )
