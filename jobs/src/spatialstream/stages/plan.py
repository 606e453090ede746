"""The plan of an ordered input: sorted runs of decoded records, and how time is cut into epochs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.sources.contracts import Storage
from spatialstream.sources.disk import DAMAGED
from spatialstream.stages.state import get_json, put_json

__all__ = ["PLAN_FILE", "EpochPlan", "Run", "cut_epochs", "pack_place", "unpack_place"]

PLAN_FILE = "plan.json"
"""The plan's name in the checkpoint."""


_LINE_BITS = 24


def pack_place(offset: npt.NDArray[np.int64], line: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Offset of a message in its topic partition and line within the message (from 1), as one number."""
    packed: npt.NDArray[np.int64] = (offset << _LINE_BITS) | np.minimum(line, (1 << _LINE_BITS) - 1)
    return packed


def unpack_place(place: int) -> tuple[int, int]:
    """(offset, line) of :func:`pack_place`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted Arrow file of decoded records.

    Attributes:
        name: file name under the checkpoint's ``input`` folder; names sort in input order.
        kind: ``"objects"`` or ``"queries"``.
        rows: number of records.
        times: every so-many-th timestamp, first and last included, ascending.
        source: the input file.
        rejected: number of records of this block that were rejected.
        packed: whether its records' lines are places in a topic partition, see :func:`pack_place`.
    """

    name: str
    kind: str
    rows: int
    source: str
    times: tuple[int, ...]
    rejected: int
    packed: bool = False

    def to_json(self) -> str:
        """The run as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Run:
        """What :meth:`to_json` gave."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Run:
        """From JSON that has been parsed."""
        return cls(**(values | {"times": tuple(values["times"])}))

    @property
    def first(self) -> int:
        """Smallest timestamp."""
        return self.times[0]

    @property
    def last(self) -> int:
        """Largest timestamp."""
        return self.times[-1]


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """How the input is cut into epochs.

    Attributes:
        upto: last timestamp of each epoch, ascending; empty when there is no input.
        runs: all runs that hold records.
        rejected: records that were rejected while decoding.
        partitions: router partitions; fixed for the run's life, because Spark's offsets count them.
    """

    upto: tuple[int, ...]
    runs: tuple[Run, ...]
    rejected: int
    partitions: int = 1

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.upto)

    def bounds(self, epoch: int) -> tuple[int, int]:
        """The epoch's range of time (after, upto]."""
        after = self.upto[epoch - 1] if epoch else -(2**62)
        return after, self.upto[epoch]

    def runs_of(self, epoch: int, kind: str) -> list[Run]:
        """The runs that reach into an epoch, in input order."""
        after, upto = self.bounds(epoch)
        return [run for run in self.runs if run.kind == kind and run.first <= upto and run.last > after]

    def bounds_of(self, epoch: int, run: Run) -> tuple[int, int]:
        """See :class:`spatialstream.stages.runs.Epochs`."""
        return self.bounds(epoch)

    def left_of(self, run: Run) -> Sequence[int]:
        """See :class:`spatialstream.stages.runs.Epochs`."""
        return ()

    def save(self, storage: Storage) -> None:
        """Write as JSON."""
        put_json(storage, PLAN_FILE, asdict(self))

    @classmethod
    def load(cls, storage: Storage, way_out: str = DAMAGED) -> EpochPlan:
        """Read what :meth:`save` wrote."""
        plan = get_json(storage, PLAN_FILE, way_out)
        runs = tuple(Run.from_dict(run) for run in plan["runs"])
        return cls(tuple(plan["upto"]), runs, plan["rejected"], plan["partitions"])


def cut_epochs(runs: Sequence[Run], epoch_records: int, partitions: int = 1) -> EpochPlan:
    """Cut time into epochs of about ``epoch_records`` records (more where many records share one timestamp)."""
    rejected = sum(run.rejected for run in runs)
    kept = tuple(run for run in runs if run.rows)
    if not kept:
        return EpochPlan((), (), rejected, partitions)
    times = np.concatenate([np.array(run.times, np.int64) for run in kept])
    # a thinned-out timestamp stands for the records since the one before it
    weights = np.concatenate([np.full(len(run.times), run.rows / len(run.times)) for run in kept])
    order = np.argsort(times, kind="stable")
    times, filled = times[order], np.cumsum(weights[order])
    goals = np.arange(epoch_records, filled[-1] - epoch_records / 2, epoch_records)
    cuts = times[np.searchsorted(filled, goals)]
    return EpochPlan(tuple(np.unique(np.append(cuts, times[-1])).tolist()), kept, rejected, partitions)
