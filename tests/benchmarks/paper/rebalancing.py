"""Figures 14 and 15: one load imbalance, six plans against it, by :mod:`tests.benchmarks.bench_rebalance`."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from tests.benchmarks.bench_rebalance import (
    PLANS,
    TINY,
    Change,
    Outcome,
    Region,
    Scale,
    Start,
    compared,
    outcomes,
    placed,
    unbalanced,
)
from tests.harness import forget

_START = Scale()
_LARGEST = {"objects": (1_000_000, 0), "queries": (0, 600_000)}


@lru_cache(maxsize=1)
def _start(scale: Scale) -> Start:
    with tempfile.TemporaryDirectory() as name:  # whatever is compiled or read late is not any plan's
        outcomes(TINY, Path(name))
    return Start.of(scale)


@lru_cache(maxsize=1)
def _region(scale: Scale, kind: str, largest: tuple[int, int]) -> Region:
    return placed(_start(scale), *largest, scale.while_inserting)


def scaled(factor: float) -> Scale:
    """The experiment of :mod:`~tests.benchmarks.bench_rebalance`, smaller."""

    def size(n: int) -> int:
        return max(1, round(n * factor))

    whole = _START
    return Scale(
        size(whole.preload), size(whole.continuous), size(whole.while_inserting), (), (), size(whole.round),
        whole.rounds if factor >= 0.1 else 2, whole.batches if factor >= 0.1 else 2,
        max(6, round(whole.asked * min(1.0, 4 * factor))), size(whole.beside),
    )  # fmt: skip


def adjusted(kind: str, inserted: int, factor: float) -> dict[str, float]:
    """All plans after so many ``objects`` or ``queries`` came to one region: "plan.measure" -> value."""
    scale = scaled(factor)
    start = _start(scale)
    largest = tuple(round(n * factor) for n in _LARGEST[kind])
    change = Change(
        _region(scale, kind, (largest[0], largest[1])), inserted if kind == "objects" else 0,
        inserted if kind == "queries" else 0, scale.while_inserting,
    )  # fmt: skip
    forget()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene = unbalanced(folder / "scene", scale, start, change)
        found = list(compared(scene, folder, "plan", scale))
        shutil.rmtree(folder / "scene")
    forget()
    assert len({each.matches for each in found}) == 1, "plans have different numbers of matches"
    assert [each.plan for each in found] == list(PLANS)
    return {name: value for each in found for name, value in _flat(each)}


def _flat(outcome: Outcome) -> list[tuple[str, float]]:
    kept = ("moved", "seconds", "expected", "measured", "latency", "throughput", "matches")
    values = asdict(outcome)
    return [(f"{outcome.plan}.{name}", float(values[name])) for name in kept]
