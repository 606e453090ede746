"""What the rebalancing machine remembers, and how it stands in ``status.rebalance``.

The status is all that outlives the operator. Together with the routing store, which says what is active and what is
pending, it is enough to go on from any moment. What it lacks or does not make sense begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, get_args

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.rebalancing_inputs import STRATEGIES, ProposalView, Result

__all__ = ["Ending", "Phase", "State"]


class Phase(StrEnum):
    """Where a stream's rebalancing is."""

    OFF = "Off"
    """Nobody wants it; load is looked at all the same."""
    WATCHING = "Watching"
    """There is no imbalance, or nothing is known."""
    STABILISING = "Stabilising"
    """Load is out of balance, and may get back by itself."""
    PROPOSING = "Proposing"
    """A proposal is asked for."""
    AWAITING_APPROVAL = "AwaitingApproval"
    """A proposal is shown, and a person has not said yes."""
    PUBLISHING = "Publishing"
    """A proposal is to be published; whether it has been, the routing store knows."""
    ADOPTING = "Adopting"
    """A version is pending."""
    WITHDRAWING = "Withdrawing"
    """A pending version is to be taken back."""
    VERIFYING = "Verifying"
    """A new version is active; whether it helps has to be seen."""
    COOLDOWN = "Cooldown"
    """Nothing is published for a while."""


_NAMES = {phase.value: phase for phase in Phase}
_WITH_PROPOSAL = frozenset({Phase.AWAITING_APPROVAL, Phase.PUBLISHING})
_WITH_VERSION = frozenset({Phase.ADOPTING, Phase.WITHDRAWING, Phase.VERIFYING})


@dataclass(frozen=True, slots=True)
class Ending:
    """How the last published version ended.

    Attributes:
        result: how.
        strategy: what it was made with.
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
        """As it stands in ``status.rebalance.last``."""
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
        """From the status; None if it does not say how and when."""
        result = next((each for each in get_args(Result) if each == record.get("outcome")), None)
        at = records.moment(record, "time")
        if result is None or at is None:
            return None
        name, strategy = records.text(record, "id"), records.text(record, "strategy")
        version, message = records.whole(record, "version"), records.text(record, "message")
        return cls(result, strategy, name, version, at, message)


@dataclass(frozen=True, slots=True)
class State:
    """The machine's memory.

    Attributes:
        phase: where it is.
        since: when that began.
        balanced: what was last found out about balance, with hysteresis; None if nothing was.
        version: the version that the phase is about: pending, being verified, or else the active one.
        over: since when the ratio has been above λ without a break; None if it is not.
        seen: when that was last looked at, while it matters.
        watched: since when figures of the version that is being verified have come without a break.
        proposal: the proposal that is shown, published or verified.
        external: whether the pending version is somebody else's.
        running: since when both jobs have run without a break while a version is pending.
        breaks: how often they stopped in that time.
        first: whether the attempt is the first rebuild of a stream that began without history.
        tried: strategies that have not restored balance, since it was lost.
        setbacks: rebalances in a row that did not help.
        rested: when the cooldown began.
        until: when it ends.
        ignored: the approval that was last used, or found to be for something else: there is no more to say about it.
        last: how the last published version ended.
        problem: why the latest attempt came to nothing, as a CamelCase reason; "" if it did not.
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
        """In a phase, which begins now unless it is the one that it is in."""
        return self if phase is self.phase else replace(self, phase=phase, since=now)

    @property
    def left(self) -> tuple[str, ...]:
        """Strategies that have not been tried yet since balance was lost."""
        return tuple(each for each in STRATEGIES if each not in self.tried)

    def to_status(self) -> dict[str, Any]:
        """As it stands in ``status.rebalance``. Every key is there, so that a merge removes what was there before."""
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
        """From ``status.rebalance``; what is not there, or not understood, begins anew."""
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
        """Whether the phase has what it needs."""
        if self.phase in _WITH_PROPOSAL:
            return self.proposal is not None
        if self.phase in _WITH_VERSION:
            return self.version is not None and (self.external or self.proposal is not None)
        return True
