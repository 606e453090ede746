"""A simulated stream for the rebalancing machine: hot spots, scrapes with gaps, jobs that stop, a store that fails.

Load lies on 48 places in a row. A leaf is a run of places, and a version says which slot has which leaf. Strategies are
modelled by sharing leaves out greedily, FG after it has cut the hottest leaves up, and a rebuild into pairs. The
routing state is the real one. What the operator remembers goes through JSON before each reconciliation after a
restart.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import dataclass, field

from spatialstream.model.errors import Conflict
from spatialstream.store.state import RoutingState
from spatialstream_operator.decisions.rebalancing import Grade, advance, grade
from spatialstream_operator.decisions.rebalancing_inputs import (
    Finish,
    Load,
    Mode,
    Note,
    Observation,
    ProposalView,
    Propose,
    Proposed,
    Publish,
    Published,
    RebalanceSettings,
    Refused,
    Withdraw,
    Withdrawn,
)
from spatialstream_operator.decisions.rebalancing_state import Phase, State

PLACES = 48
SLOTS = 4
TICK = 10_000
START = 1_800_000_000_000
MINUTE = 60_000


@dataclass(frozen=True)
class Layout:
    """A version: leaves as runs of places, and the slot of each."""

    leaves: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    strategy: str = ""

    def loads(self, weights: list[float]) -> list[float]:
        sums = [0.0] * SLOTS
        for leaf, slot in zip(self.leaves, self.slots, strict=True):
            sums[slot] += sum(weights[place] for place in leaf)
        return sums


def ratio_of(loads: list[float]) -> float:
    if max(loads) == 0.0:
        return 1.0
    return max(loads) / min(loads) if min(loads) > 0.0 else math.inf


def first_layout(leaf: int = 3) -> Layout:
    leaves = tuple(tuple(range(at, at + leaf)) for at in range(0, PLACES, leaf))
    return Layout(leaves, tuple(number * SLOTS // len(leaves) for number in range(len(leaves))))


def share_out(leaves, weights, slots):
    """Slots of leaves, the heaviest leaf first, each to the slot with the least so far."""
    sums, chosen = dict.fromkeys(slots, 0.0), {}
    for leaf in sorted(leaves, key=lambda each: (-sum(weights[place] for place in each), each)):
        slot = min(slots, key=lambda each: (sums[each], each))
        chosen[leaf] = slot
        sums[slot] += sum(weights[place] for place in leaf)
    return chosen


def strategy_of(layout: Layout, weights: list[float], strategy: str) -> Layout:
    loads = layout.loads(weights)
    slots = dict(zip(layout.leaves, layout.slots, strict=True))
    if strategy == "PM":
        ends = (loads.index(max(loads)), loads.index(min(loads)))
        slots |= share_out([leaf for leaf in layout.leaves if slots[leaf] in ends], weights, ends)
        return Layout(layout.leaves, tuple(slots[leaf] for leaf in layout.leaves), strategy)
    leaves = layout.leaves
    if strategy == "rebuild":
        leaves = tuple((place, place + 1) for place in range(0, PLACES, 2))
    if strategy == "FG":
        bound = sum(weights) / SLOTS / 4
        parts = ([(p,) for p in leaf] if sum(weights[p] for p in leaf) > bound else [leaf] for leaf in leaves)
        leaves = tuple(part for each in parts for part in each)
    slots = share_out(leaves, weights, tuple(range(SLOTS)))
    return Layout(leaves, tuple(slots[leaf] for leaf in leaves), strategy)


@dataclass
class Plan:
    """What happens in a simulation; times are ms since its start.

    Attributes:
        hot: at a time, the hot places and how much hotter they are; called with the time.
        arrivals: objects a second at a time.
        useless: strategies whose versions turn out as bad as what was before.
        scrape: ms between scrapes.
        gaps: (from, to) in which Prometheus is away.
        down: (from, to) in which the jobs do not run.
        unreachable: (from, to) in which the routing store cannot be read.
        adoption: ms of running jobs that adopting a version takes.
        restart: probability of a restart of the operator before a reconciliation, and between command and outcome.
        flaky: probability that the store's answer to a change gets lost, or the change never comes.
        modes: (from, mode), ascending.
        approve: ms after which a person approves what is shown; None: never.
        external: when somebody else publishes a version, and with which strategy.
        known: objects that the sample stands for at a time; None: nothing is ever known.
    """

    hot: object = None
    arrivals: object = None
    useless: frozenset = frozenset()
    scrape: int = 15_000
    gaps: tuple = ()
    down: tuple = ()
    unreachable: tuple = ()
    adoption: int = 20_000
    restart: float = 0.0
    flaky: float = 0.0
    modes: tuple = ((0, "auto"),)
    approve: int | None = None
    external: tuple = ()
    known: object = None


@dataclass
class World:
    """The stream, and all that happened to it."""

    plan: Plan
    seed: int = 0
    settings: RebalanceSettings = field(default_factory=RebalanceSettings)
    now: int = START
    state: State = field(default_factory=State)
    approval: str = ""
    scraped: Load | None = None
    kept: ProposalView | None = None
    publications: list = field(default_factory=list)  # (time, strategy, grade of the latest figures, phase)
    activations: list = field(default_factory=list)
    finished: list = field(default_factory=list)  # (time, Finish)
    notes: list = field(default_factory=list)  # (time, Note)
    phases: list = field(default_factory=list)  # (time, phase)
    ratios: list = field(default_factory=list)  # (time, true ratio)
    shown_since: int | None = None

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.routing = RoutingState.created(0, SLOTS, "origin")
        self.layouts = {0: first_layout()}
        self.pending_work = 0
        self.next_scrape = START
        self.worked = START
        self.others = list(self.plan.external)

    # ------------------------------------------------------------------------------------------------------ the world

    @property
    def elapsed(self) -> int:
        return self.now - START

    def within(self, spans) -> bool:
        return any(first <= self.elapsed < last for first, last in spans)

    @property
    def mode(self) -> Mode:
        return [mode for first, mode in self.plan.modes if first <= self.elapsed][-1]

    @property
    def rules(self) -> RebalanceSettings:
        known = {name: getattr(self.settings, name) for name in RebalanceSettings.__slots__}
        return RebalanceSettings(**(known | {"mode": self.mode}))

    def weights(self) -> list[float]:
        places, heat = self.plan.hot(self.elapsed) if self.plan.hot else ((), 0.0)
        return [1.0 + heat * (place in places) for place in range(PLACES)]

    def true_loads(self) -> list[float]:
        layout = self.layouts[self.routing.active.number]
        loads = layout.loads(self.weights())
        if layout.strategy in self.plan.useless and self.plan.hot(self.elapsed)[1] > 0.0:
            return [loads[0] + 4.0 * sum(loads), *loads[1:]]
        return loads

    def live(self) -> None:
        """One tick of the jobs and of Prometheus."""
        running = not self.within(self.plan.down)
        arrivals = self.plan.arrivals(self.elapsed) if self.plan.arrivals else 100.0
        if running and arrivals:
            self.worked = self.now
        pending = self.routing.pending
        if pending is not None and running:
            self.pending_work += TICK
            if self.pending_work >= self.plan.adoption:
                self.routing = self.routing.activated(pending.number, self.routing.active.epoch + 1)
                self.activations.append((self.now, pending.number))
        if self.now >= self.next_scrape:
            self.next_scrape = self.now + self.plan.scrape
            if running and not self.within(self.plan.gaps):
                self.scraped = self._reading(arrivals)
        self.ratios.append((self.now, ratio_of(self.true_loads())))

    def _reading(self, arrivals: float) -> Load:
        loads = [load * self.random.uniform(0.95, 1.05) for load in self.true_loads()]
        number = self.routing.active.number
        return Load(self.now, self.worked, number, ratio_of(loads), arrivals, tuple(loads))

    def publish_by_hand(self, strategy: str) -> None:
        layout = strategy_of(self.layouts[self.routing.active.number], self.weights(), strategy)
        self._publish(layout, self.routing.active.number, f"hand{self.elapsed}")

    def _publish(self, layout: Layout, base: int, name: str) -> int:
        number = self.routing.last + 1
        before = self.routing.pending
        self.routing = self.routing.published(number, SLOTS, base, name, {"strategy": layout.strategy})
        if self.routing.pending is not None and self.routing.pending is not before:
            self.layouts[number] = layout
            self.pending_work = 0
        return self.routing.last

    # --------------------------------------------------------------------------------------------------- the operator

    def observation(self) -> Observation:
        return Observation(
            self.now,
            None if self.within(self.plan.unreachable) else self.routing,
            self.scraped,
            not self.within(self.plan.down),
            self.approval,
            None if self.kept is None else self.kept.id,
            self.plan.known(self.elapsed) if self.plan.known else 0.0,
        )

    def tick(self) -> None:
        self.now += TICK
        self.live()
        if self.others and self.elapsed >= self.others[0][0] and self.routing.pending is None:
            self.publish_by_hand(self.others.pop(0)[1])
        if self.random.random() < self.plan.restart:
            self.restart()
        self.person()
        self.take(self.observation())
        self.phases.append((self.now, self.state.phase))

    def restart(self) -> None:
        written = json.dumps(self.state.to_status())
        self.state = State.from_status(json.loads(written))
        self.kept = None

    def person(self) -> None:
        shown = self.state.phase is Phase.AWAITING_APPROVAL
        self.shown_since = (self.shown_since or self.now) if shown else None
        if shown and self.plan.approve is not None and self.now - self.shown_since >= self.plan.approve:
            self.approval = self.state.proposal.id

    def take(self, given) -> None:
        before = self.state
        step = advance(self.state, given, self.rules)
        self.state = step.state
        if self.state.phase is not before.phase:
            written = {key: value for key, value in self.state.to_status().items() if value is not None}
            assert State.from_status(json.loads(json.dumps(written))) == self.state
        for command in step.commands:
            if isinstance(command, Finish):
                self.finished.append((self.now, command))
            elif isinstance(command, Note):
                self.notes.append((self.now, command))
            elif self.random.random() < self.plan.restart:
                self.restart()  # before the command is carried out
                return
            else:
                outcome = self.carry_out(command, before)
                if self.random.random() < self.plan.restart:
                    self.restart()  # before its outcome is known
                    return
                self.take(outcome)

    def carry_out(self, command, before: State):
        lost = self.random.random() < self.plan.flaky
        if lost and self.random.random() < 0.5:
            return Refused(self.now, "unavailable")
        try:
            outcome = self._carry_out(command, before)
        except Conflict as error:
            outcome = Refused(self.now, "conflict", str(error))
        return Refused(self.now, "unavailable") if lost else outcome

    def _carry_out(self, command, before: State):
        if isinstance(command, Propose):
            return self._propose(command)
        if isinstance(command, Withdraw):
            self.routing = self.routing.withdrawn(command.version, command.proposal)
            return Withdrawn(self.now)
        assert isinstance(command, Publish)
        if self.kept is None or self.kept.id != command.proposal:
            return Refused(self.now, "forgotten")
        known = self.routing.pending is not None and self.routing.pending.proposal == command.proposal
        assert not self.state.first or self.routing.rebuilt is None, "the first tree is built anew once"
        number = self._publish(self.layouts[self.kept.id], self.kept.base, command.proposal)
        if not known:
            found = grade(self.scraped, self.routing, self.now, self.rules)
            self.publications.append((self.now, self.kept.strategy, found, self.mode, command.proposal, self.approval))
        return Published(self.now, number)

    def _propose(self, command: Propose):
        if command.base != self.routing.active.number:
            return Refused(self.now, "conflict", "another version is active")
        layout, weights = self.layouts[command.base], self.weights()
        before = ratio_of(self.true_loads())
        if before <= self.settings.threshold and not command.first:
            return Proposed(self.now, None, before)
        best = None
        for strategy in command.strategies:
            new = strategy_of(layout, weights, strategy)
            after = ratio_of(new.loads(weights))
            if best is None or after < best[0]:
                best = (after, new)
            if after <= self.settings.threshold:
                break
        assert best is not None
        after, new = best
        if after > 0.99 * before and not command.first:
            return Proposed(self.now, None, before)
        name = hashlib.blake2b(repr((command.base, new)).encode(), digest_size=6).hexdigest()
        loads = self.true_loads()
        heaviest = loads.index(max(loads))
        rounded = (float(f"{each:.2f}") for each in (before, after))
        self.kept = ProposalView(name, command.base, new.strategy, *rounded, 3, 10, heaviest, "text")
        self.layouts[name] = new
        return Proposed(self.now, self.kept, before)

    # ------------------------------------------------------------------------------------------------------- the test

    def run(self, minutes: float) -> World:
        while self.elapsed < minutes * MINUTE:
            self.tick()
        return self

    def check(self) -> None:
        """What holds in every simulation."""
        for one, other in zip(self.publications, self.publications[1:], strict=False):
            failed = any(one[0] <= at <= other[0] and each.result == "unbalanced" for at, each in self.finished)
            assert other[0] - one[0] >= self.settings.cooldown or failed, (one, other)
        for _, _, found, mode, name, approval in self.publications:
            assert found is Grade.USABLE
            assert mode != "off"
            assert mode == "auto" or approval == name

    def balanced_since(self) -> int | None:
        """Since when the true ratio has been within λ, in ms since the start; None if it is not."""
        bad = [at for at, ratio in self.ratios if ratio > self.settings.threshold]
        if not bad:
            return 0
        return None if bad[-1] == self.ratios[-1][0] else bad[-1] + TICK - START
