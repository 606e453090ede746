"""Whether what was measured agrees with what the paper says, and if not, which count makes the difference.

A panel agrees if

- methods keep their order at each x; within 10 % (:data:`TIE`) is a tie, which breaks no order;
- curves go the same way: no step against it by more than a tie, and the ends apart by more than one. "No effect" means
  that the largest value is at most :data:`FLAT` times the smallest;
- where the paper gives the ratio of the best to the next, ours is within a factor of 2 (:data:`FACTOR`) of it;
- where it says that one is at least so many times behind the next, ours is at least half as much (the same factor).

A figure agrees if all its panels do. What the paper does not say is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise

TIE, FACTOR, FLAT = 1.1, 2.0, 1.5
_LEAST = 1e-9
"""Stands for 0 where ratios are taken."""

Values = Mapping[str, Mapping[float, float]]
"""series -> x -> value."""


@dataclass(frozen=True)
class Claims:
    """What the paper says of a panel.

    Attributes:
        orders: chains of series, the best first, that hold at each x.
        mostly: pairs (better, worse) that hold at more than half of the x.
        trends: series -> "rises", "falls" or "flat".
        ratios: x -> the best by the next, of the first of ``orders``; above 1.
        behind: series -> so many times at least it is behind the next best, at each x.
        chosen: the x that the paper settles on: within a tie of the best one, for every series.
    """

    orders: tuple[tuple[str, ...], ...] = ()
    mostly: tuple[tuple[str, str], ...] = ()
    trends: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[float, float] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)
    chosen: float | None = None


@dataclass(frozen=True)
class Finding:
    """One thing in which a panel disagrees.

    Attributes:
        text: what.
        x: where; None where it is about a whole curve.
        pair: the series that it is about, the one that the paper says is better first.
    """

    text: str
    x: float | None = None
    pair: tuple[str, ...] = ()


def judge(values: Values, claims: Claims, lower: bool) -> list[Finding]:
    """In what a panel disagrees; nothing if it agrees.

    Args:
        values: what was measured, at the same x for all series; one may be missing.
        claims: what the paper says.
        lower: whether less is better.
    """
    cost = {
        series: {x: max(value, _LEAST) if lower else 1.0 / max(value, _LEAST) for x, value in points.items()}
        for series, points in values.items()
    }
    return [
        *_orders(cost, claims),
        *_ratios(cost, claims),
        *_trends(values, claims),
        *_chosen(cost, claims),
    ]


def _orders(cost: Values, claims: Claims) -> Iterator[Finding]:
    for chain in claims.orders:
        chain = tuple(series for series in chain if series in cost)
        for better, worse in combinations(chain, 2):
            for x in sorted(cost[better]):
                if (ratio := cost[better][x] / cost[worse][x]) > TIE:
                    yield Finding(f"{better} is {ratio:.2g} times worse than {worse} at {x:g}", x, (better, worse))
    for better, worse in claims.mostly:
        against = [x for x in sorted(cost[better]) if cost[better][x] > TIE * cost[worse][x]]
        if 2 * len(against) >= len(cost[better]):
            text = f"{better} is worse than {worse} at {', '.join(f'{x:g}' for x in against)}"
            yield Finding(text, against[-1], (better, worse))


def _ratios(cost: Values, claims: Claims) -> Iterator[Finding]:
    for x, expected in claims.ratios.items():
        best, after = claims.orders[0][:2]
        if x not in cost[best]:
            continue
        ratio = cost[after][x] / cost[best][x]
        if not expected / FACTOR <= ratio <= expected * FACTOR:
            text = f"{best} is {ratio:.2g} times better than {after} at {x:g}, in the paper {expected:.2g}"
            yield Finding(text, x, (best, after))
    for last, expected in claims.behind.items():
        others = [series for series in cost if series != last]
        for x in sorted(cost[last]):
            after = max(others, key=lambda series, x=x: cost[series][x])
            if (ratio := cost[last][x] / cost[after][x]) < expected / FACTOR:
                text = f"{last} is {ratio:.2g} times behind {after} at {x:g}, in the paper at least {expected:.2g}"
                yield Finding(text, x, (after, last))


def _trends(values: Values, claims: Claims) -> Iterator[Finding]:
    for series, trend in claims.trends.items():
        points = [values[series][x] for x in sorted(values[series])]
        if not goes(points, trend):
            change = points[-1] / points[0]
            yield Finding(f"{series} {_WAYS[trend]} in the paper; here its last value is {change:.2g} times its first")


_WAYS = {"rises": "rises", "falls": "falls", "flat": "hardly changes"}


def goes(points: list[float], trend: str) -> bool:
    """Whether a curve goes a way."""
    if trend == "flat":
        return max(points) <= FLAT * min(points)
    if trend == "falls":
        points = points[::-1]
    return points[-1] > TIE * points[0] and all(after >= before / TIE for before, after in pairwise(points))


def _chosen(cost: Values, claims: Claims) -> Iterator[Finding]:
    if claims.chosen is None:
        return
    for series, points in cost.items():
        best = min(points, key=points.__getitem__)
        if (ratio := points[claims.chosen] / points[best]) > TIE:
            yield Finding(f"{series}: {claims.chosen:g}, the paper's choice, is {ratio:.2g} times worse than {best:g}")


CAUSES = (
    ("slots", "slots asked"),
    ("leaves", "leaves reached"),
    ("covering", "of these, with all keywords"),
    ("visited", "objects of the leaves visited (Eqn 2)"),
    ("candidates", "candidates checked"),
    ("results", "rows given back"),
    ("work", "work of all slots"),
    ("skew", "slowest slot to mean"),
    ("expected", "Lmax/Lmin by the cost model"),
    ("measured", "Lmax/Lmin measured"),
)
"""Counts that a cause may lie in, as :mod:`~tests.benchmarks.paper.counting` names them."""


def cause(finding: Finding, counts: Mapping[str, Mapping[float, Mapping[str, float]]]) -> str:
    """What the counts say about a finding: the ratios of the two series at this x; "" if it is not about a pair.

    Args:
        finding: of :func:`judge`.
        counts: series -> x -> name -> value.
    """
    if len(finding.pair) != 2 or finding.x is None:
        return ""
    better, worse = (counts[series][finding.x] for series in finding.pair)
    ratios = [
        f"{label} x{better[name] / worse[name]:.2f}" for name, label in CAUSES if better.get(name) and worse.get(name)
    ]
    return f"{finding.pair[0]} by {finding.pair[1]}: {', '.join(ratios)}" if ratios else ""


def summary(findings: Iterable[Finding], causes: Iterable[str]) -> str:
    """A sentence or two: what disagrees, each pair once, and why."""
    said: dict[tuple[str, ...], list[str]] = {}
    for finding, why in zip(findings, causes, strict=True):
        key = finding.pair or (finding.text,)
        if key not in said:
            said[key] = [finding.text + (f" ({why})" if why else "")]
        else:
            said[key].append(finding.text)
    parts = [each[0] + (f", and in {len(each) - 1} more points" if len(each) > 1 else "") for each in said.values()]
    return "; ".join(parts)
