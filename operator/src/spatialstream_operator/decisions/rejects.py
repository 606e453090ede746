"""Whether so many records are rejected that the stream is at fault rather than single records.

Rejected records become dead letters, and a few are normal. But the answers of a stream that rejects a tenth of its
objects lack that tenth, so such a stream is Degraded, with the most common reason. The limit is ``spec.rejects.share``,
applied to each kind of record separately, because there are far fewer queries than objects. It is reported after it has
lasted for :data:`AFTER`, and until the share falls below half the limit. Fewer than :data:`LEAST` rejected records are
ignored. Without metrics the last state is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.failures import Failure

__all__ = ["AFTER", "LEAST", "Inflow", "Rejecting", "judge", "problem"]

LEAST = 10
"""Minimum number of rejected records of a kind in the window of the metrics."""

AFTER = 30_000
"""ms for which the share must be above the limit."""

_HYSTERESIS = 0.5

_MEANS: Mapping[str, str] = {
    "late": "they are older than the stream's retention",
    "future": "they are from the future",
    "json": "they are not JSON objects",
    "size": "they are too long",
    "clock": "they are invalid watermarks",
    "place": "their coordinates are missing or invalid",
    "admission": "the worker does not admit them",
    "other": "the dead letters say why",
}


@dataclass(frozen=True, slots=True)
class Inflow:
    """Records of one kind that arrived in the window of the metrics.

    Attributes:
        kind: ``objects`` or ``queries``.
        accepted: records accepted.
        rejected: records rejected, by class of reason.
    """

    kind: str
    accepted: float
    rejected: Mapping[str, float]

    @property
    def refused(self) -> float:
        """Records rejected."""
        return sum(self.rejected.values())

    @property
    def share(self) -> float:
        """Share of rejected records; 0 if none arrived."""
        return self.refused / (self.accepted + self.refused) if self.refused > 0.0 else 0.0

    @property
    def commonest(self) -> str:
        """The most common class of reason."""
        return max(self.rejected, key=lambda reason: (self.rejected[reason], reason), default="other")


@dataclass(frozen=True, slots=True)
class Rejecting:
    """State while too many records are rejected, in ``status.rejected``.

    Attributes:
        since: when the share rose above the limit, in ms since 1970-01-01 UTC.
        kind: kind of the records; if both kinds exceed the limit, the one with the larger share.
        reason: the most common class of reason.
        share: rejected records in per cent.
    """

    since: int
    kind: str
    reason: str
    share: int

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in the status."""
        since = records.moment_text(self.since)
        return {"since": since, "kind": self.kind, "reason": self.reason, "share": self.share}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Rejecting | None:
        """Read from the status; None if absent or invalid."""
        since, share = records.moment(status, "since"), records.whole(status, "share")
        kind, reason = records.text(status, "kind"), records.text(status, "reason")
        return Rejecting(since, kind, reason, share) if since is not None and share is not None and kind else None


def judge(before: Rejecting | None, now: int, inflows: Iterable[Inflow] | None, limit: float) -> Rejecting | None:
    """The next state; None if not too many records are rejected.

    Args:
        before: the previous state.
        now: the time, in ms since 1970-01-01 UTC.
        inflows: records that arrived lately; None if unknown.
        limit: share from which too many are rejected, 0 to 1.
    """
    if inflows is None:
        return before
    told = before is not None and now - before.since >= AFTER
    bound, least = (limit * _HYSTERESIS, LEAST * _HYSTERESIS) if told else (limit, LEAST)
    worst = max((each for each in inflows if each.refused >= least), key=lambda each: each.share, default=None)
    if worst is None or worst.share < bound:
        return None
    since = now if before is None or before.since > now else before.since
    share = round(100 * worst.share)
    if before is not None and (before.kind, before.reason) == (worst.kind, worst.commonest):
        share = before.share if abs(share - before.share) < 5 else share  # avoids frequent changes of the status
    return Rejecting(since, worst.kind, worst.commonest, share)


def problem(rejecting: Rejecting | None, now: int, topic: str) -> Failure | None:
    """The failure to report; None if there is none, or it has not lasted long enough.

    Args:
        rejecting: the state.
        now: the time, in ms since 1970-01-01 UTC.
        topic: topic of the rejected records.
    """
    if rejecting is None or now - rejecting.since < AFTER:
        return None
    why = _MEANS.get(rejecting.reason, f"their field {rejecting.reason} is missing or invalid")
    text = f"{rejecting.share} % of the {rejecting.kind} are rejected, mostly because {why}."
    return Failure("RecordsRejected", f"{text} They are in {topic}, with the reason.", "slow")
