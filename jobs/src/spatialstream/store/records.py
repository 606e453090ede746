"""The content of a stream's small nodes: its state, in parts. :mod:`spatialstream.store.zookeeper` has the layout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

import pyarrow as pa

from spatialstream.store.codec import damage
from spatialstream.store.state import STAGES, Binding, Pending, RoutingState, Stage

__all__ = ["acknowledgement", "active_bytes", "epochs_bytes", "pending_bytes", "read_state"]

_PLAIN = ("last", "slots", "origin", "adopted", "incarnation")
"""Fields of :class:`~spatialstream.store.state.RoutingState` that ``active`` contains besides the active version.

It contains :data:`_LATER` too, except for streams whose last change was made before these fields existed: as far as is
known, they have their original tree, of some kind.
"""

_LATER = {"rebuilt": None, "kind": "", "reason": ""}
"""Fields that were added later, and what they are without having been written."""


def active_bytes(state: RoutingState) -> bytes:
    """``active``: what a change checks."""
    record = asdict(state.active) | {name: getattr(state, name) for name in (*_PLAIN, *_LATER)}
    return json.dumps(record).encode()


def epochs_bytes(state: RoutingState) -> bytes:
    """``epochs``: [version, first epoch] of all bindings."""
    return json.dumps([[each.number, each.epoch] for each in state.bindings]).encode()


def pending_bytes(pending: Pending) -> bytes:
    """``pending``: JSON, compressed, after its length in 8 bytes."""
    plain = json.dumps([pending.number, pending.base, pending.proposal, dict(pending.record)]).encode()
    packed: bytes = pa.Codec("zstd").compress(plain, asbytes=True)
    return len(plain).to_bytes(8, "little") + packed


def acknowledgement(number: int, stage: Stage, slot: int) -> str:
    """The name of the node by which a slot confirms a stage of a version."""
    return f"{number}-{stage}-{slot}"


def read_state(active: bytes, epochs: bytes, pending: bytes | None, acks: Iterable[str]) -> RoutingState:
    """The state that the nodes contain together.

    Raises:
        StateError: they do not have the format of this module.
    """
    with damage("the state of the stream"):
        record = json.loads(active)
        coming = None if pending is None else _pending(pending)
        confirmed: dict[str, set[int]] = {stage: set() for stage in STAGES}
        for name in acks:
            number, stage, slot = name.split("-")
            if coming is not None and int(number) == coming.number:
                confirmed[stage].add(int(slot))
        return RoutingState(
            Binding(record["number"], record["epoch"]),
            coming,
            tuple(Binding(*each) for each in json.loads(epochs)),
            frozenset(confirmed["exported"]),
            frozenset(confirmed["loaded"]),
            **{name: record[name] for name in _PLAIN},
            **{name: record.get(name, default) for name, default in _LATER.items()},
        )


def _pending(data: bytes) -> Pending:
    size = int.from_bytes(data[:8], "little")
    return Pending(*json.loads(pa.Codec("zstd").decompress(data[8:], size, asbytes=True)))
