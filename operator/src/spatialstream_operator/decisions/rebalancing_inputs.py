"""What the rebalancing machine is told, and what it asks for.

Times are ms since 1970-01-01 UTC, durations ms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spatialstream.balance.proposal import STRATEGIES
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
"""Who decides: the operator; a person, by an annotation with the proposal's id; nobody."""

Refusal = Literal["conflict", "unavailable", "forgotten"]
"""Why something was not done: the routing state is another; a server or a figure is out of reach for now; the operator
does not have the proposed version any more."""

Result = Literal["balanced", "unbalanced", "withdrawn", "failed"]
"""How a published version ended: balance came back; it did not; it never became active; it became active, and whether
it helped was never seen."""

_LONGEST_REST = 8
_FRESH = 90_000
_RELEASE = 0.9


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """When the operator acts on imbalance (``spec.rebalance`` and λ of ``spec.index``).

    Attributes:
        mode: who decides.
        threshold: λ; more than 1.
        interval: time from one look at the load to the next.
        stabilisation: how long imbalance has to last before anything is proposed.
        cooldown: how long nothing is published after a rebalance has ended.
        timeout: how long a pending version may take while both jobs run.
        arrivals: objects a second below which balance does not matter. Loads are counted over the latest ten minutes,
            so 1 is 600 objects: with fewer, a ratio over some slots is mostly chance.
        rebuild: objects that have to be seen before a stream that began without history gets a tree of its own, once,
            and never fewer than a tree is built from; 0: it gets none but by imbalance.
    """

    mode: Mode = "auto"
    threshold: float = 6.0
    interval: int = 30_000
    stabilisation: int = 120_000
    cooldown: int = 600_000
    timeout: int = 300_000
    arrivals: float = 1.0
    rebuild: int = 10_000

    @property
    def fresh(self) -> int:
        """The age to which figures count: three looks, or 90 s, which is three scrapes at the slowest that is usual."""
        return max(3 * self.interval, _FRESH)

    @property
    def observation(self) -> int:
        """How long figures of a new version are gathered before they are believed."""
        return max(self.stabilisation, 2 * self.interval)

    @property
    def release(self) -> float:
        """The ratio at or below which a stream that was out of balance counts as balanced again: a little below λ."""
        return 1.0 + _RELEASE * (self.threshold - 1.0)

    def rest(self, setbacks: int) -> int:
        """The cooldown after so many rebalances in a row that did not help: doubled from the second on."""
        return self.cooldown * min(1 << min(max(0, setbacks - 1), 16), _LONGEST_REST)


# -------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Load:
    """What Prometheus says about the load of a stream.

    Attributes:
        at: when the samples were scraped.
        worked: when the worker did its last round, which is when it last counted.
        version: number of the routing version that the counts are of.
        ratio: Lmax/Lmin over the slots; may be infinite.
        arrivals: objects a second, over all slots.
        slots: load of each slot; empty if that is not known.
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
    """One look at a stream.

    Attributes:
        now: the time of it.
        routing: the routing store's state; None if it cannot be read.
        load: the load; None if there is no such series, or no answer.
        jobs: whether router and worker both run.
        approval: value of the annotation ``spatialstream.dev/approve``; "" if there is none.
        kept: id of the proposal that the operator has at hand to publish; None after its restart.
        known: how many objects the stream's sample has been drawn from, while its tree was never built anew, and as far
            as is known can be; else 0.
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
    """What there is to know about a proposal without its arrays; it stands in the status.

    Attributes:
        id: names it; an approval has to say it.
        base: number of the version that it was computed from.
        strategy: PM, FM, FG or rebuild.
        before, after: Lmax/Lmin now and expected; may be infinite.
        leaves: how many leaves change slot.
        queries: about how many continuous queries move.
        heaviest: the slot with the most load before; None if that is not known.
        text: what it does, in a few lines for a person.
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
        """From ``Proposal.to_record()`` and ``Proposal.explain()`` of the library."""
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
        """As it stands in ``status.rebalance.proposal``."""
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
        """From the status; None if it does not name a proposal and its base."""
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
        now: when.
        proposal: the proposal; None if no strategy that was asked for makes anything better.
        ratio: Lmax/Lmin by the counts that the proposal was to be made from; None if there is nothing to say.
    """

    now: int
    proposal: ProposalView | None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of :class:`Publish`: the version is pending.

    Attributes:
        now: when.
        version: its number.
    """

    now: int
    version: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The outcome of :class:`Withdraw`: the version is not pending any more, and was never active.

    Attributes:
        now: when.
    """

    now: int


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked for could not be done.

    Attributes:
        now: when.
        why: what kind of reason.
        message: the reason, for a person.
    """

    now: int
    why: Refusal
    message: str = ""


Input = Observation | Proposed | Published | Withdrawn | Refused

# ------------------------------------------------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True)
class Propose:
    """Compute a proposal from the active version; answer with :class:`Proposed` or :class:`Refused`.

    Attributes:
        strategies: those that may be used, from the cheapest.
        base: number of the version that it has to be computed from.
        first: whether the stream's first tree is to be built anew, though load be in balance.
    """

    strategies: tuple[str, ...]
    base: int
    first: bool = False


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a proposal; answer with :class:`Published` or :class:`Refused`. To do it twice does no harm.

    Attributes:
        proposal: its id.
    """

    proposal: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraw a pending version; answer with :class:`Withdrawn` or :class:`Refused`.

    Attributes:
        version: its number.
        proposal: id of its proposal.
    """

    version: int
    proposal: str


@dataclass(frozen=True, slots=True)
class Note:
    """Say something as an event of the stream.

    Attributes:
        reason: CamelCase.
        message: a sentence.
        warning: whether it is one.
    """

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Count how a published version ended.

    Attributes:
        strategy: what it was made with.
        result: how it ended.
    """

    strategy: str
    result: Result


Command = Propose | Publish | Withdraw | Note | Finish
