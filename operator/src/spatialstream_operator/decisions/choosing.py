"""Choice of the strategy for a proposal.

While all strategies are allowed, the library chooses (SSTD, section 5.1: each strategy is used only if the one before
would not restore balance). After a strategy has failed in practice only those after it remain, and the same rule
applies to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import BalanceSettings, Proposal, propose, usable
from spatialstream.index.kinds import STRATEGIES, kind_named
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion

__all__ = ["choose"]

_WORTHWHILE = 0.99


def choose(
    version: RoutingVersion,
    counts: LeafCounts,
    statistics: Statistics,
    settings: BalanceSettings,
    strategies: Sequence[str] = STRATEGIES,
    number: int | None = None,
    sample: Sample | None = None,
    kind: str | None = None,
) -> Proposal | None:
    """The proposal of the first strategy that would restore balance, or else of the one that comes closest.

    Args:
        version: the active version.
        counts: counts of its leaves.
        statistics: J.
        settings: λ, ε and the maximum number of leaves.
        strategies: the allowed strategies, cheapest first; those that the index does not have are skipped.
        number: number of the new version; the next one by default.
        sample: the sample that J was computed from.
        kind: the kind of index that a rebuild makes, see :func:`~spatialstream.balance.proposal.propose`.

    Returns:
        The proposal. None if there is no imbalance, or no strategy reduces it.

    Raises:
        SettingError: a strategy does not exist.
        StateError: the counts do not belong to the version's leaves.
    """
    if set(kind_named(version.index.kind).strategies) <= set(strategies):
        return propose(version, counts, statistics, settings, number=number, sample=sample, kind=kind)
    tried = []
    for strategy in usable(strategies, version, sample, kind):
        proposal = propose(version, counts, statistics, settings, strategy, number, sample, kind)
        if proposal is None or proposal.imbalance_before <= settings.imbalance:
            return None
        if proposal.balanced:
            return proposal
        tried.append(proposal)
    better = [each for each in tried if _is_better(each)]
    if not better:
        return None
    closest = min(better, key=_badness)
    note = "no remaining strategy restores balance; this one comes closest"
    return replace(closest, note="; ".join(filter(None, (note, closest.note))))


def _badness(proposal: Proposal) -> tuple[float, float]:
    return proposal.imbalance_after, float(proposal.after.max(initial=0.0))


def _is_better(proposal: Proposal) -> bool:
    """Whether Lmax/Lmin decreases clearly or, if it stays infinite, Lmax does."""
    if math.isinf(proposal.imbalance_before) and math.isinf(proposal.imbalance_after):
        return bool(proposal.after.max(initial=0.0) <= _WORTHWHILE * proposal.before.max(initial=0.0))
    return proposal.imbalance_after <= _WORTHWHILE * proposal.imbalance_before
