"""Inputs and commands of the rebalancing state machine.

Times are ms since 1970-01-01 UTC, durations ms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spatialstream.index.kinds import STRATEGIES
from spatialstream.store.state import RoutingState
from spatialstream_operator.decisions import records

__all__ = [
    "STRATEGIES",
    "Command",
    "Finish",
    "Input",
    "Load",
    "Mode",
    "Note",
    "Observation",
    "ProposalView",
    "Propose",
    "Proposed",
    "Publish",
    "Published",
    "RebalanceSettings",
    "Refusal",
    "Refused",
    "Result",
    "Withdraw",
    "Withdrawn",
]

Mode = Literal["auto", "approve", "off"]
"""Who decides on proposals: the operator; a person, by an annotation with the proposal's id; nobody."""

Refusal = Literal["conflict", "unavailable", "forgotten"]
"""Why a command failed: the routing state has changed; a server or a metric is unavailable for now; the operator no
longer has the proposed version."""

Result = Literal["balanced", "unbalanced", "withdrawn", "failed"]
"""How a published version ended: it restored balance; it did not; it never became active; it became active, but could
not be judged."""

_LONGEST_REST = 8
_FRESH = 90_000
_RELEASE = 0.9


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """When the operator acts on imbalance (``spec.rebalance`` and λ of ``spec.index``).

    Attributes:
        mode: who decides on proposals.
        threshold: λ; greater than 1.
        interval: time between two observations of the load.
        stabilisation: how long imbalance has to last before anything is proposed.
        cooldown: how long nothing is published after a rebalance has ended.
        timeout: how long the adoption of a pending version may take while both jobs run.
        arrivals: input rate in objects per second below which balance does not matter. Loads are counted over the last
            ten minutes, so 1 means 600 objects: with fewer, a ratio over several slots is mostly random.
        rebuild: number of objects that must be seen before the initial tree of a stream that began without history is
            rebuilt, once; at least the number that a tree is built from. 0: it is rebuilt only because of imbalance.
        strategies: those of the kind of the stream's index (``spec.index.kind``), in the order of trying them.
    """

    mode: Mode = "auto"
    threshold: float = 6.0
    interval: int = 30_000
    stabilisation: int = 120_000
    cooldown: int = 600_000
    timeout: int = 300_000
    arrivals: float = 1.0
    rebuild: int = 10_000
    strategies: tuple[str, ...] = STRATEGIES

    @property
    def fresh(self) -> int:
        """Maximum age of usable metrics: three intervals, at least 90 s (three scrapes at a slow scrape interval)."""
        return max(3 * self.interval, _FRESH)

    @property
    def observation(self) -> int:
        """How long metrics of a new version are collected before it is judged."""
        return max(self.stabilisation, 2 * self.interval)

    @property
    def release(self) -> float:
        """The ratio at or below which a stream that was out of balance is balanced again: slightly below λ."""
        return 1.0 + _RELEASE * (self.threshold - 1.0)

    def rest(self, setbacks: int) -> int:
        """The cooldown after a number of consecutive rebalances that did not help: doubled from the second on."""
        return self.cooldown * min(1 << min(max(0, setbacks - 1), 16), _LONGEST_REST)


# -------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a stream, from Prometheus.

    Attributes:
        at: when the samples were scraped.
        worked: when the worker completed its last round and updated its counts.
        version: number of the routing version that the counts belong to.
        ratio: Lmax/Lmin over the slots; may be infinite.
        arrivals: input rate over all slots, in objects per second.
        slots: load of each slot; empty if unknown.
    """

    at: int
    worked: int
    version: int
    ratio: float
    arrivals: float
    slots: tuple[float, ...] = ()

    @property
    def heaviest(self) -> int | None:
        """The slot with the most load."""
        return max(range(len(self.slots)), key=self.slots.__getitem__) if self.slots else None


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of a stream.

    Attributes:
        now: time of the observation.
        routing: state of the routing store; None if it cannot be read.
        load: the load; None if there are no such series, or no response.
        jobs: whether router and worker are both ready.
        approval: value of the annotation ``spatialstream.dev/approve``; "" if there is none.
        kept: id of the proposal that the operator holds in memory to publish; None after a restart.
        known: number of objects that the stream's sample was drawn from, as long as its initial tree was never rebuilt
            and, as far as is known, can be; 0 otherwise.
    """

    now: int
    routing: RoutingState | None
    load: Load | None
    jobs: bool = True
    approval: str = ""
    kept: str | None = None
    known: float = 0.0


@dataclass(frozen=True, slots=True)
class ProposalView:
    """A proposal without its arrays, as stored in the status.

    Attributes:
        id: its id, which an approval must contain.
        base: number of the version that it was computed from.
        strategy: one of :data:`STRATEGIES`.
        before, after: current and expected Lmax/Lmin; may be infinite.
        leaves: number of leaves that change slot.
        queries: approximate number of continuous queries that move.
        heaviest: the slot with the highest load before; None if unknown.
        text: a human-readable summary of a few lines.
    """

    id: str
    base: int
    strategy: str
    before: float
    after: float
    leaves: int = 0
    queries: int = 0
    heaviest: int | None = None
    text: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any], text: str = "") -> ProposalView:
        """Build from ``Proposal.to_record()`` and ``explanation(proposal)`` of the library."""
        loads = record["slot_loads_before"]
        return cls(
            record["id"],
            record["base"],
            record["strategy"],
            _ratio(record["imbalance_before"]),
            _ratio(record["imbalance_after"]),
            record["leaves_moved"],
            round(record["queries_moved"]),
            max(range(len(loads)), key=loads.__getitem__) if loads else None,
            text,
        )

    def to_status(self) -> dict[str, Any]:
        """Convert to the form of ``status.rebalance.proposal``."""
        return {
            "id": self.id,
            "base": self.base,
            "strategy": self.strategy,
            "imbalanceBefore": records.ratio_text(self.before),
            "imbalanceAfter": records.ratio_text(self.after),
            "leavesMoved": self.leaves,
            "queriesMoved": self.queries,
            "heaviestSlot": self.heaviest,
            "text": self.text,
        }

    @classmethod
    def from_status(cls, record: object) -> ProposalView | None:
        """Read from the status; None without the id, base and strategy of a proposal."""
        if not isinstance(record, Mapping):
            return None
        name, base, strategy = (
            records.text(record, "id"),
            records.whole(record, "base"),
            records.text(record, "strategy"),
        )
        if not name or base is None or strategy not in STRATEGIES:
            return None
        return cls(
            name,
            base,
            strategy,
            _ratio(records.ratio(record, "imbalanceBefore")),
            _ratio(records.ratio(record, "imbalanceAfter")),
            records.whole(record, "leavesMoved") or 0,
            records.whole(record, "queriesMoved") or 0,
            records.whole(record, "heaviestSlot"),
            records.text(record, "text"),
        )


def _ratio(value: float | None) -> float:
    return math.inf if value is None else float(f"{value:.2f}")


@dataclass(frozen=True, slots=True)
class Proposed:
    """The outcome of :class:`Propose`.

    Attributes:
        now: the time.
        proposal: the proposal; None if no requested strategy improves balance.
        ratio: Lmax/Lmin by the counts that the proposal was computed from; None if unknown.
    """

    now: int
    proposal: ProposalView | None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of :class:`Publish`: the version is pending.

    Attributes:
        now: the time.
        version: its number.
    """

    now: int
    version: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The outcome of :class:`Withdraw`: the version is no longer pending, and never became active.

    Attributes:
        now: the time.
    """

    now: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A command could not be carried out.

    Attributes:
        now: the time.
        why: kind of the reason.
        message: the reason, for people.
    """

    now: int
    why: Refusal
    message: str = ""


Input = Observation | Proposed | Published | Withdrawn | Refused

# ------------------------------------------------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True)
class Propose:
    """Compute a proposal from the active version. The outcome is :class:`Proposed` or :class:`Refused`.

    Attributes:
        strategies: the allowed strategies, cheapest first.
        base: number of the version that it must be computed from.
        first: whether to rebuild the stream's initial tree even if load is in balance.
    """

    strategies: tuple[str, ...]
    base: int
    first: bool = False


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a proposal (idempotent). The outcome is :class:`Published` or :class:`Refused`.

    Attributes:
        proposal: its id.
    """

    proposal: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraw a pending version. The outcome is :class:`Withdrawn` or :class:`Refused`.

    Attributes:
        version: its number.
        proposal: id of its proposal.
    """

    version: int
    proposal: str


@dataclass(frozen=True, slots=True)
class Note:
    """Create an event about the stream.

    Attributes:
        reason: a CamelCase word.
        message: a sentence.
        warning: whether the event is a warning.
    """

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Count how a published version ended.

    Attributes:
        strategy: the strategy of its proposal.
        result: how it ended.
    """

    strategy: str
    result: Result


Command = Propose | Publish | Withdraw | Note | Finish
