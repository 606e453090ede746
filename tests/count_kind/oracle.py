"""The right counts, directly from their definition."""

from __future__ import annotations

from collections.abc import Iterator

from spatialstream.oracle.objects import SNAPSHOT, STEP, Accepted, AllObjects, Key, Row, in_reach, reach, row


def _scq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    query = life.query
    yield row(query, query.t, SNAPSHOT, reach(stream, query) | {"count": len(in_reach(stream, query))})


def _ccq(stream: AllObjects, life: Accepted, last: int) -> Iterator[tuple[Key, Row]]:
    query, window, step = life.query, life.query.lifetime.window, life.query.lifetime.step
    assert window is not None
    assert step is not None
    final = min(last, life.until if life.cancelled is None else min(life.until, life.cancelled - 1))
    times = [o.t for o in stream.matching(query.t, final, query.predicate)]
    for now in range(query.t + step, final + 1, step):
        yield row(query, now, STEP, {"count": sum(now - window < t <= now for t in times)})


ORACLES = {"SCQ": _scq, "CCQ": _ccq}
