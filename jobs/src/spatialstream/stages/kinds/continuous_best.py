"""CBQ: the k best objects by place, text and time, at each change: Pastri's query, registered, with forward decay.

It is a CKQ in another order, which is that of keys (:mod:`spatialstream.local.best.cbq`): an object that is not among
the best of a slot is not among those of all. MERGE keeps the answers (:mod:`spatialstream.local.best.merger`).

A slot registers a query with the weights of its words by the corpus table of the query's time, as an SBQ of that time
would have them. From then on they are part of the query, also where it moves to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from spatialstream.local.base import ContinuousMerger
from spatialstream.local.best.merger import BestMerger, ScoredArrivals
from spatialstream.local.nearest.skyband import Arrivals
from spatialstream.local.snapshot.corpora import Corpora
from spatialstream.model.errors import StateError
from spatialstream.model.queries import QueryBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.stages import messages
from spatialstream.stages.kinds.nearest import ContinuousNearest
from spatialstream.stages.kinds.rows import BEST_CHANGE

__all__ = ["ContinuousBest", "weighed"]


class ContinuousBest(ContinuousNearest):
    """CBQ: the best k at each of their changes."""

    kind: ClassVar[str] = "CBQ"
    block: ClassVar[str] = messages.BEST_ARRIVALS
    values: ClassVar[tuple[str, ...]] = ("distance", "score", "key")
    arrivals: ClassVar[type[Arrivals]] = ScoredArrivals
    order: ClassVar[int] = BEST_CHANGE
    spooled: ClassVar[Mapping[str, str]] = {messages.BEST_ARRIVALS: "t"}
    merger: ClassVar[type[ContinuousMerger]] = BestMerger


def weighed(queries: QueryBatch, corpora: Corpora | None) -> QueryBatch:
    """Ranked queries with the weights of their words; those that have them already keep them.

    Raises:
        StateError: no corpus table has been written, or it is damaged.
    """
    texts = [_weighed(Ranking.of_text(queries.ranking[i].as_py()), int(t), corpora) for i, t in enumerate(queries.t)]
    return replace(queries, ranking=pa.array(texts, pa.string()))


def _weighed(by: Ranking, t: int, corpora: Corpora | None) -> str:
    if by.weights:
        return by.text
    if corpora is None:
        raise StateError("no corpus table has been written, by which a continuous query could rank")
    return replace(by, weights=tuple(by.weighed(corpora.of(t).weights_of(by.words)).tolist())).text
