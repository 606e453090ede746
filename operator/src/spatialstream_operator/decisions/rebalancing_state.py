"""The state of the rebalancing state machine, and its form in ``status.rebalance``.

Only the status outlives the operator. Together with the routing store, which holds the active and the pending version,
it is sufficient to continue from any moment. Missing or invalid parts get their initial values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, get_args

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.rebalancing_inputs import STRATEGIES, ProposalView, Result

__all__ = ["Ending", "Phase", "State"]


class Phase(StrEnum):
    """Phase of a stream's rebalancing."""

    OFF = "Off"
    """Rebalancing is turned off; load is observed all the same."""
    WATCHING = "Watching"
    """There is no imbalance, or the load is unknown."""
    STABILISING = "Stabilising"
    """Load is out of balance, but may return to balance by itself."""
    PROPOSING = "Proposing"
    """A proposal is being computed."""
    AWAITING_APPROVAL = "AwaitingApproval"
    """A proposal is shown, and not approved yet."""
    PUBLISHING = "Publishing"
    """A proposal is being published; the routing store shows whether it has been."""
    ADOPTING = "Adopting"
    """A version is pending."""
    WITHDRAWING = "Withdrawing"
    """A pending version is being withdrawn."""
    VERIFYING = "Verifying"
    """A new version is active; its effect is being measured."""
    COOLDOWN = "Cooldown"
    """Nothing is published until the cooldown ends."""


_NAMES = {phase.value: phase for phase in Phase}
_WITH_PROPOSAL = frozenset({Phase.AWAITING_APPROVAL, Phase.PUBLISHING})
_WITH_VERSION = frozenset({Phase.ADOPTING, Phase.WITHDRAWING, Phase.VERIFYING})


@dataclass(frozen=True, slots=True)
class Ending:
    """How the last published version ended.

    Attributes:
        result: the outcome.
        strategy: the strategy of its proposal.
        proposal: id of its proposal.
        version: its number.
        at: when it ended, in ms.
        message: a sentence.
    """

    result: Result
    strategy: str
    proposal: str
    version: int | None
    at: int
    message: str = ""

    def to_status(self) -> dict[str, Any]:
        """Convert to the form of ``status.rebalance.last``."""
        return {
            "outcome": self.result,
            "strategy": self.strategy,
            "id": self.proposal,
            "version": self.version,
            "time": records.moment_text(self.at),
            "message": self.message,
        }

    @classmethod
    def from_status(cls, record: Mapping[str, Any]) -> Ending | None:
        """Read from the status; None without an outcome and a time."""
        result = next((each for each in get_args(Result) if each == record.get("outcome")), None)
        at = records.moment(record, "time")
        if result is None or at is None:
            return None
        name, strategy = records.text(record, "id"), records.text(record, "strategy")
        version, message = records.whole(record, "version"), records.text(record, "message")
        return cls(result, strategy, name, version, at, message)


@dataclass(frozen=True, slots=True)
class State:
    """The state of the state machine.

    Attributes:
        phase: the phase.
        since: when the phase began.
        balanced: the last judgement about balance, with hysteresis; None if there was none yet.
        version: the version that the phase is about: pending, being verified, or else the active one.
        over: since when the ratio has been above λ without interruption; None if it is not.
        seen: time of the last observation, while it matters.
        watched: since when metrics of the version being verified have arrived without interruption.
        proposal: the proposal that is shown, published or verified.
        external: whether the pending version was published by somebody else.
        running: since when both jobs have run without interruption while a version is pending.
        breaks: number of interruptions in that time.
        first: whether the attempt is the rebuild of the initial tree of a stream that began without history.
        tried: strategies that have failed to restore balance since it was lost.
        setbacks: number of consecutive rebalances that did not help.
        rested: when the cooldown began.
        until: when the cooldown ends.
        ignored: the approval that was last used, or last reported as not matching; it is not reported again.
        last: how the last published version ended.
        problem: why the latest attempt failed, as a CamelCase reason; "" if it did not.
    """

    phase: Phase = Phase.OFF
    since: int = 0
    balanced: bool | None = None
    version: int | None = None
    over: int | None = None
    seen: int | None = None
    watched: int | None = None
    proposal: ProposalView | None = None
    external: bool = False
    running: int | None = None
    breaks: int = 0
    first: bool = False
    tried: tuple[str, ...] = ()
    setbacks: int = 0
    rested: int | None = None
    until: int | None = None
    ignored: str = ""
    last: Ending | None = None
    problem: str = ""

    def at(self, phase: Phase, now: int) -> State:
        """The state in a phase, which begins now unless it is the current one."""
        return self if phase is self.phase else replace(self, phase=phase, since=now)

    def left(self, strategies: Sequence[str]) -> tuple[str, ...]:
        """The strategies, of those that the index has, that have not been tried since balance was lost."""
        return tuple(each for each in strategies if each not in self.tried)

    def to_status(self) -> dict[str, Any]:
        """Convert to the form of ``status.rebalance``; every key is present, so that a patch removes old values."""
        times = {
            "since": self.since,
            "imbalancedSince": self.over,
            "lastSeen": self.seen,
            "watchedSince": self.watched,
            "runningSince": self.running,
            "cooldownSince": self.rested,
            "cooldownUntil": self.until,
        }
        return {
            "phase": self.phase.value,
            "balanced": self.balanced,
            "version": self.version,
            "proposal": None if self.proposal is None else self.proposal.to_status(),
            "external": self.external,
            "interruptions": self.breaks,
            "first": self.first,
            "tried": list(self.tried),
            "setbacks": self.setbacks,
            "ignoredApproval": self.ignored,
            "last": None if self.last is None else self.last.to_status(),
            "problem": self.problem,
            **{key: records.moment_text(at) for key, at in times.items()},
        }

    @classmethod
    def from_status(cls, status: Mapping[str, Any] | None) -> State:
        """Read from ``status.rebalance``; absent or invalid parts get their initial values."""
        record: Mapping[str, Any] = status if isinstance(status, Mapping) else {}
        state = cls(
            phase=_NAMES.get(records.text(record, "phase"), Phase.OFF),
            since=records.moment(record, "since") or 0,
            balanced=records.flag(record, "balanced"),
            version=records.whole(record, "version"),
            over=records.moment(record, "imbalancedSince"),
            seen=records.moment(record, "lastSeen"),
            watched=records.moment(record, "watchedSince"),
            proposal=ProposalView.from_status(record.get("proposal")),
            external=records.flag(record, "external") or False,
            running=records.moment(record, "runningSince"),
            breaks=records.whole(record, "interruptions") or 0,
            first=records.flag(record, "first") or False,
            tried=tuple(each for each in records.texts(record, "tried") if each in STRATEGIES),
            setbacks=records.whole(record, "setbacks") or 0,
            rested=records.moment(record, "cooldownSince"),
            until=records.moment(record, "cooldownUntil"),
            ignored=records.text(record, "ignoredApproval"),
            last=Ending.from_status(records.part(record, "last")),
            problem=records.text(record, "problem"),
        )
        return (
            state
            if state._sound()
            else replace(state, phase=Phase.OFF, proposal=None, external=False, first=False, tried=())
        )

    def _sound(self) -> bool:
        """Whether the fields that the phase needs are set."""
        if self.phase in _WITH_PROPOSAL:
            return self.proposal is not None
        if self.phase in _WITH_VERSION:
            return self.version is not None and (self.external or self.proposal is not None)
        return True
