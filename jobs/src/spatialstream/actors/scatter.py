"""Searches slots for small batches of queries: own slots directly, those of other actors with one message each.

Between actors a query travels as JSON, and its result as one Arrow block per query type; both are messages on a
persistent call (:mod:`~spatialstream.actors.call_pool`). If an actor does not answer, or does not have what is asked
for, the result lacks the query, and the client finds the answer another way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spatialstream.actors.call_pool import CallPool
from spatialstream.actors.coordinator import LARGEST
from spatialstream.actors.query_metrics import QueryMetrics
from spatialstream.actors.wire import ActorLost, told_of
from spatialstream.connectors.calls import called
from spatialstream.model.errors import Gone
from spatialstream.model.queries import Query
from spatialstream.stages import messages
from spatialstream.stages.snapshot_queries import Found, ReadPoint, Wanted, blocks_of, found_in, found_of, lines_here
from spatialstream.stages.tasks import World
from spatialstream.stages.views import RoundId

__all__ = ["Scatter"]


class Scatter:
    """Searches slots, see :class:`~spatialstream.actors.coordinator.SlotSearch`; thread-safe.

    Args:
        world: of the actor.
        secret: of the job.
        call_pool: calls to other actors.
        lose: called with the address of an actor that does not answer.
        metrics: counts the answered queries.
    """

    def __init__(
        self,
        world: World,
        secret: str,
        call_pool: CallPool,
        lose: Callable[[str], None],
        metrics: QueryMetrics,
    ) -> None:
        self._world, self._secret = world, secret
        self._call_pool, self._lose, self._metrics = call_pool, lose, metrics

    def lines(
        self, queries: Sequence[Query], read_point: ReadPoint, actors: Mapping[int, str], seconds: float
    ) -> dict[int, str]:
        """The rows of queries by position, see :class:`~spatialstream.actors.coordinator.SlotSearch`."""
        began = time.perf_counter()

        def begin(wanted: Sequence[Wanted]) -> Callable[[], Found]:
            left = max(0.001, seconds - (time.perf_counter() - began))
            return self._begun(_by_actor(wanted, actors), read_point.round, left)

        settings, place = self._world.settings, self._world.storage.place
        given, limits = (queries, read_point, settings.space, settings.retention, place), self._world.limits
        found = lines_here(*given, LARGEST, begin, None if limits is None else limits.longest)
        self._metrics.answered([queries[i].type for i in found], time.perf_counter() - began)
        return found

    def _begun(
        self, by_actor: Mapping[str, Sequence[Wanted]], round_id: RoundId, seconds: float
    ) -> Callable[[], Found]:
        """Ask actors concurrently; the returned function waits for their answers."""

        def ask(address: str, wanted: Sequence[Wanted]) -> Future[Found]:
            return called(lambda: self._found_by(address, wanted, round_id, seconds))

        asked = [(wanted, ask(address, wanted) if address else None) for address, wanted in by_actor.items()]

        def wait() -> Found:
            found, lost = Found(), set[int]()
            for wanted, call in asked:
                answered = Found() if call is None else call.result()
                lost |= {each.number for each in wanted} - answered.keys()
                for number, parts in answered.items():
                    found.setdefault(number, []).extend(parts)
            return {number: parts for number, parts in found.items() if number not in lost}

        return wait

    def _found_by(self, address: str, wanted: Sequence[Wanted], round_id: RoundId, seconds: float) -> Found:
        """What slots of another actor have found."""
        body = json.dumps({"round": round_id, "wanted": [each.to_record() for each in wanted]}).encode()
        try:
            head, _, blocks = self._call_pool.ask(address, self._secret, body, seconds).partition(b"\n")
        except ActorLost:
            self._lose(address)
            return {}
        told = json.loads(head)
        if "failed" in told:
            return {}
        kinds, first = dict[str, pa.RecordBatch](), 0
        for kind, size in told["answer"]["kinds"].items():
            kinds[kind] = messages.unpack(memoryview(blocks)[first : first + size])
            first += size
        return found_of(wanted, kinds, told["answer"]["numbers"])

    def answer(self, body: bytes) -> bytes:
        """Answer another actor: the numbers of the queries that are answered here, and blocks by type."""
        blocks = list[bytes]()

        def find() -> dict[str, Any]:
            given = json.loads(body)
            space, rule, (number, revision) = self._world.settings.space, self._world.rule, given["round"]
            wanted = [Wanted.of(each, space, rule) for each in given["wanted"]]
            found = found_in(self._world.storage.place, (number, revision), wanted, LARGEST)
            by_kind = blocks_of(wanted, found)
            if sum(block.nbytes for block in by_kind.values()) > LARGEST:
                raise Gone("the result is too large for one actor: search the slots one by one")
            blocks.extend(messages.pack(block).to_pybytes() for block in by_kind.values())
            return {"numbers": list(found), "kinds": dict(zip(by_kind, map(len, blocks), strict=True))}

        return b"\n".join([told_of(find).encode(), b"".join(blocks)])


def _by_actor(wanted: Iterable[Wanted], actors: Mapping[int, str]) -> dict[str, list[Wanted]]:
    """Queries by the address of the actor that has their slots; slots that are moving are under ""."""
    found: dict[str, list[Wanted]] = {}
    for each in wanted:
        slots: dict[str, list[int]] = {}
        for slot in each.slots:
            slots.setdefault(actors.get(slot, ""), []).append(slot)
        for address, mine in slots.items():
            found.setdefault(address, []).append(replace(each, slots=tuple(mine)))
    return found
