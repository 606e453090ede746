"""The command line: files (``run | generate | tree | check | demo``) and live streams (``router | query | ...``).

Exit status: 0 done; 1 ``--strict`` met a rejected record, or ``check`` found a difference; 2 a setting is unusable (one
line says which, and what would be right); 3 the run failed, and one line says why, and whether the same command can go
on; 4 every object, or every query, was rejected; 130 stopped at once by an interrupt or SIGTERM, a second one where the
first lets it finish something.
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
"""Seconds after which a lost interrupt comes again: by then what could not raise it is over."""


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here: the command whose help is of use, not the program, tells of it."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from spatialstream.cli import (
        check,
        cluster,
        demo,
        gateway,
        generate,
        load,
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
    files = (run, generate, tree, check, demo, demo_live)
    streams = (router, worker, load, query, results, status, rebalance, remove, gateway, cluster)
    for module in files + streams:
        module.add_parser(commands)
    return top


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is an interrupt, so what is open is closed; commands that have something to finish handle both.

    By default it would end a process on the spot, or, as the first one of a container, not at all.
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
    """An interrupt that came where nothing can be raised comes once more.

    A finalizer or a callback of a weak reference, as each import has: there Python tells what was raised and goes on.
    """
    if isinstance(lost.exc_value, KeyboardInterrupt):
        again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        otherwise(lost)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
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
        sys.stderr.close()  # whoever read our output has gone: no more to say
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"spatialstream: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    return status
