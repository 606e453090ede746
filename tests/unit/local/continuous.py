"""Small streams with many ties, cut into epochs and dealt to slots, for the tests of continuous queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Query, QueryBatch
from spatialstream.model.space import WGS84, Space

PLANE = Space.planar(0.0, 0.0, 4.0, 4.0)
PLACES = {
    PLANE: [(x, y) for x in (0.0, 1.0, 2.0, 3.5) for y in (0.0, 1.0, 4.0)],
    WGS84: [
        (-180.0, 0.0),
        (180.0, 0.0),
        (179.5, 1.0),
        (-179.5, 0.5),
        (0.0, 90.0),
        (90.0, 90.0),
        (10.0, 50.0),
        (10.5, 50.0),
    ],
}
WORDS = ["x", "y", "zebra-crossing"]
LAST = 16


@dataclass
class Epoch:
    """What comes in one epoch."""

    numbers: list[int] = field(default_factory=list)
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    objects: list[SpatialObject] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    before: int = 0
    """No later record is earlier than this."""
    horizon: int = 0
    """No later object, and no later registration or cancellation at this instant, is earlier than or at this."""
    restart: bool = False


@dataclass
class Stream:
    """A stream: everything at once for the oracle, and epoch by epoch."""

    space: Space
    queries: list[Query]
    end: list[int]
    """Of each query (its number is its position): its cancellation, or a time after everything."""
    objects: list[SpatialObject]
    slots: int
    epochs: list[Epoch]

    def batch(self, numbers: list[int]) -> tuple[np.ndarray, pa.StringArray, QueryBatch, np.ndarray]:
        """Arguments of ``register``, apart from the end."""
        queries = QueryBatch.of([self.queries[i] for i in numbers])
        return np.array(numbers, np.int64), queries.ids, queries, queries.t


def order(o: SpatialObject) -> tuple[int, str, float, float]:
    """The order in which objects come."""
    return o.t, o.id, o.x, o.y


@st.composite
def streams(draw: st.DrawFn, queries: st.SearchStrategy[list[Query]], space: Space) -> Stream:
    """Streams over the given queries."""
    found = draw(queries)
    times = st.integers(0, LAST)
    objects = draw(
        st.lists(
            st.builds(
                lambda i, t, place, terms: SpatialObject(i, t, *place, tuple(terms)),
                st.sampled_from(["a", "b", "ab", "é", "𝒂"]),
                times,
                st.sampled_from(PLACES[space]),
                st.sets(st.sampled_from(WORDS)).map(sorted),
            ),
            max_size=24,
        )
    )
    objects = sorted(objects, key=order)
    end = [draw(st.one_of(st.just(10**9), times.map(lambda t, q=q: max(t, q.t)))) for q in found]
    slots = draw(st.integers(1, 3))
    records = [((q.t, 0), ("query", i)) for i, q in enumerate(found)]
    records += [((c, 1), ("cancel", i)) for i, c in enumerate(end) if c < 10**9]
    records += [((o.t, 2), ("object", i)) for i, o in enumerate(objects)]
    records.sort(key=lambda record: record[0])
    cuts = sorted(draw(st.sets(st.integers(0, max(0, len(records))), max_size=6)) | {0, len(records)})
    epochs = []
    for low, high in pairwise(cuts):
        epoch = Epoch(restart=draw(st.booleans()))
        for (t, kind), (what, i) in records[low:high]:
            if what == "query":
                epoch.numbers.append(i)
            elif what == "cancel":
                epoch.cancelled.append((i, t))
            else:
                epoch.objects.append(objects[i])
                epoch.slots.append(draw(st.integers(0, slots - 1)))
            epoch.before, epoch.horizon = t, t if kind == 2 else t - 1
        epochs.append(epoch)
    if epochs:
        epochs[-1].horizon = epochs[-1].before  # nothing comes later
        epochs[-1].before += 1
    return Stream(space, found, end, objects, slots, epochs)


def compiled(*modules: ModuleType) -> dict[str, int]:
    """How many types of arguments each kernel of some modules has been compiled for."""
    return {
        f"{module.__name__}.{name}": len(kernel.signatures)
        for module in modules
        for name, kernel in vars(module).items()
        if hasattr(kernel, "signatures")
    }
