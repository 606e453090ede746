"""Quarantine: finds the records that make a turn fail, by executing the turn without some of them.

A turn (an epoch of the router, a round of the worker) is repeated until it is done. If it fails because of its data, it
would be repeated for ever. When it has failed twice in a row with the same exception, raised by a stage's own code, the
job *bisects* it: the stage, which is a function, is rehearsed with a part of its records, on a copy of the state before
the turn, and without a trace. The records that are found are *quarantined*.

Interface
    :func:`culprits` finds the records; a stage is rehearsed over an
    :class:`~spatialstream.connectors.memory_storage.Overlay`. :class:`QuarantinedRecord` is one decision, which is
    written into the turn's record before the turn is tried again.

Invariant
    A turn with quarantined records does what it would do if they had never come: no slot, no merger and no registry has
    anything of them, except for one dead letter each. That is a function of the turn's record: every repetition has the
    same outcome. A query that is already registered when it is quarantined ends with the turn; its earlier rows stay.
    The stream's clock has passed the quarantined records, and does not go back.

    With each decision the turn begins a new *revision*. The names of blocks, files and manifests contain their
    revision, so what a try before the decision has sent or written, or a task of it that ends late, is never taken for
    the turn's own.

Oracle
    The stream without the quarantined records (``tests/simulation.py``).

Records are found one after the other: the last record of the shortest failing prefix, in the order of the records,
queries before objects. The failure may need two or three records together; then the last of them is quarantined. If it
needs more, or if the turn fails with none of its records, because of its state, then no record is to blame: nothing is
quarantined, and the job fails as before. Cost: 1 + log2(records) rehearsals, and two more, for each record that is
found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import SpatialStreamError
from spatialstream.records.rejected import LONGEST_ECHO

__all__ = ["AMBIENT", "OBJECT", "QUERY", "QuarantinedRecord", "culprits", "dead_letter", "failure"]

AMBIENT = (MemoryError, OSError, pa.ArrowMemoryError, SpatialStreamError)
"""Failures that no record causes: a bisection that meets one fails."""

OBJECT, QUERY = "object", "query"
"""Records that a round quarantines; the numbers are sequence numbers of objects, and numbers of queries."""

_MOST = 16
"""Maximum records found in one bisection; if there are more, the turn fails again, and is bisected again."""

_LARGEST_SET = 3
"""Maximum number of records that together make a turn fail."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A quarantined record of a turn.

    Attributes:
        what: in an epoch, the name of the run that holds it; in a round, :data:`OBJECT` or :data:`QUERY`.
        number: in an epoch, its row in the run; in a round, its number.
        letter: its dead letter.
    """

    what: str
    number: int
    letter: str = ""


def dead_letter(error: Exception, stage: str, record: str, source: str, epoch: int, **place: int) -> str:
    """The dead letter of a quarantined record, as a line of JSON without its newline.

    Args:
        error: the stage's exception.
        stage: name of the stage.
        record: the record as JSON.
        source: the topic partition, or the kind of its topic if the partition is not known any more.
        epoch: in which it came.
        place: offset and line, if known.
    """
    reason = f"record: {stage} fails on it ({type(error).__name__}: {error})"[:LONGEST_ECHO]
    echo = record if len(record) <= LONGEST_ECHO else json.dumps(record[:LONGEST_ECHO] + "…", ensure_ascii=False)
    where = json.dumps({"source": source, "epoch": epoch, **place, "reason": reason}, ensure_ascii=False)
    return f'{where[:-1]}, "record": {echo}}}'


def failure(attempt: Callable[[], object]) -> Exception | None:
    """The exception that a rehearsal raises because of its records; None if there is none.

    Raises:
        Exception: one with another cause, see :data:`AMBIENT`.
    """
    try:
        attempt()
    except AMBIENT:
        raise
    except Exception as error:  # noqa: BLE001 - goes into a dead letter, or the job fails with it once more
        return error
    return None


def culprits(count: int, outcome: Callable[[npt.NDArray[np.int64]], Exception | None]) -> list[tuple[int, Exception]]:
    """The records that have to be quarantined for a stage not to fail, with the exception because of each.

    Args:
        count: number of records.
        outcome: the exception of the stage with the records at these positions, ascending; None if there is none.
    """
    culprits_of_turn: list[tuple[int, Exception]] = []
    suspects = np.arange(count)
    while len(culprits_of_turn) < _MOST and outcome(suspects) is not None:
        failing = _failing_set(suspects, outcome)
        if failing is None:
            break
        at, error = failing
        culprits_of_turn.append((int(suspects[at]), error))
        suspects = np.delete(suspects, at)
    return culprits_of_turn


def _failing_set(
    rest: npt.NDArray[np.int64], outcome: Callable[[npt.NDArray[np.int64]], Exception | None]
) -> tuple[int, Exception] | None:
    """The position of the last record of the first small set that fails by itself; None if there is none."""
    chosen = np.empty(0, np.int64)
    high, last = len(rest), -1
    for _ in range(_LARGEST_SET):
        low = 0  # with the first ``low`` records, and those chosen, the stage does not fail; with ``high`` it does
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
