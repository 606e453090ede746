"""``spatialstream remove``: remove the state and topics of a stopped live stream."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.connectors.owned import CREATED_TOPICS
from spatialstream.model.errors import SettingError, SpatialStreamError, StateError, Unavailable

if TYPE_CHECKING:
    from spatialstream.connectors.contracts import Storage
    from spatialstream.connectors.kafka import Connection
    from spatialstream.store.zookeeper import ZooKeeperStore
    from spatialstream.stream.created_topics import CreatedTopics

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "remove",
        help="remove a live stream",
        description="Removes a live stream whose jobs have been stopped: its routing versions in ZooKeeper, its "
        "internal topics, its checkpoint and, with --topics all, the topics of its input and results. A topic is "
        "deleted only if this stream created it, as its checkpoint says, and no other stream uses it. The archive is "
        "kept, and a checkpoint that contains anything else is refused. Can be repeated.",
    )
    live.add_broker(parser)
    live.add_store(parser)
    add = parser.add_argument
    text = "the stream's state, to be deleted too: a folder, or s3://bucket/prefix"
    add("--checkpoint", type=shared.storage("checkpoint"), metavar="DIR|URL", help=text)
    text = "topics to delete; all includes input, results and dead letters (default internal)"
    add("--topics", choices=("internal", "all"), default="internal", help=text)
    add("--spare", action="append", default=[], metavar="TOPIC", help="keep this topic; may be repeated")
    text = "also remove routing state of this incarnation of the stream, not only of the checkpoint's incarnation"
    add("--incarnation", metavar="ID", help=text)
    add("--yes", action="store_true", required=True, help="confirm the removal")
    add("--quiet", action="store_true", help="print only errors")
    parser.set_defaults(function=_remove)


def _remove(options: argparse.Namespace) -> int:
    connection, created = live.connection(options), None
    if options.checkpoint is not None:
        check_checkpoint(options.checkpoint, options.stream)
        created = _created_topics(options.checkpoint)
    with ExitStack() as held:
        store = held.enter_context(live.store(options))
        _hold(store, held)
        _check_incarnation(store, options, created)
        parts = (partial(_remove_topics, connection, store, created), partial(_forget, store), _empty_checkpoint)
        failed = [error for part in parts if (error := _tried(part, options)) is not None]
    if failed:
        for error in failed[:-1]:
            print(f"spatialstream: {error}", file=sys.stderr)
        raise failed[-1]
    if options.checkpoint is not None:
        options.checkpoint.delete([CREATED_TOPICS])
    return 0


def _created_topics(storage: Storage) -> CreatedTopics | None:
    """Read the checkpoint's record of topics and of the stream's incarnation; None if it has none."""
    from spatialstream.connectors.owned import STREAM
    from spatialstream.stages.state import get_json
    from spatialstream.stream.created_topics import CreatedTopics, read_created_topics

    record = None
    with contextlib.suppress(StateError):  # damaged: no topic is known to belong to the stream
        record = read_created_topics(storage)
    with contextlib.suppress(StateError, LookupError, TypeError):  # missing or damaged: nothing more is known
        marker = get_json(storage, STREAM.marker)
        return CreatedTopics(
            marker["stream"], str(marker.get("incarnation", "")), {} if record is None else record.topics
        )
    return record


def _hold(store: ZooKeeperStore, held: ExitStack) -> None:
    """Acquire the leases of the stream's jobs; if ZooKeeper is unavailable, the removal continues without them.

    Raises:
        SettingError: a job is running.
    """
    with contextlib.suppress(Unavailable):
        for job in ("router", "worker"):
            held.enter_context(store.lease(job)).acquire(live.LEASE_PATIENCE)


def _check_incarnation(store: ZooKeeperStore, options: argparse.Namespace, created: CreatedTopics | None) -> None:
    """Protect the ZooKeeper state of another incarnation: two clusters may have a stream of the same name.

    Raises:
        SettingError: the state belongs to another incarnation.
    """
    known = {options.incarnation, None if created is None else created.incarnation} - {None}
    with contextlib.suppress(Unavailable):
        if not known or not store.versions() or (incarnation := store.state().incarnation) in known:
            return
        ours = " or ".join(sorted(each or "without an id" for each in known))
        problem = (
            f"the routing store belongs to another incarnation of {options.stream} "
            f"({incarnation or 'without an id'}) than the checkpoint "
            f"({ours}), so nothing has been deleted. Without --checkpoint, the content of the routing store is removed"
        )
        raise SettingError("checkpoint", problem)


def _tried(part: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> SpatialStreamError | None:
    """Remove a part of the stream; return the error, which does not prevent removal of the other parts."""
    try:
        part(options)
    except SpatialStreamError as error:
        return error
    return None


def _forget(store: ZooKeeperStore, options: argparse.Namespace) -> None:
    store.erase()
    live.say(options, f"{options.stream} has been removed from ZooKeeper")


def _remove_topics(
    connection: Connection, store: ZooKeeperStore, created: CreatedTopics | None, options: argparse.Namespace
) -> None:
    topics = connection.topics(options.stream)
    between = {topics.blocks, topics.epochs}
    known = {} if created is None else created.topics
    candidates = {name: each for name, each in known.items() if options.topics == "all" or name in between}
    used = dict.fromkeys(options.spare, "another stream uses it")
    trouble: Unavailable | None = None
    try:
        used |= _used_by_others(connection, store) if candidates else {}
    except Unavailable as error:  # whether other streams use the external topics is unknown then
        trouble = error
        used |= dict.fromkeys(candidates.keys() - between, f"cannot check whether another stream uses it: {error}")
    going = {name: each for name, each in candidates.items() if name not in used}
    removed = topics.remove(connection, going) if going else []
    live.say(options, f"topics removed: {', '.join(removed) or 'none'}")
    for name in sorted({*candidates, *(topics.names.values() if options.topics == "all" else between)} - {*removed}):
        why = used.get(name, "it does not exist, or this stream did not create it")
        live.say(options, f"the topic {name} is kept: {why}")
    if trouble is not None and candidates.keys() - between:
        raise trouble


def _used_by_others(connection: Connection, store: ZooKeeperStore) -> dict[str, str]:
    """Topics that other streams in this ZooKeeper use, each with a sentence that names the stream.

    Kafka clusters are compared by id, so the addresses by which streams reach the broker do not matter.

    Raises:
        Unavailable: Kafka or ZooKeeper does not answer.
    """
    from spatialstream.connectors.kafka import cluster_of
    from spatialstream.store.reports import TOPICS, UsedTopics

    cluster, used = cluster_of(connection), dict[str, str]()
    for stream, meta in store.of_others(TOPICS).items():
        theirs = UsedTopics.of(meta)
        if theirs.cluster == cluster:
            used |= dict.fromkeys(theirs.names.values(), f"the stream {stream} uses it")
    return used


def _empty_checkpoint(options: argparse.Namespace) -> None:
    if options.checkpoint is not None:
        empty_checkpoint(options.checkpoint)
        live.say(options, f"{options.checkpoint.place} is empty")


def check_checkpoint(storage: Storage, stream: str) -> None:
    """Check, before anything is removed, that a storage is a stream's checkpoint and contains nothing else.

    Raises:
        SettingError: it contains files that no stream has written, or belongs to another stream.
    """
    from spatialstream.connectors.folder import Folder
    from spatialstream.connectors.owned import STREAM

    if isinstance(storage, Folder):
        STREAM.check(storage.path, "checkpoint")
    else:
        STREAM.check_storage(storage, "checkpoint")
    created = _created_topics(storage)
    owner = stream if created is None else created.stream  # missing or damaged: no other owner is known
    if owner != stream:
        raise SettingError("checkpoint", f"{storage.place} belongs to the stream {owner!r}; nothing has been deleted")


def empty_checkpoint(storage: Storage) -> None:
    """Remove the stream's files; the folder itself stays, since a volume may be mounted there.

    The record of topics stays too, for it may still be needed to remove them.

    Raises:
        SettingError: a file cannot be removed.
    """
    from spatialstream.connectors.folder import Folder
    from spatialstream.connectors.owned import STREAM

    if not isinstance(storage, Folder):
        return STREAM.empty_storage(storage, [CREATED_TOPICS])
    try:
        STREAM.empty(storage.path, [storage.path / CREATED_TOPICS])
        for lock in storage.path.glob("*.lock"):
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError("checkpoint", f"{error.filename} cannot be removed: {error.strerror}") from None
