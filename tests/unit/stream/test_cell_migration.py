"""Every row of a live stream is the oracle's while cells of a kd^t-tree are divided by text, cut and moved (CM), and
processes die: also where the router drops what nobody asks for.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion
from spatialstream.model.space import WGS84
from spatialstream.model.terms import EVERYTHING, SUBSCRIPTIONS, TermRule
from spatialstream.oracle import answers, check
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, random_stream
from tests.unit.stream.test_stream import in_order

SLOTS = 3
KNOWN = 3
"""Number of the first seeds, which have many changes; with others that is a matter of chance."""


class Migrating(Simulation):
    """A simulation whose versions are made by CM alone, from random loads and all records.

    Now and then checking is so dear that dividing words pays, also those of few objects.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        self.changes: Counter[str] = Counter()
        super().__init__(*given, index="kd-t", **more)

    def version(self, number: int) -> RoutingVersion:
        if number == 0:
            return super().version(number)
        active = self.store.load(self.store.state().active.number)
        loads = np.array([self.random.randrange(100) for _ in active.mapping], np.float64)
        counts = LeafCounts(loads, loads, loads[::-1].copy(), 1_000.0)
        sample = Sample.of(self.work_settings.space, *self.sample, 1_000.0)
        limits = BalanceSettings(1.1, leaves=self.random.choice([16, 64]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("spatialstream.index.kd_t.adjuster.LEAST", 4)
            patch.setattr("spatialstream.index.kd_t.workload.MATCH", self.random.choice([1e-3, 1e5]))
            made = propose(active, counts, sample.statistics(2), limits, "CM", number, sample)
        assert made is not None
        self.changes.update(made.changes.counts)
        return made.version


@pytest.mark.parametrize("serves", [EVERYTHING, SUBSCRIPTIONS])
@pytest.mark.parametrize("seed", range(examples(KNOWN, 40)))
def test_rows_are_the_oracles_while_cells_migrate(tmp_path: Path, seed: int, serves: str) -> None:
    space = (WGS84, PLANE)[seed % 2]
    types = ("CRQ", "CTQ", "CKQ") if serves == SUBSCRIPTIONS else ("CRQ", "CRQ", "CKQ", "SRQ", "SKQ", "STQ")
    stream = in_order(random_stream(seed, 300, 25, space, types=types, expressions=0.4))
    setup = StreamSettings(
        "s",
        slots=SLOTS,
        partitions=1 + seed % 2,
        space=space,
        idle=IDLE,
        interval=60_000,
        epoch_records=20,
        rule=TermRule(serves=serves),
    )
    simulation = Migrating(tmp_path, space, stream.objects, stream.queries, setup, seed, chaos=0.01)
    simulation.run(0.5, 0.03)

    expected, _ = answers(stream.objects, stream.queries, space, None, 60_000)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []
    if seed < KNOWN:
        assert simulation.changes["textual_splits"] + simulation.changes["cuts"] > 2
        assert simulation.changes["moved"] > 2
        assert simulation.crashes > 2
