"""How a seat finds what few questions ask for: in its own slots without transport, in other seats with a message each.

Between seats a question travels as JSON, and what was found as one Arrow block for each type of question; that is a
message and its answer on a call that stands (:mod:`~spatialstream.seats.exchanges`). Where a seat does not answer, or
does not have what it is asked for, the question is left out; who has asked it has other ways.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spatialstream.model.errors import Gone
from spatialstream.model.queries import Query
from spatialstream.seats.exchanges import Exchanges
from spatialstream.seats.tally import Tally
from spatialstream.seats.whole import LARGEST
from spatialstream.seats.wire import SeatLost, told_of
from spatialstream.sources.calls import called
from spatialstream.stages import messages
from spatialstream.stages.questions import Directory, Found, Wanted, blocks_of, found_in, found_of, lines_here
from spatialstream.stages.tasks import World
from spatialstream.stages.views import RoundId

__all__ = ["Finder"]


class Finder:
    """Finds what questions ask for, see :class:`~spatialstream.seats.whole.Slots`; any number of threads may ask.

    Args:
        world: of the seat.
        secret: of the job.
        exchanges: with other seats.
        lose: is told the address of a seat that does not answer.
        tally: counts the questions that are answered.
    """

    def __init__(
        self,
        world: World,
        secret: str,
        exchanges: Exchanges,
        lose: Callable[[str], None],
        tally: Tally,
    ) -> None:
        self._world, self._secret = world, secret
        self._exchanges, self._lose, self._tally = exchanges, lose, tally

    def lines(
        self, queries: Sequence[Query], directory: Directory, seats: Mapping[int, str], seconds: float
    ) -> dict[int, str]:
        """The rows of questions by position, see :class:`~spatialstream.seats.whole.Slots`."""
        began = time.perf_counter()

        def begin(wanted: Sequence[Wanted]) -> Callable[[], Found]:
            left = max(0.001, seconds - (time.perf_counter() - began))
            return self._begun(_by_seat(wanted, seats), directory.round, left)

        settings, place = self._world.settings, self._world.storage.place
        given, limits = (queries, directory, settings.space, settings.retention, place), self._world.limits
        found = lines_here(*given, LARGEST, begin, None if limits is None else limits.longest)
        self._tally.answered([queries[i].type for i in found], time.perf_counter() - began)
        return found

    def _begun(self, by_seat: Mapping[str, Sequence[Wanted]], round_id: RoundId, seconds: float) -> Callable[[], Found]:
        """Ask seats at the same time; what is given waits for them."""

        def ask(address: str, wanted: Sequence[Wanted]) -> Future[Found]:
            return called(lambda: self._found_by(address, wanted, round_id, seconds))

        asked = [(wanted, ask(address, wanted) if address else None) for address, wanted in by_seat.items()]

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
        """What slots of another seat have."""
        body = json.dumps({"round": round_id, "wanted": [each.to_record() for each in wanted]}).encode()
        try:
            head, _, blocks = self._exchanges.ask(address, self._secret, body, seconds).partition(b"\n")
        except SeatLost:
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
        """What another seat is answered: numbers of the questions that are answered here, and blocks by type."""
        blocks = list[bytes]()

        def find() -> dict[str, Any]:
            given = json.loads(body)
            space, rule, (number, take) = self._world.settings.space, self._world.rule, given["round"]
            wanted = [Wanted.of(each, space, rule) for each in given["wanted"]]
            found = found_in(self._world.storage.place, (number, take), wanted, LARGEST)
            by_kind = blocks_of(wanted, found)
            if sum(block.nbytes for block in by_kind.values()) > LARGEST:
                raise Gone("what is found is too large to be answered by one seat")
            blocks.extend(messages.pack(block).to_pybytes() for block in by_kind.values())
            return {"numbers": list(found), "kinds": dict(zip(by_kind, map(len, blocks), strict=True))}

        return b"\n".join([told_of(find).encode(), b"".join(blocks)])


def _by_seat(wanted: Iterable[Wanted], seats: Mapping[int, str]) -> dict[str, list[Wanted]]:
    """Questions by the address of the seat that has the slots; those that are moving are under ""."""
    found: dict[str, list[Wanted]] = {}
    for each in wanted:
        slots: dict[str, list[int]] = {}
        for slot in each.slots:
            slots.setdefault(seats.get(slot, ""), []).append(slot)
        for address, mine in slots.items():
            found.setdefault(address, []).append(replace(each, slots=tuple(mine)))
    return found
