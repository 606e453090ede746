"""The ``Balanced`` condition, from the state of the rebalancing state machine and the current load metrics.

True and False need time: load that has been above λ for less than the stabilisation time is not out of balance yet, and
load that was out of balance is balanced again once it is clearly below λ. With missing or stale metrics the condition
is Unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spatialstream_operator.decisions.rebalancing import Grade, grade
from spatialstream_operator.decisions.rebalancing_inputs import Observation, RebalanceSettings
from spatialstream_operator.decisions.rebalancing_state import Phase, State

__all__ = ["Truth", "Verdict", "verdict"]

Truth = Literal["True", "False", "Unknown"]
"""The status of a condition."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of a condition, and why.

    Attributes:
        status: True, False or Unknown.
        reason: a CamelCase word.
        message: a sentence.
    """

    status: Truth
    reason: str
    message: str


_UNKNOWN: Mapping[Grade, Verdict] = {
    Grade.MISSING: Verdict("Unknown", "MetricsMissing", "Prometheus has no load metrics of this stream."),
    Grade.STALE: Verdict("Unknown", "MetricsStale", "The latest load metrics are too old to act on."),
    Grade.OTHER: Verdict("Unknown", "MetricsOfOtherVersion", "There are no load metrics of the active version yet."),
}

_UNBALANCED: Mapping[Phase, tuple[str, str]] = {
    Phase.OFF: ("RebalancingOff", "Load is out of balance, and rebalancing is off."),
    Phase.WATCHING: ("Imbalanced", "Load was out of balance recently."),
    Phase.STABILISING: ("Imbalanced", "Load is out of balance; a proposal will be computed."),
    Phase.PROPOSING: ("Proposing", "Load is out of balance; a proposal is being computed."),
    Phase.AWAITING_APPROVAL: ("AwaitingApproval", "Load is out of balance; a proposal waits for approval."),
    Phase.PUBLISHING: ("Rebalancing", "Load is out of balance; a new routing version is being published."),
    Phase.ADOPTING: ("Rebalancing", "Load is out of balance; the jobs are adopting a new routing version."),
    Phase.WITHDRAWING: ("Withdrawing", "The jobs did not adopt the new routing version, which is being withdrawn."),
    Phase.VERIFYING: ("Verifying", "A new routing version is active; its effect on balance is being measured."),
    Phase.COOLDOWN: ("CoolingDown", "Load is out of balance; the next attempt waits for the cooldown to end."),
}

_PROBLEMS: Mapping[str, str] = {
    "AdoptionTimedOut": "Load is out of balance, and the jobs did not adopt the new routing version in time.",
    "NothingBetter": "Load is out of balance, and no strategy improves it.",
    "ProposalUnavailable": "Load is out of balance, and the input of a proposal is unavailable at the moment.",
    "StrategiesExhausted": "Load is out of balance, and no strategy has restored balance.",
}


def verdict(state: State, seen: Observation, settings: RebalanceSettings) -> Verdict:
    """The ``Balanced`` condition.

    Args:
        state: the state machine's state after it processed the observation.
        seen: the observation.
        settings: the settings that it was processed with.
    """
    if seen.routing is None:
        return Verdict("Unknown", "RoutingUnknown", "The routing store cannot be read.")
    found = grade(seen.load, seen.routing, seen.now, settings)
    if found is Grade.IDLE and state.phase is not Phase.VERIFYING:
        return Verdict("True", "TooLittleLoad", "The input rate is too low for balance to matter.")
    if found in _UNKNOWN:
        return _UNKNOWN[found]
    if state.balanced is False:
        return _unbalanced(state)
    truth: Truth = "Unknown" if state.balanced is None else "True"
    if state.over is not None:
        return Verdict(truth, "Stabilising", "Load is out of balance, but not for long enough yet.")
    if state.balanced is None:
        return Verdict(truth, "Measuring", "Load is being measured.")
    return Verdict(truth, "Balanced", "Load is in balance.")


def _unbalanced(state: State) -> Verdict:
    if state.problem in _PROBLEMS and state.phase in (Phase.COOLDOWN, Phase.PROPOSING, Phase.PUBLISHING):
        return Verdict("False", state.problem, _PROBLEMS[state.problem])
    return Verdict("False", *_UNBALANCED[state.phase])
