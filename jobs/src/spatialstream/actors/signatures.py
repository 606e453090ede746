"""What a query coordinator knows of the views of slots: their signatures, its own and those that other actors send.

Signatures of an actor's own slots are there with the views. Those of another actor are requested when it is asked for a
query with words, and they are not known as of the query's round: once a round and actor, in the background, so no query
waits for them, and the next ones can do without that actor. So there are never more requests for signatures than for
searches: where rounds follow one another faster than queries, as many. An actor sends for each of its slots which
segments its view of the round has, and the signatures of those that the asking one does not have yet: after the first
time what the rounds since have added, 6 to 8 bytes an object, and once more for each merge of segments.

Until they have come, and of slots whose actor does not answer, nothing is known, and these slots are asked
(:mod:`spatialstream.stages.signatures`). A query is about one round; signatures of another round are never used for it.

The signatures of others take :data:`MEMORY` bytes at most: of segments beyond, only the times are known.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from spatialstream.actors.call_pool import CallPool
from spatialstream.actors.read_point import LocatedReadPoint
from spatialstream.actors.wire import raised
from spatialstream.connectors.calls import called
from spatialstream.local.snapshot.signatures import Signatures, SignedSegment
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.stages.signatures import Signed, SlotPruning
from spatialstream.stages.tasks import World
from spatialstream.stages.views import RoundId, view_of, views_here

__all__ = ["MEMORY", "SignatureCache", "signatures_here"]

MEMORY = 64 << 20
"""Maximum bytes of the signatures of other actors' slots, all together: those of some nine million objects."""

_SECONDS = 5.0
"""Timeout of an answer with signatures."""


class SignatureCache:
    """The signatures that a coordinator knows; thread-safe.

    Args:
        world: of the actor.
        secret: of the job.
        calls: to other actors.
        memory: maximum bytes of what others have sent.
        start: calls a function in the background.
    """

    def __init__(
        self,
        world: World,
        secret: str,
        calls: CallPool,
        memory: int = MEMORY,
        start: Callable[[Callable[[], None]], object] = called,
    ) -> None:
        self._world, self._secret, self._calls, self._memory, self._start = world, secret, calls, memory, start
        self._lock = threading.Lock()
        self._round: RoundId | None = None
        self._own: dict[int, Signed] = {}
        self._sent: dict[int, tuple[RoundId, Signed]] = {}
        self._asking, self._asked = set[str](), set[str]()
        self._pruning: SlotPruning | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of what others have sent."""
        return sum(_size(each) for _, signed in self._sent.values() for each in signed)

    def pruning(self, known: LocatedReadPoint) -> Callable[[], SlotPruning]:
        """What is known of the views of a round, whenever it is called."""
        self._turn_to(known)
        return lambda: self._now(known)

    def learn(self, known: LocatedReadPoint, addresses: Iterable[str]) -> None:
        """Request what is not known of the views of actors, in the background."""
        for address, slots in self._unknown(known, frozenset(addresses)):
            self._start(partial(self._fetch, address, known.read_point.round, slots))

    def _turn_to(self, known: LocatedReadPoint) -> None:
        """Look for views of a round here, unless it was done."""
        done = known.read_point.round
        with self._lock:
            if self._round == done:
                return
            slots = range(known.read_point.routing.slots)
            views = views_here(self._world.storage.place, slots, done)
            self._own = {slot: view.objects.signed for slot, view in views.items()}
            self._round, self._asked, self._pruning = done, set(), None
            self._sent = {slot: each for slot, each in self._sent.items() if slot not in self._own}

    def _unknown(self, known: LocatedReadPoint, addresses: Set[str]) -> list[tuple[str, list[int]]]:
        """Which of some actors are to be asked, and for which slots; they are not asked again for this round."""
        with self._lock:
            if self._round != known.read_point.round:
                return []
            slots, new = dict[str, list[int]](), addresses - self._asked - self._asking
            for slot, address in known.actors.items():
                if slot not in self._own and address in new:
                    slots.setdefault(address, []).append(slot)
            self._asked |= slots.keys()
            self._asking |= slots.keys()
            return [*slots.items()]

    def _now(self, known: LocatedReadPoint) -> SlotPruning:
        """What is known of the views of a round now."""
        done, routing = known.read_point.round, known.read_point.routing
        with self._lock:
            if self._round != done:  # another query is about a newer one
                return SlotPruning(self._world.settings.space, routing.slots, {})
            if self._pruning is None:
                sent = {slot: signed for slot, (of, signed) in self._sent.items() if of == done}
                here = next(iter(self._own), None)
                self._pruning = SlotPruning(self._world.settings.space, routing.slots, sent | self._own, here)
            return self._pruning

    # -------------------------------------------------------------------------------------------------------- fetching

    def _fetch(self, address: str, done: RoundId, slots: Sequence[int]) -> None:
        """Ask an actor for the signatures of its slots. If it does not send them, nothing is known of them."""
        try:
            with self._lock:
                have = {slot: [*_by_key(self._sent[slot][1])] if slot in self._sent else [] for slot in slots}
                room = self._memory - self.nbytes
            body = json.dumps({"round": done, "signatures": have, "room": room}).encode()
            with closing(self._calls.ask(address, self._secret, body, _SECONDS)) as messages:
                for message in messages:
                    self._take(message, done)
        except Exception:  # noqa: BLE001 - the query itself finds out what is wrong with the actor
            pass
        finally:
            with self._lock:
                self._asking.discard(address)

    def _take(self, message: bytes, done: RoundId) -> None:
        """Keep what a message says of a slot."""
        head, _, data = message.partition(b"\n")
        given = json.loads(head)
        if "failed" in given:
            raise raised(given["failed"])
        slot, at = int(given["slot"]), 0
        with self._lock:
            before = _by_key(self._sent[slot][1]) if slot in self._sent else {}
            signed = list[SignedSegment]()
            for t_min, t_max, key, size in given["segments"]:
                signatures = before.get(key)
                if size is not None:  # a copy, so that its numbers are aligned in memory
                    arrays, _ = unpack_arrays(pa.py_buffer(data[at : at + size]), key)
                    copied = Signatures.from_arrays({name: each.copy() for name, each in arrays.items()})
                    signatures = replace(copied, key=key)
                    at += size
                signed.append(SignedSegment(t_min, t_max, signatures))
            if slot not in self._own:
                self._sent[slot], self._pruning = (done, signed), None


def _size(segment: SignedSegment) -> int:
    return 0 if segment.signatures is None else segment.signatures.nbytes


def _by_key(signed: Signed) -> dict[str, Signatures]:
    return {each.signatures.key: each.signatures for each in signed if each.signatures is not None}


def signatures_here(place: str, done: RoundId, have: Mapping[str, Sequence[str]], room: int) -> Iterator[bytes]:
    """What is known of slots of this process, for :class:`SignatureCache` in another one: a message for each slot.

    Args:
        place: of the storage of the slots' state.
        done: a round that is done.
        have: of each slot the keys of signatures that the other one has.
        room: bytes that it can take.

    Raises:
        Gone: a view of the round is not here.
    """
    for slot, keys in have.items():
        segments, blobs = list[tuple[int, int, str, int | None]](), list[bytes]()
        for each in view_of(place, int(slot), done).objects.signed:
            key = "" if each.signatures is None else each.signatures.key
            size = None
            if each.signatures is not None and key not in keys and each.signatures.nbytes <= room:
                room -= each.signatures.nbytes
                blobs.append(b"".join(pack_arrays(each.signatures.to_arrays())))
                size = len(blobs[-1])
            segments.append((each.t_min, each.t_max, key, size))
        yield b"\n".join([_head(slot=int(slot), segments=segments), b"".join(blobs)])


def _head(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
