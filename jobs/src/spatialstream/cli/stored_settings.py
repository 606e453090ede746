"""Settings of a live stream as its worker has stored them, so that commands that send to it need no such options.

The worker keeps the stream's space, rule of terms, properties and fields in ZooKeeper
(:class:`~spatialstream.actors.query_endpoint.QueryEndpoint`). A command reads them there; an option that says otherwise
is refused. ZooKeeper's default address is taken only beside the broker's: a broker elsewhere has its ZooKeeper
elsewhere.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError, StateError, Unavailable
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS, TermRule

if TYPE_CHECKING:
    from spatialstream.actors.query_endpoint import QueryEndpoint

__all__ = ["PATIENCE", "add_store", "complete", "settings"]

_OPTIONS = (
    *("space", "stop_words", "min_term_length", "query_words", "polygon_vertices", "ranking", "term_counts"),
    *("properties", "fields"),
)
PATIENCE = 20.0
"""Seconds to wait for the first start of a stream's worker, if ZooKeeper's address is given."""
_QUICK = 2.0
"""Seconds to wait for ZooKeeper at an address that nobody has given."""
_PAUSE = 0.5
_SHOWN = 8
_UNKNOWN = (Unavailable, StateError, SettingError)
"""Errors of a ZooKeeper that does not say what the stream is, or not to us."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the options of ZooKeeper; those of what it knows have no defaults from here on.

    Call it after the other options have been added.
    """
    live.add_store(parser)
    parser.set_defaults(**dict.fromkeys(_OPTIONS), rule=None)


def complete(options: argparse.Namespace) -> bool:
    """Set the options that the stream knows, ``space`` and ``rule`` among them; those not given to their defaults.

    Returns:
        Whether the stream has said what they are.

    Raises:
        SettingError: an option contradicts the stream; names both.
        Unavailable: ZooKeeper, whose address is given, does not answer, and none of the options is.
        StateError: what it keeps is damaged, likewise.
    """
    given_options = [name for name in _OPTIONS if getattr(options, name, None) is not None]
    endpoint: QueryEndpoint | None = None
    try:
        endpoint = _endpoint(options, PATIENCE)
    except _UNKNOWN as error:
        if _is_given(options) and (not given_options or isinstance(error, SettingError)):
            raise
        live.say(options, f"{error}; without the stream's own settings those of the options apply")
    shared.set_term_defaults(options)
    space = options.space or WGS84
    if endpoint is not None:
        asked = _told(space, shared.term_rule(options))
        _refuse(options.stream, given_options, asked, _told(Space.parse(endpoint.space), endpoint.rule))
        space, options.rule = Space.parse(endpoint.space), endpoint.rule
    options.space = space
    return endpoint is not None


def settings(options: argparse.Namespace) -> tuple[Space, TermRule]:
    """Space and rule by which queries are checked before they are sent: any rule, if the stream does not say.

    Raises:
        SettingError: ``--space`` contradicts the stream.
    """
    try:
        endpoint = _endpoint(options, 0.0)
    except _UNKNOWN:
        endpoint = None
    if endpoint is None:
        return options.space or WGS84, ANY_WORDS
    space = Space.parse(endpoint.space)
    if options.space is not None:
        _refuse(options.stream, ["space"], {"space": [str(options.space)]}, {"space": [str(space)]})
    return space, endpoint.rule


def _is_given(options: argparse.Namespace) -> bool:
    """Whether ZooKeeper's address has been given."""
    return bool(options.zookeeper != live.ZOOKEEPER)


def _endpoint(options: argparse.Namespace, patience: float) -> QueryEndpoint | None:
    """What the worker keeps in ZooKeeper of the stream; None: its address is not known.

    Args:
        options: those of :func:`~spatialstream.cli.live.add_broker` and :func:`~spatialstream.cli.live.add_store`.
        patience: seconds to wait for it, if the address is given.

    Raises:
        Unavailable: ZooKeeper does not answer, or no worker of the stream has run yet.
    """
    from spatialstream.actors.query_endpoint import QueryEndpoint

    given = _is_given(options)
    if not given and options.bootstrap != live.BOOTSTRAP:
        return None
    ends = time.monotonic() + (patience if given else 0.0)
    with live.store(options, timeout=None if given else _QUICK) as store:
        while True:
            try:
                return QueryEndpoint.read(store)
            except Unavailable:
                if time.monotonic() + _PAUSE > ends:
                    raise
            time.sleep(_PAUSE)


def _told(space: Space, rule: TermRule) -> Mapping[str, list[str]]:
    """The settings as texts, by option; of sets in an order of their own."""
    return {
        "space": [str(space)],
        "stop_words": sorted(rule.stop_words),
        "min_term_length": [str(rule.minimum_length)],
        "query_words": [str(rule.query_words)],
        "polygon_vertices": [str(rule.polygon_vertices)],
        "ranking": ["counted words" if rule.ranking else "no counted words"],
        "term_counts": ["counted occurrences" if rule.counts else "no counted occurrences"],
        "properties": sorted(rule.properties.declarations),
        "fields": sorted(rule.fields or ()),
    }


def _refuse(stream: str, given: Iterable[str], asked: Mapping[str, list[str]], own: Mapping[str, list[str]]) -> None:
    """Refuse options that contradict what the stream has."""
    for name in given:
        if asked[name] != own[name]:
            option = "property" if name == "properties" else name.replace("_", "-")
            told = f"{_listed(asked[name])} is given, and the stream {stream} has {_listed(own[name])}"
            raise SettingError(option, f"{told}; leave the option out")


def _listed(texts: list[str]) -> str:
    """Texts, of many only the first."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more if texts else "none"
