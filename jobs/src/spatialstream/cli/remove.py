"""``spatialstream remove``: removes what a live stream has left behind."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError, SpatialStreamError, StateError, Unavailable

if TYPE_CHECKING:
    from spatialstream.sources.contracts import Storage
    from spatialstream.sources.kafka import Connection

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "remove",
        help="remove a live stream",
        description="Removes a live stream whose jobs have been stopped: its routing versions in ZooKeeper, its "
        "internal topics, its checkpoint and, if asked for, the topics that hold its input and results. The archive "
        "stays, and a checkpoint that holds anything else is refused. Can be repeated.",
    )
    live.add_broker(parser)
    live.add_store(parser)
    add = parser.add_argument
    told = "the stream's state, to be removed with it: a folder, or s3://bucket/prefix"
    add("--checkpoint", type=shared.storage("checkpoint"), metavar="DIR|URL", help=told)
    add("--topics", choices=("internal", "all"), default="internal", help="all: input, results and dead letters too")
    add("--yes", action="store_true", required=True, help="you mean it")
    add("--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(function=_remove)


def _remove(options: argparse.Namespace) -> int:
    from spatialstream.sources.kafka import INTERNAL

    connection = live.connection(options)
    if options.checkpoint is not None:
        check_checkpoint(options.checkpoint, options.stream)
    with ExitStack() as held:
        _hold(options, held)
        parts = (_forget, partial(_remove_topics, connection, INTERNAL), _empty_checkpoint)
        failed = [error for part in parts if (error := _tried(part, options)) is not None]
    if failed:
        for error in failed[:-1]:
            print(f"spatialstream: {error}", file=sys.stderr)
        raise failed[-1]
    return 0


def _hold(options: argparse.Namespace, held: ExitStack) -> None:
    """Be the one who is at the stream's jobs; if ZooKeeper cannot be asked, what can be removed is, all the same.

    Raises:
        SettingError: a job is running.
    """
    store = held.enter_context(live.store(options))
    with contextlib.suppress(Unavailable):
        for job in ("router", "worker"):
            held.enter_context(store.lease(job)).acquire(live.LEASE_PATIENCE)


def _tried(part: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> SpatialStreamError | None:
    """Remove a part of the stream; what was in the way, which is no reason to leave the others."""
    try:
        part(options)
    except SpatialStreamError as error:
        return error
    return None


def _forget(options: argparse.Namespace) -> None:
    with live.store(options) as store:
        store.erase()
    live.say(options, f"{options.stream} is not in ZooKeeper any more")


def _remove_topics(connection: Connection, internal: Sequence[str], options: argparse.Namespace) -> None:
    removed = connection.topics(options.stream).remove(connection, internal if options.topics == "internal" else ())
    live.say(options, f"topics removed: {', '.join(removed) or 'none'}")


def _empty_checkpoint(options: argparse.Namespace) -> None:
    if options.checkpoint is not None:
        empty_checkpoint(options.checkpoint)
        live.say(options, f"{options.checkpoint.place} is empty")


def check_checkpoint(storage: Storage, stream: str) -> None:
    """Make sure that a storage is a stream's checkpoint, and holds nothing else; before anything is removed.

    Raises:
        SettingError: it holds what no stream has written, or belongs to another stream.
    """
    from spatialstream.sources.folder import Folder
    from spatialstream.sources.owned import STREAM
    from spatialstream.stages.state import get_json

    if isinstance(storage, Folder):
        STREAM.check(storage.path, "checkpoint")
    else:
        STREAM.check_storage(storage, "checkpoint")
    owner = stream
    with contextlib.suppress(StateError, LookupError, TypeError):  # missing, or damaged: of nobody else
        owner = get_json(storage, STREAM.marker)["stream"]
    if owner != stream:
        raise SettingError("checkpoint", f"{storage.place} belongs to the stream {owner!r}; nothing has been deleted")


def empty_checkpoint(storage: Storage) -> None:
    """Remove what the stream has written; a folder itself may be where a volume is mounted.

    Raises:
        SettingError: something cannot be removed.
    """
    from spatialstream.sources.folder import Folder
    from spatialstream.sources.owned import STREAM

    if not isinstance(storage, Folder):
        return STREAM.empty_storage(storage)
    try:
        STREAM.empty(storage.path)
        for lock in storage.path.glob("*.lock"):
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError("checkpoint", f"{error.filename} cannot be removed: {error.strerror}") from None
