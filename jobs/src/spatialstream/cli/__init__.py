"""The command line: files (``run | generate | tree | check | demo``) and live streams (``router | query | ...``).

Exit status:

- 0: success.
- 1: ``--strict`` met a rejected record, or ``check`` found a difference.
- 2: a setting is unusable; one line says which, and what would be right.
- 3: the run failed; one line says why, and whether the same command can resume it.
- 4 every object, or every query, was rejected; 130: stopped at once by an interrupt or SIGTERM. Where the
first signal lets the command finish something, by the
  second one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import spatialstream
from spatialstream.cli.pod_session import attach
from spatialstream.connectors.process_memory import few_arenas
from spatialstream.model.errors import AllRejected, RecordError, RunError, SpatialStreamError

__all__ = ["main", "parser"]

_AGAIN = 0.05
"""Seconds after which a lost interrupt is raised again: by then the code that could not raise it has returned."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here, so that the error names the command whose help is useful, not the program."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    from spatialstream.cli import (
        areas,
        check,
        cluster,
        demo,
        gateway,
        generate,
        load,
        plan,
        queries,
        query,
        rebalance,
        remove,
        results,
        router,
        run,
        status,
        tree,
        worker,
    )
    from spatialstream.cli.demo import live as demo_live

    top = _Parser(
        prog="spatialstream",
        description="Queries over a fast stream of objects with a place, a time and a text.",
    )
    top.add_argument("--version", action="version", version=f"spatialstream {spatialstream.__version__}")
    top.add_argument("--attached", action="store_true", help=argparse.SUPPRESS)  # see spatialstream.cli.pod_session
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    files = (run, generate, tree, plan, check, demo, demo_live)
    streams = (router, worker, load, areas, query, queries, results, status, rebalance, remove, gateway, cluster)
    for module in files + streams:
        module.add_parser(commands)
    return top


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM as an interrupt, so that open resources are closed; commands that finish work handle both signals.

    By default SIGTERM would end a process on the spot, or, if it is PID 1 of a container, not at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, otherwise = signal.signal(signal.SIGTERM, _interrupt), sys.unraisablehook
    sys.unraisablehook = partial(_comes_again, otherwise)
    try:
        yield
    finally:
        sys.unraisablehook = otherwise
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _comes_again(otherwise: Callable[[Any], object], lost: Any) -> None:
    """Raise again an interrupt that arrived where an exception cannot propagate.

    In a finalizer or a callback of a weak reference (every import has one), Python reports the exception and continues.
    """
    if isinstance(lost.exc_value, KeyboardInterrupt):
        again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        otherwise(lost)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    few_arenas()
    options = parser().parse_args(arguments)
    try:
        with _terminable():
            if options.attached:
                attach()
            status: int = options.function(options)
    except RecordError as error:
        print(f"spatialstream: rejected: {error}", file=sys.stderr)
        return 1
    except RunError as error:
        print(f"spatialstream: {error}", file=sys.stderr)
        return 3
    except AllRejected as error:
        print(f"spatialstream: {error}", file=sys.stderr)
        return 4
    except SpatialStreamError as error:
        print(f"spatialstream: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("spatialstream: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has exited: nothing more to print
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"spatialstream: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    return status
