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

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        series: whose curve it is about; "" if it is about a pair.
        span: two x, the smaller first, between which that curve does not go as the paper says.
    """

    text: str
    x: float | None = None
    pair: tuple[str, ...] = ()
    series: str = ""
    span: tuple[float, float] = (0.0, 0.0)


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
                    yield Finding(f"{better} costs {ratio:.2g} times what {worse} does at {x:g}", x, (better, worse))
    for better, worse in claims.mostly:
        against = [x for x in sorted(cost[better]) if cost[better][x] > TIE * cost[worse][x]]
        if 2 * len(against) >= len(cost[better]):
            text = f"{better} costs more than {worse} at {', '.join(f'{x:g}' for x in against)}"
            yield Finding(text, against[-1], (better, worse))


def _ratios(cost: Values, claims: Claims) -> Iterator[Finding]:
    for x, expected in claims.ratios.items():
        best, after = claims.orders[0][:2]
        if x not in cost[best]:
            continue
        ratio = cost[after][x] / cost[best][x]
        if not expected / FACTOR <= ratio <= expected * FACTOR:
            text = f"{after} costs {ratio:.2g} times what {best} does at {x:g}, in the paper {expected:.2g} times"
            yield Finding(text, x, (best, after))
    for last, expected in claims.behind.items():
        others = [series for series in cost if series != last]
        for x in sorted(cost[last]):
            after = max(others, key=lambda series, x=x: cost[series][x])
            if (ratio := cost[last][x] / cost[after][x]) < expected / FACTOR:
                said = f"{last} costs {ratio:.2g} times what {after} does at {x:g}"
                yield Finding(f"{said}, in the paper at least {expected:.2g} times", x, (after, last))


def _trends(values: Values, claims: Claims) -> Iterator[Finding]:
    for series, trend in claims.trends.items():
        points = [values[series][x] for x in sorted(values[series])]
        if not goes(points, trend):
            change = points[-1] / points[0]
            text = f"{series} {_WAYS[trend]} in the paper; here its last value is {change:.3g} times its first"
            yield Finding(text, series=series, span=_against(values[series], trend))


_WAYS = {"rises": "rises", "falls": "falls", "flat": "hardly changes"}


def goes(points: list[float], trend: str) -> bool:
    """Whether a curve goes a way."""
    if trend == "flat":
        return max(points) <= FLAT * min(points)
    if trend == "falls":
        points = points[::-1]
    return points[-1] > TIE * points[0] and all(after >= before / TIE for before, after in pairwise(points))


def _against(curve: Mapping[float, float], trend: str) -> tuple[float, float]:
    """Between which two x a curve goes another way: its extremes, its worst step, or its ends if no step is against."""
    xs = sorted(curve)
    if trend == "flat":
        first, last = sorted((min(xs, key=curve.__getitem__), max(xs, key=curve.__getitem__)))
        return first, last
    steps = list(pairwise(xs)) if trend == "rises" else [(after, before) for before, after in pairwise(xs)]
    worst = min(steps, key=lambda step: _ratio(curve[step[0]], curve[step[1]]))
    against = _way(curve[worst[0]], curve[worst[1]]) == "falls"
    return (min(worst), max(worst)) if against else (xs[0], xs[-1])


def _chosen(cost: Values, claims: Claims) -> Iterator[Finding]:
    if claims.chosen is None:
        return
    for series, points in cost.items():
        best = min(points, key=points.__getitem__)
        if (ratio := points[claims.chosen] / points[best]) > TIE:
            text = f"{series}: {claims.chosen:g}, the paper's choice, costs {ratio:.2g} times what {best:g} does"
            yield Finding(text, series=series, span=(min(best, claims.chosen), max(best, claims.chosen)))


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


def cause(
    finding: Finding, counts: Mapping[str, Mapping[float, Mapping[str, float]]], worth: Mapping[str, float]
) -> str:
    """What the counts say about a finding: of a pair the ratios of both, of a curve what makes it go as it does.

    Args:
        finding: of :func:`judge`.
        counts: series -> x -> name -> value.
        worth: name -> what one of a count costs, in the unit of the work; empty where work is not counted.
    """
    if finding.series:
        return _of_curve(finding.span, counts[finding.series], worth)
    if len(finding.pair) != 2 or finding.x is None:
        return ""
    better, worse = (counts[series][finding.x] for series in finding.pair)
    ratios = [
        f"{label} x{better[name] / worse[name]:.2f}" for name, label in CAUSES if better.get(name) and worse.get(name)
    ]
    return f"{finding.pair[0]} by {finding.pair[1]}: {', '.join(ratios)}" if ratios else ""


LABELS = dict(CAUSES) | {"objects": "objects of the stream", "bytes": "bytes moved"}

PART = 0.25
"""Of a change: a count that makes less of it is not named."""

UNEXPLAINED = "no count that is kept goes this way"


def _of_curve(
    span: tuple[float, float], points: Mapping[float, Mapping[str, float]], worth: Mapping[str, float]
) -> str:
    """Which counts make the work of the slowest slot rise, fall or stay between two x.

    Work is a sum over counts, each by its worth; the slowest slot's is that times the skew. So between two points it
    changes by the sum of what each count changes, at the mean skew, and of what the skew does, at the mean work; where
    it stays, it is itself such a sum. Named are the counts that make :data:`PART` of it and go the same way.
    """
    a, b = (points[x] for x in span)
    if not worth or not all({"work", "work_slowest", *worth} <= each.keys() for each in (a, b)):
        return UNEXPLAINED
    skew = [each["work_slowest"] / max(each["work"], _LEAST) for each in (a, b)]
    way = _way(a["work_slowest"], b["work_slowest"])
    if way == "stays":
        whole, of = a["work_slowest"] + b["work_slowest"], "work"
        parts = {name: weight * (a[name] * skew[0] + b[name] * skew[1]) for name, weight in worth.items()}
    else:
        whole, of = b["work_slowest"] - a["work_slowest"], "change"
        parts = {name: weight * (b[name] - a[name]) * sum(skew) / 2.0 for name, weight in worth.items()}
        parts["skew"] = (skew[1] - skew[0]) * (a["work"] + b["work"]) / 2.0
    a, b = ({**each, "skew": of_slowest} for each, of_slowest in zip((a, b), skew, strict=True))
    ways = {name: _way(a[name], b[name]) for name in LABELS if name in a and name in b}
    share = {name: part / whole for name, part in parts.items()}
    named = [name for name in sorted(share, key=lambda name: -share[name]) if share[name] >= PART and ways[name] == way]
    if not named:
        return UNEXPLAINED
    times = {name: f"{LABELS[name]} x{_ratio(a[name], b[name]):.2f}" for name in ways}
    causes = [f"{times[name]} ({100 * share[name]:.0f} % of the {of})" for name in named]
    still = [times[name] for name in ("slots", "leaves", "visited", "bytes") if ways.get(name) == "stays"]
    text = f"its work {way} from {span[0]:g} to {span[1]:g} because of {' and '.join(causes)}"
    return text + (f", while {', '.join(still)} stay" if still and way != "stays" else "")


def _ratio(first: float, last: float) -> float:
    return max(last, _LEAST) / max(first, _LEAST)


def _way(first: float, last: float) -> str:
    """``rises``, ``falls``, or ``stays`` if it changes by no more than a tie."""
    ratio = _ratio(first, last)
    return "rises" if ratio > TIE else "falls" if ratio < 1.0 / TIE else "stays"


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


def in_words(findings: Sequence[str]) -> str:
    """A verdict in a few words, with all that disagrees."""
    return f"disagrees ({', '.join(findings)})" if findings else "agrees"
