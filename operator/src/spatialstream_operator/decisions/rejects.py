"""Whether so much of what comes is rejected that something is wrong with the stream, and not with a record.

Rejected records are dead letters, and a few are nothing unusual. But a stream of which a tenth is rejected answers with
a tenth missing, and is Degraded, with the commonest reason. The limit is ``spec.rejects.share``, of each kind by
itself, for queries are few beside objects. It is told once that has lasted, and until the share is below half of it.
Fewer than :data:`LEAST` records say nothing. Without figures what was said stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.failures import Failure

__all__ = ["AFTER", "LEAST", "Inflow", "Rejecting", "judge", "problem"]

LEAST = 10
"""Records of a kind, in the window of the figures, that have to be rejected."""

AFTER = 30_000
"""ms for which the share has to be above the limit."""

_HYSTERESIS = 0.5

_MEANS: Mapping[str, str] = {
    "late": "they are older than the stream keeps",
    "future": "they are from the future",
    "json": "they are not JSON objects",
    "size": "they are too long",
    "clock": "they are watermarks that cannot be used",
    "place": "their coordinates are missing or cannot be used",
    "admission": "the worker does not admit them",
    "other": "the letters say why",
}


@dataclass(frozen=True, slots=True)
class Inflow:
    """What has come of one kind in the window of the figures.

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
        """Rejected records of all; 0 if none have come."""
        return self.refused / (self.accepted + self.refused) if self.refused > 0.0 else 0.0

    @property
    def commonest(self) -> str:
        """The class of most rejected records."""
        return max(self.rejected, key=lambda reason: (self.rejected[reason], reason), default="other")


@dataclass(frozen=True, slots=True)
class Rejecting:
    """What is remembered while too much is rejected, in ``status.rejected``.

    Attributes:
        since: when the share began to be above the limit, in ms since 1970-01-01 UTC.
        kind: of the records; of both the one with the larger share.
        reason: the commonest class of reason.
        share: per cent that is rejected.
    """

    since: int
    kind: str
    reason: str
    share: int

    def to_status(self) -> dict[str, Any]:
        """As it stands in the status."""
        since = records.moment_text(self.since)
        return {"since": since, "kind": self.kind, "reason": self.reason, "share": self.share}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Rejecting | None:
        """From the status; None if there is none, or it is not understood."""
        since, share = records.moment(status, "since"), records.whole(status, "share")
        kind, reason = records.text(status, "kind"), records.text(status, "reason")
        return Rejecting(since, kind, reason, share) if since is not None and share is not None and kind else None


def judge(before: Rejecting | None, now: int, inflows: Iterable[Inflow] | None, limit: float) -> Rejecting | None:
    """What to remember; None if not too much is rejected.

    Args:
        before: what was remembered.
        now: the time, in ms since 1970-01-01 UTC.
        inflows: what has come lately; None if that is not known.
        limit: share from which it is too much, 0 to 1.
    """
    if inflows is None:
        return before
    told = before is not None and now - before.since >= AFTER
    bound, least = (limit * _HYSTERESIS, LEAST * _HYSTERESIS) if told else (limit, LEAST)
    found = max((each for each in inflows if each.refused >= least), key=lambda each: each.share, default=None)
    if found is None or found.share < bound:
        return None
    since = now if before is None or before.since > now else before.since
    share = round(100 * found.share)
    if before is not None and (before.kind, before.reason) == (found.kind, found.commonest):
        share = before.share if abs(share - before.share) < 5 else share  # a status that moves all the time says less
    return Rejecting(since, found.kind, found.commonest, share)


def problem(found: Rejecting | None, now: int, topic: str) -> Failure | None:
    """What is to be told; None if nothing is, or it has not lasted.

    Args:
        found: what is remembered.
        now: the time, in ms since 1970-01-01 UTC.
        topic: where the rejected records are.
    """
    if found is None or now - found.since < AFTER:
        return None
    why = _MEANS.get(found.reason, f"their field {found.reason} is missing or cannot be used")
    text = f"{found.share} % of the {found.kind} are rejected, most because {why}."
    return Failure("RecordsRejected", f"{text} They are in {topic}, with the reason.", "slow")
