"""Decisions that fail can be left: which records a turn cannot be done with, found by trying it without some.

A turn (an epoch of the router, a round of the worker) is repeated until it is done. One that fails for a cause in its
data would be repeated for ever. When it has failed twice in a row of the same exception, raised by a stage's own code,
the job *narrows it down*: the stage is rehearsed, as the function that it is, with a part of its records, on a copy of
the state that it begins with, and without a trace. What is found is *left out*.

Interface
    :func:`culprits` finds the records; a stage is rehearsed over an
    :class:`~spatialstream.connectors.memory_storage.Overlay`. :class:`QuarantinedRecord` is one decision, which is
    written into the turn's record before the turn is tried again.

Invariant
    A turn that leaves records out does what it would do if they had never come: no slot, no merger and no registry has
    anything of them, but for one dead letter each. That is a function of the turn's record: whoever repeats it takes
    the same way. A query that is left out when it stands already ends with the turn; rows that it has had stay. The
    stream's clock has passed what is left out, and does not go back.

    With each decision the turn begins a new *revision*. Blocks, files and manifests bear the number of their revision,
    so what a try before the decision has sent or written, or a task of it that ends late, is never taken for the turn's
    own.

Oracle
    The stream without the records that were left out (``tests/simulation.py``).

Found is one record after the other: the last of the shortest failing part, in the order of the records, queries before
objects. Two or three records may be needed for the failure; then the last of them is left out. If more are, or if the
turn fails with none of its records, for what the state holds already, then no record is to blame: nothing is left out,
and the job fails as it would have. Costs 1 + log2(records) rehearsals, and two more, for each record that is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import SpatialStreamError
from spatialstream.records.decode import LONGEST_ECHO

__all__ = ["AMBIENT", "OBJECT", "QUERY", "QuarantinedRecord", "culprits", "dead_letter", "failure"]

AMBIENT = (MemoryError, OSError, pa.ArrowMemoryError, SpatialStreamError)
"""Failures that are not for a record's sake: a narrowing that meets one fails."""

OBJECT, QUERY = "object", "query"
"""What a round leaves out; the numbers are sequence numbers of objects, and numbers of queries."""

_MOST = 16
"""Records that are found in one narrowing; if there are more, the turn fails again, and there is another."""

_LARGEST_SET = 3
"""Records that together make a turn fail."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record that a turn leaves out.

    Attributes:
        what: in an epoch, the name of the run that holds it; in a round, :data:`OBJECT` or :data:`QUERY`.
        number: in an epoch, its row in the run; in a round, its number.
        letter: its dead letter.
    """

    what: str
    number: int
    letter: str = ""


def dead_letter(error: Exception, stage: str, record: str, source: str, epoch: int, **place: int) -> str:
    """The dead letter of a record that is left out, as a line of JSON without its newline.

    Args:
        error: what the stage has raised.
        stage: which one.
        record: the record as JSON.
        source: the topic partition, or the kind of its topic where the partition is not known any more.
        epoch: in which it came.
        place: offset and line, where they are known.
    """
    reason = f"record: {stage} cannot be done with it ({type(error).__name__}: {error})"[:LONGEST_ECHO]
    echo = record if len(record) <= LONGEST_ECHO else json.dumps(record[:LONGEST_ECHO] + "…", ensure_ascii=False)
    where = json.dumps({"source": source, "epoch": epoch, **place, "reason": reason}, ensure_ascii=False)
    return f'{where[:-1]}, "record": {echo}}}'


def failure(attempt: Callable[[], object]) -> Exception | None:
    """What a rehearsal raises for its records' sake; None if nothing.

    Raises:
        Exception: what it raises for another reason, see :data:`AMBIENT`.
    """
    try:
        attempt()
    except AMBIENT:
        raise
    except Exception as error:  # noqa: BLE001 - it is told in a dead letter, or the job fails with it once more
        return error
    return None


def culprits(count: int, outcome: Callable[[npt.NDArray[np.int64]], Exception | None]) -> list[tuple[int, Exception]]:
    """The records that have to be left out for a stage not to fail, with what it raises because of each.

    Args:
        count: how many records there are.
        outcome: what the stage raises with the records at these places, ascending; None if nothing.
    """
    found: list[tuple[int, Exception]] = []
    rest = np.arange(count)
    while len(found) < _MOST and outcome(rest) is not None:
        failing = _failing_set(rest, outcome)
        if failing is None:
            break
        at, error = failing
        found.append((int(rest[at]), error))
        rest = np.delete(rest, at)
    return found


def _failing_set(
    rest: npt.NDArray[np.int64], outcome: Callable[[npt.NDArray[np.int64]], Exception | None]
) -> tuple[int, Exception] | None:
    """The place of the last record of the first small set that fails by itself; None if there is none."""
    chosen = np.empty(0, np.int64)
    high, last = len(rest), -1
    for _ in range(_LARGEST_SET):
        low = 0  # with so many of the first records, and those chosen, it does not fail; with ``high`` it does
        if (raised := outcome(chosen)) is not None:
            return None if last < 0 else (last, raised)
        while high - low > 1:
            middle = (low + high) // 2
            if outcome(np.union1d(rest[:middle], chosen)) is None:
                low = middle
            else:
                high = middle
        chosen = np.union1d(rest[high - 1 : high], chosen)
        last, high = max(last, high - 1), high - 1
    raised = outcome(chosen)
    return None if raised is None else (last, raised)
