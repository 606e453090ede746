"""``spatialstream results``: print the results of a live stream, each row once."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import stat
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.model.errors import RunError, SettingError
from spatialstream.model.kinds import TYPES

__all__ = ["add_parser", "hand_over", "print_row"]

_QUICK_LOOKS = 50


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "results",
        help="print the results of a live stream",
        description="Prints result rows as JSON Lines as they arrive, each once: rows that the worker sends again "
        "after a crash are dropped. Runs until interrupted, or until --count or --patience ends it.",
    )
    live.add_broker(parser)
    kubernetes.add_cluster(parser)
    add = parser.add_argument
    add("--query", action="append", default=[], metavar="ID", help="only rows of this query; may be repeated")
    text = "only rows of this query type; may be repeated"
    add("--type", action="append", default=[], choices=TYPES, help=text)
    add("--new", action="store_true", help="start with rows that arrive from now on (default: with the oldest)")
    add("--position", type=Path, metavar="FILE", help="resume from the position in this file, and keep it up to date")
    add("--count", type=shared.count, metavar="N", help="end after N rows")
    add("--patience", type=shared.duration, metavar="TIME", help="end when no row has arrived for this long")
    add("--quiet", action="store_true", help="print only rows and errors")
    parser.set_defaults(function=_results)


def _results(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        if options.position is not None:
            problem = "is a file on this machine, and the command would run in a pod; leave it out"
            raise SettingError("position", problem)
        return kubernetes.run_in_pod(options, kubernetes.again(options, "query", "type", "new", "count", "patience"))
    from spatialstream.client import Results

    patience = None if options.patience is None else options.patience / 1000
    results = Results(
        live.connection(options),
        options.stream,
        newest=options.new,
        position=options.position,
        report=lambda text: live.say(options, text),
    )
    queries, types = set(options.query), set(options.type)
    remaining = -1 if options.count is None else options.count
    try:
        with live.stopping(options) as stop:
            for row in results.rows(stop, patience):
                if (queries and row["query"] not in queries) or (types and row["type"] not in types):
                    continue
                print_row(row)
                if options.position is not None:
                    hand_over(stop)
                results.written()
                remaining -= 1
                if remaining == 0:
                    break
    finally:
        results.close()
    if results.repeated:
        live.say(options, f"{results.repeated} repeated rows dropped")
    return 0


def print_row(row: dict[str, Any]) -> None:
    """Print a result row as a line of JSON, and flush it.

    Raises:
        BrokenPipeError: the reader of the output has exited.
        RunError: the output cannot be written; a part of the last line may have been.
    """
    try:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    except OSError as error:
        _abandon()
        if isinstance(error, BrokenPipeError):
            raise
        raise RunError(f"cannot write to standard output: {error.strerror}") from None


def hand_over(stop: Callable[[], bool]) -> None:
    """If standard output is a pipe, wait until its reader has read everything printed.

    Data still in a pipe when its reader exits is lost.

    Args:
        stop: says whether to stop waiting.

    Raises:
        BrokenPipeError: the reader has exited without reading it.
    """
    try:
        out = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(out).st_mode):
            return
    except (OSError, ValueError):  # not a file
        return
    gone = select.poll()
    gone.register(out, 0)
    looks = 0
    while _unread(out) and not stop():
        if gone.poll(0) and _unread(out):
            _abandon()
            raise BrokenPipeError
        looks += 1
        time.sleep(0.0 if looks < _QUICK_LOOKS else 0.0005)


def _unread(pipe: int) -> int:
    """Number of unread bytes in a pipe."""
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(size)


def _abandon() -> None:
    """Redirect standard output to the null device; otherwise its buffer would be written again at exit."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
