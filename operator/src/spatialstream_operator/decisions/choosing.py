"""Which of the strategies that may be used a proposal is made with.

While all of them may be used this is the library's own choice (SSTD, section 5.1: each only if the one before would not
restore balance). After a strategy has failed in practice only those behind it are left, and the same rule holds for
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import STRATEGIES, BalanceSettings, Proposal, propose, usable
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
) -> Proposal | None:
    """The proposal of the first strategy that would restore balance, or else of the one that comes closest.

    Args:
        version: the active version.
        counts: what was counted in its leaves.
        statistics: J.
        settings: λ, ε and the largest number of leaves.
        strategies: those that may be used, from the cheapest.
        number: number of the new version; by default the next one.
        sample: what J was made from.

    Returns:
        The proposal. None if there is no imbalance, or nothing that lowers it.

    Raises:
        SettingError: there is no such strategy.
        StateError: the counts are not those of the version's leaves.
    """
    if tuple(strategies) == STRATEGIES:
        return propose(version, counts, statistics, settings, number=number, sample=sample)
    tried = []
    for strategy in usable(strategies, version, sample):
        proposal = propose(version, counts, statistics, settings, strategy, number, sample)
        if proposal is None or proposal.imbalance_before <= settings.imbalance:
            return None
        if proposal.balanced:
            return proposal
        tried.append(proposal)
    better = [each for each in tried if _is_better(each)]
    if not better:
        return None
    closest = min(better, key=_badness)
    note = "no strategy that is left restores balance, and this one comes closest"
    return replace(closest, note="; ".join(filter(None, (note, closest.note))))


def _badness(proposal: Proposal) -> tuple[float, float]:
    return proposal.imbalance_after, float(proposal.after.max(initial=0.0))


def _is_better(proposal: Proposal) -> bool:
    """Whether Lmax/Lmin gets clearly smaller, or, if it stays infinite, Lmax does."""
    if math.isinf(proposal.imbalance_before) and math.isinf(proposal.imbalance_after):
        return bool(proposal.after.max(initial=0.0) <= _WORTHWHILE * proposal.before.max(initial=0.0))
    return proposal.imbalance_after <= _WORTHWHILE * proposal.imbalance_before
