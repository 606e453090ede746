"""When a stream's routing versions are proposed, published, verified and withdrawn: an explicit state machine.

::

    Off      Watching ──> Stabilising ──> Proposing ──> AwaitingApproval ──> Publishing ──> Adopting ──> Verifying
                ^                             ^     └──────────(auto)────────────^             │            │ │
                │                             └────────── the next strategy ───────────────────│────────────┘ │
                └──────────────────────── Cooldown <───────────────────────── Withdrawing <────┘              │
                                              ^───────────────────────────────────────────────────────────────┘

Strategies are tried in the order that the index's kind has them: PM before FM, FM before those that adjust the index
(SSTD, section 5.1; Tornado, section 4), and these before a rebuild. So it is by the cost model's expectation when a
proposal is computed, and by measurements once a version is active, which is done here. If the new version does not
restore balance, the next strategy follows at once. After the last one the machine pauses, longer each time, because
nothing has helped.

A stream that began without history has a tree that does not fit its data. Once enough objects have been seen, its first
tree is rebuilt whether or not load is in balance, with the same steps and limits. This is done once: earlier use of
other strategies does not count as a rebuild, but a rebuild for any other reason does, including one by hand. The
routing store records whether there was one.

The caller that carries out the commands follows three rules.

1. A state is written to the status *before* its commands are carried out. So a pending version is known to be the
   operator's own even if the operator crashes right after publishing.
2. The outcome of a command is the next input.
3. A command may be repeated until its outcome is known; commands are idempotent.

With missing or stale metrics, or metrics of a version other than the active one, nothing is proposed, published or
judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spatialstream.balance.rebuild import ENOUGH
from spatialstream.store.state import Pending, RoutingState
from spatialstream_operator.decisions.rebalancing_inputs import (
    STRATEGIES,
    Command,
    Finish,
    Input,
    Load,
    Note,
    Observation,
    ProposalView,
    Propose,
    Proposed,
    Publish,
    Published,
    RebalanceSettings,
    Refused,
    Result,
    Withdraw,
    Withdrawn,
)
from spatialstream_operator.decisions.rebalancing_state import Ending, Phase, State

__all__ = ["ACCEPTS", "Grade", "Step", "advance", "grade"]

ACCEPTS: Mapping[Phase, frozenset[type]] = {
    Phase.OFF: frozenset({Observation}),
    Phase.WATCHING: frozenset({Observation}),
    Phase.STABILISING: frozenset({Observation}),
    Phase.PROPOSING: frozenset({Observation, Proposed, Refused}),
    Phase.AWAITING_APPROVAL: frozenset({Observation}),
    Phase.PUBLISHING: frozenset({Observation, Published, Refused}),
    Phase.ADOPTING: frozenset({Observation}),
    Phase.WITHDRAWING: frozenset({Observation, Withdrawn, Refused}),
    Phase.VERIFYING: frozenset({Observation}),
    Phase.COOLDOWN: frozenset({Observation}),
}
"""The inputs that each phase accepts; any other is a late outcome, and is ignored."""

_COMMITTED = frozenset({Phase.PUBLISHING, Phase.ADOPTING, Phase.WITHDRAWING})
"""Phases that end only by the state of the routing store, even if settings change meanwhile."""

_REFRESH = 600_000
"""Age in ms from which a proposal that waits for approval is recomputed if the load has changed."""

_OTHER = 1.25
"""Factor by which Lmax/Lmin must differ for the load to count as changed."""

_BREAKS = 3
"""Number of job interruptions while a version is pending from which the version is assumed to be the cause."""

_NOBODY = "external"
"""Placeholder for the strategy of a version that was published by somebody else."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an input.

    Attributes:
        state: the next state.
        commands: the commands to carry out, in this order, after the state has been stored.
    """

    state: State
    commands: tuple[Command, ...] = ()


class Grade(Enum):
    """Usability of load metrics."""

    MISSING = "missing"
    """There are no metrics."""
    STALE = "stale"
    """The metrics are too old."""
    OTHER = "other"
    """The metrics belong to a version other than the active one."""
    IDLE = "idle"
    """The input rate is too low for balance to matter."""
    USABLE = "usable"
    """The metrics describe the current load."""


def grade(load: Load | None, routing: RoutingState | None, now: int, settings: RebalanceSettings) -> Grade:
    """Grade load metrics.

    Without input there are no rounds, so the counts get old although nothing is wrong. Therefore low input is checked
    before the age of the counts, using the age of the samples only.
    """
    if load is None or not load.ratio >= 0.0 or not load.arrivals >= 0.0:  # NaN is neither
        return Grade.MISSING
    if now - load.at > settings.fresh:
        return Grade.STALE
    if load.arrivals < settings.arrivals:
        return Grade.IDLE
    if now - load.worked > settings.fresh:
        return Grade.STALE
    if routing is None or load.version != routing.active.number:
        return Grade.OTHER
    return Grade.USABLE


def advance(state: State, event: Input, settings: RebalanceSettings) -> Step:
    """The next state, and the commands to carry out.

    Args:
        state: the current state.
        event: an observation, or the outcome of a command.
        settings: the current settings; they may have changed since the last call.
    """
    if type(event) not in ACCEPTS[state.phase]:
        return Step(state)
    if isinstance(event, Observation):
        return _observed(state, event, settings)
    if isinstance(event, Proposed):
        return _proposed(state, event, settings)
    if isinstance(event, Published):
        return _published(state, event.version, event.now, settings)
    if isinstance(event, Withdrawn):
        return _taken_back(state, event.now, settings)
    return _refused(state, event)


# -------------------------------------------------------------------------------------------------------- observations


def _observed(state: State, seen: Observation, settings: RebalanceSettings) -> Step:
    if state.rested is not None:
        state = replace(state, until=state.rested + settings.rest(state.setbacks))
    committed = state.phase in _COMMITTED
    if settings.mode == "off" and not committed and state.phase is not Phase.OFF:
        return _turned_off(state, seen.now, settings)
    if seen.routing is None:
        return Step(state)
    if committed:
        return _HANDLERS[state.phase](state, seen, seen.routing, settings)
    if state.phase is not Phase.VERIFYING:
        state = _judged(state, seen, seen.routing, settings)
    if settings.mode == "off":
        return Step(state)
    if seen.routing.pending is not None:
        return _pending(state, seen.routing.pending, seen.now, settings)
    return _HANDLERS[state.phase](state, seen, seen.routing, settings)


def _judged(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> State:
    """Update ``balanced``: False once the ratio has been above λ for long enough, True when it is clearly below λ."""
    active = routing.active.number
    if state.version != active:
        state = replace(state, version=active, over=None, seen=None)
    found = grade(seen.load, routing, seen.now, settings)
    if found is Grade.IDLE:
        return replace(state, over=None, seen=None, balanced=True, setbacks=0)
    if found is not Grade.USABLE or seen.load is None:
        return state
    ratio = seen.load.ratio
    if ratio > settings.threshold:
        over = _unbroken(state.over, state.seen, seen.now, settings)
        lasting = seen.now - over >= settings.stabilisation
        return replace(
            state, over=over, seen=_looked(state, seen.now, settings), balanced=False if lasting else state.balanced
        )
    back = state.balanced is not False or ratio <= settings.release
    setbacks = 0 if back else state.setbacks
    return replace(state, over=None, seen=None, balanced=back, setbacks=setbacks)


def _unbroken(since: int | None, last: int | None, now: int, settings: RebalanceSettings) -> int:
    """Since when something holds: ``now`` if it did not hold before, or the last observation is too old."""
    return now if since is None or last is None or now - last > settings.fresh else since


def _is_first(seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> bool:
    """Whether the stream still has its initial tree, and enough objects have been seen to build a better one."""
    wanted = settings.rebuild > 0 and "rebuild" in settings.strategies
    return routing.rebuilt is None and wanted and seen.known >= max(settings.rebuild, ENOUGH)


def _is_wanted(state: State, now: int, settings: RebalanceSettings) -> bool:
    """Whether there is still a reason for the current attempt."""
    return state.first or _has_lasted(state, now, settings)


def _has_lasted(state: State, now: int, settings: RebalanceSettings) -> bool:
    """Whether load has been out of balance for long enough."""
    return state.over is not None and now - state.over >= settings.stabilisation


def _looked(state: State, now: int, settings: RebalanceSettings) -> int:
    """Time of the last observation, at a resolution of one interval, so that the status does not change each time."""
    return now if state.seen is None or now - state.seen >= settings.interval else state.seen


def _usable(seen: Observation, settings: RebalanceSettings) -> bool:
    """Whether a version may be proposed or published: the metrics are usable, and both jobs run to adopt it."""
    return seen.jobs and grade(seen.load, seen.routing, seen.now, settings) is Grade.USABLE


def _watching(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """Phases without an attempt in progress: Off, Watching, Stabilising and Cooldown."""
    now = seen.now
    if state.until is not None and now < state.until:
        return Step(state.at(Phase.COOLDOWN, now))
    state = replace(state, rested=None, until=None)
    if _is_first(seen, routing, settings) and _usable(seen, settings):
        return _ask(replace(state, first=True, problem=""), routing.active.number, now, settings)
    if state.over is None:
        return Step(state.at(Phase.WATCHING, now))
    if not _has_lasted(state, now, settings) or not _usable(seen, settings):
        return Step(state.at(Phase.STABILISING, now))
    return _ask(replace(state, problem=""), routing.active.number, now, settings)


def _ask(state: State, base: int, now: int, settings: RebalanceSettings) -> Step:
    left = state.left(settings.strategies)
    asked = Propose(("rebuild",), base, first=True) if state.first else Propose(left, base)
    return Step(state.at(Phase.PROPOSING, now), (asked,))


def _proposing(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    wanted = _is_first(seen, routing, settings) if state.first else _has_lasted(state, seen.now, settings)
    if not wanted:
        return _watching(_over(state), seen, routing, settings)
    if not _usable(seen, settings):
        return Step(state)
    return _ask(state, routing.active.number, seen.now, settings)


def _awaiting(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    proposal = _of(state)
    if proposal.base != routing.active.number:
        note = Note(
            "ProposalOutdated", f"proposal {proposal.id} is outdated: version {routing.active.number} is active now"
        )
        return _after(note, _watching(_over(state), seen, routing, settings))
    found = grade(seen.load, routing, seen.now, settings)
    if not state.first and state.over is None and (found is Grade.IDLE or (found is Grade.USABLE and state.balanced)):
        note = Note("ProposalDropped", f"proposal {proposal.id} is no longer needed: load is in balance")
        return _after(note, _watching(_over(state), seen, routing, settings))
    if not _usable(seen, settings):
        return Step(state)
    if settings.mode == "auto" or seen.kept != proposal.id or _is_outdated(state, proposal, seen):
        return _ask(state, proposal.base, seen.now, settings) if _is_wanted(state, seen.now, settings) else Step(state)
    if seen.approval == proposal.id:
        used = replace(state, ignored=seen.approval)  # the annotation stays, but does not approve the next proposal
        return Step(used.at(Phase.PUBLISHING, seen.now), (Publish(proposal.id),))
    if seen.approval in ("", state.ignored):
        return Step(state)
    text = f"the approval of {seen.approval[:40]!r} is ignored: the proposal is {proposal.id}"
    return Step(replace(state, ignored=seen.approval), (Note("ApprovalIgnored", text, warning=True),))


def _is_outdated(state: State, proposal: ProposalView, seen: Observation) -> bool:
    """Whether a proposal is old, and the load has changed since it was computed."""
    if seen.load is None or seen.now - state.since < _REFRESH:
        return False
    one, other = sorted((proposal.before, seen.load.ratio))
    heaviest = seen.load.heaviest
    moved = None not in (heaviest, proposal.heaviest) and heaviest != proposal.heaviest
    return moved or (one != other and other > _OTHER * one)


def _publishing(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """The outcome of publishing is unknown: the operator was restarted, or the store did not respond."""
    proposal, pending, now = _of(state), routing.pending, seen.now
    if routing.adopted == proposal.id and routing.active.number != proposal.base:
        begun = _published(state, routing.active.number, now, settings)
        return _after_all(begun.commands, _activated(begun.state, now, settings))
    if pending is not None and (settings.mode != "off" or pending.proposal == proposal.id):
        return _pending(state, pending, now, settings)
    if settings.mode == "off":
        return _turned_off(state, now, settings)
    state = _judged(state, seen, routing, settings)
    if proposal.base != routing.active.number:
        return _watching(_over(state), seen, routing, settings)
    if settings.mode == "approve" and seen.approval != proposal.id:
        return Step(state.at(Phase.AWAITING_APPROVAL, now))
    if settings.mode == "auto" and not _is_wanted(state, now, settings):
        return _watching(_over(state), seen, routing, settings)
    if not _usable(seen, settings):
        return Step(state)
    if seen.kept != proposal.id:
        return _ask(state, proposal.base, now, settings)
    return Step(state, (Publish(proposal.id),))


def _adopting(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    pending, now = routing.pending, seen.now
    if routing.active.number == state.version:
        return _activated(state, now, settings)
    if any(binding.number == state.version for binding in routing.bindings):
        return _superseded(state, seen, routing, settings)
    if pending is None or pending.number != state.version:
        return _lost(state, seen, routing, settings)
    if state.external and settings.mode == "off":
        return _turned_off(state, now, settings)
    state = _timed(state, seen)
    if state.external or not _is_overdue(state, now, settings):
        return Step(state)
    text = f"version {pending.number} ({_strategy(state)}) is withdrawn: the jobs did not adopt it in time"
    commands = (Note("AdoptionTimedOut", text, warning=True), Withdraw(pending.number, pending.proposal))
    return Step(replace(state.at(Phase.WITHDRAWING, now), problem="AdoptionTimedOut"), commands)


def _timed(state: State, seen: Observation) -> State:
    """Track since when both jobs have been running, which is what the timeout counts."""
    if seen.jobs:
        return state if state.running is not None else replace(state, running=seen.now)
    return state if state.running is None else replace(state, running=None, breaks=state.breaks + 1)


def _is_overdue(state: State, now: int, settings: RebalanceSettings) -> bool:
    if state.breaks >= _BREAKS and now - state.since >= settings.timeout:
        return True
    return state.running is not None and now - state.running >= settings.timeout


def _withdrawing(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    if routing.active.number == state.version:
        return _activated(state, seen.now, settings)
    if any(binding.number == state.version for binding in routing.bindings):
        return _superseded(state, seen, routing, settings)
    pending = routing.pending
    if pending is None or pending.number != state.version:
        return _taken_back(state, seen.now, settings)
    return Step(state, (Withdraw(pending.number, pending.proposal),))


def _verifying(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """Judge the new version by its own metrics only, collected for as long as imbalance has to last."""
    now, load = seen.now, seen.load
    if routing.active.number != state.version:
        return _superseded(state, seen, routing, settings)
    found = grade(load, routing, now, settings)
    if found is Grade.IDLE and now - state.since >= settings.timeout:
        return _rest(state, now, settings, "failed", "the input rate has been too low to judge since then")
    if found is not Grade.USABLE or load is None:
        return Step(state)
    over = None if load.ratio <= settings.threshold else _unbroken(state.over, state.seen, now, settings)
    watched = _unbroken(state.watched, state.seen, now, settings)
    state = replace(state, over=over, watched=watched, seen=_looked(state, now, settings))
    if now - watched < settings.observation:
        return Step(state)
    if over is None:
        return _balanced(state, now, settings)
    return Step(state) if now - over < settings.observation else _unbalanced(state, seen, routing, settings)


_HANDLERS: Mapping[Phase, Callable[[State, Observation, RoutingState, RebalanceSettings], Step]] = {
    Phase.OFF: _watching,
    Phase.WATCHING: _watching,
    Phase.STABILISING: _watching,
    Phase.COOLDOWN: _watching,
    Phase.PROPOSING: _proposing,
    Phase.AWAITING_APPROVAL: _awaiting,
    Phase.PUBLISHING: _publishing,
    Phase.ADOPTING: _adopting,
    Phase.WITHDRAWING: _withdrawing,
    Phase.VERIFYING: _verifying,
}

# ------------------------------------------------------------------------------------------------------------ outcomes


def _proposed(state: State, proposed: Proposed, settings: RebalanceSettings) -> Step:
    proposal, now = proposed.proposal, proposed.now
    watched = state.first or (state.seen is not None and now - state.seen <= settings.fresh)
    if not watched or settings.mode == "off":
        return Step(state)
    if proposal is None:
        if proposed.ratio is not None and proposed.ratio <= settings.threshold:
            return Step(replace(_over(state), over=None, seen=None).at(Phase.WATCHING, now))
        return _helpless(state, now, settings)
    if proposal.base != state.version or proposal.strategy not in state.left(settings.strategies):
        return Step(state)
    reported = state.proposal is not None and state.proposal.id == proposal.id
    state = replace(state, proposal=proposal)
    if settings.mode == "auto":
        return Step(state.at(Phase.PUBLISHING, now), (Publish(proposal.id),))
    text = f"proposal {proposal.id} ({proposal.strategy}) waits for the annotation spatialstream.dev/approve"
    return Step(state.at(Phase.AWAITING_APPROVAL, now), () if reported else (Note("ProposalReady", text),))


def _helpless(state: State, now: int, settings: RebalanceSettings) -> Step:
    """No remaining strategy improves balance."""
    rested = _cooled(replace(_over(state), setbacks=state.setbacks + 1, problem="NothingBetter"), now, settings)
    text = "load is out of balance, and no remaining strategy improves it"
    return Step(rested.at(Phase.COOLDOWN, now), (Note("NothingBetter", text, warning=True),))


def _published(state: State, version: int, now: int, settings: RebalanceSettings) -> Step:
    proposal = _of(state)
    state = replace(state, version=version, external=False, running=None, breaks=0)
    text = f"version {version} is published: {proposal.strategy}, proposal {proposal.id}"
    return Step(_cooled(state, now, settings).at(Phase.ADOPTING, now), (Note("Published", text),))


def _refused(state: State, refused: Refused) -> Step:
    if state.phase is Phase.WITHDRAWING:
        return Step(state)
    if refused.why == "unavailable":
        return Step(replace(state, problem="ProposalUnavailable"))
    if refused.why == "forgotten":
        return Step(state.at(Phase.PROPOSING, refused.now))
    fresh = replace(_over(state), over=None, seen=None).at(Phase.WATCHING, refused.now)
    return Step(fresh, (Note("ProposalRefused", f"the proposal is invalid: {refused.message}"),))


def _taken_back(state: State, now: int, settings: RebalanceSettings) -> Step:
    """The version is no longer pending, and never became active."""
    state = replace(state, setbacks=state.setbacks + 1)
    return _rest(state, now, settings, "withdrawn", f"version {state.version} was withdrawn")


# -------------------------------------------------------------------------------------------------- what happens then


def _pending(state: State, pending: Pending, now: int, settings: RebalanceSettings) -> Step:
    """A version is pending: the one that was to be published, or somebody else's.

    Somebody else's version is accepted, and followed like the operator's own.
    """
    if state.phase is Phase.VERIFYING:
        state, finishes = _ended(state, now, "failed", "another version was published before this one could be judged")
    elif state.proposal is not None and state.proposal.id == pending.proposal:
        return _published(state, pending.number, now, settings)
    else:
        finishes = ()
    text = f"version {pending.number} (proposal {pending.proposal}) is somebody else's; waiting for its adoption"
    state = replace(_over(state), version=pending.number, external=True, over=None, seen=None)
    state = replace(state, phase=Phase.ADOPTING, since=now)
    return Step(state, (*finishes, Note("ExternalVersion", text)))


def _turned_off(state: State, now: int, settings: RebalanceSettings) -> Step:
    """Rebalancing was turned off, and no version of the operator's own is pending."""
    finishes: tuple[Command, ...] = ()
    if state.phase is Phase.VERIFYING:
        state, finishes = _ended(state, now, "failed", "rebalancing was turned off before the version could be judged")
    return Step(replace(_over(state), over=None, seen=None).at(Phase.OFF, now), finishes)


def _activated(state: State, now: int, settings: RebalanceSettings) -> Step:
    note = Note("Activated", f"version {state.version} is active")
    state = replace(state, over=None, seen=None, watched=None, problem="").at(Phase.VERIFYING, now)
    return _after(note, _turned_off(state, now, settings) if settings.mode == "off" else Step(state))


def _superseded(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """The version was active, and another one followed that this operator did not publish."""
    return _rest(
        state, seen.now, settings, "failed", f"version {routing.active.number} followed before this one could be judged"
    )


def _lost(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """The pending version has been withdrawn by somebody else."""
    now = seen.now
    if not state.external:
        note = Note("WithdrawnByHand", f"version {state.version} was withdrawn by somebody else", warning=True)
        return _after(note, _rest(state, now, settings, "withdrawn", f"version {state.version} was withdrawn by hand"))
    if settings.mode == "off":
        return _turned_off(state, now, settings)
    if routing.pending is not None:
        return _pending(state, routing.pending, now, settings)
    return _watching(_judged(_over(state), seen, routing, settings), seen, routing, settings)


def _balanced(state: State, now: int, settings: RebalanceSettings) -> Step:
    state = replace(state, balanced=True, setbacks=0)
    note = Note("Rebalanced", f"version {state.version} ({_strategy(state)}) has restored balance")
    return _after(note, _rest(state, now, settings, "balanced", f"version {state.version} has restored balance"))


def _unbalanced(state: State, seen: Observation, routing: RoutingState, settings: RebalanceSettings) -> Step:
    """Balance was not restored: try the next strategy at once; after the last one, pause."""
    now = seen.now
    state = replace(state, balanced=False, watched=None)
    if state.external or state.proposal is None:
        return _watching(_over(state), seen, routing, settings)
    last = STRATEGIES.index(state.proposal.strategy)
    tried = STRATEGIES[last : last + 1] if state.first else STRATEGIES[: last + 1]
    text = f"load is still out of balance under version {state.version} ({state.proposal.strategy})"
    state = replace(state, tried=tried, first=False)
    if left := state.left(settings.strategies):
        state, finishes = _ended(state, now, "unbalanced", text)
        note = Note("StillImbalanced", f"{text}; next: {left[0]}", warning=True)
        following = _ask(replace(state, proposal=None), routing.active.number, now, settings)
        if not _usable(seen, settings):
            following = Step(following.state)
        return _after_all((*finishes, note), following)
    state = replace(state, setbacks=state.setbacks + 1, problem="StrategiesExhausted")
    note = Note("StrategiesExhausted", f"{text}, and no strategy remains", warning=True)
    return _after(note, _rest(state, now, settings, "unbalanced", text))


def _rest(state: State, now: int, settings: RebalanceSettings, result: Result, text: str) -> Step:
    """A rebalance has ended: nothing is published during the cooldown."""
    state, finishes = _ended(state, now, result, text)
    phase = Phase.OFF if settings.mode == "off" else Phase.COOLDOWN
    return Step(_cooled(_over(replace(state, over=None, seen=None)), now, settings).at(phase, now), finishes)


def _ended(state: State, now: int, result: Result, text: str) -> tuple[State, tuple[Command, ...]]:
    """Record and count how a version ended, unless somebody else published it."""
    if state.external or state.proposal is None:
        return state, ()
    strategy = state.proposal.strategy
    return replace(state, last=Ending(result, strategy, state.proposal.id, state.version, now, text)), (
        Finish(strategy, result),
    )


def _cooled(state: State, now: int, settings: RebalanceSettings) -> State:
    """Start the cooldown."""
    return replace(state, rested=now, until=now + settings.rest(state.setbacks))


def _over(state: State) -> State:
    """The state without the fields of an attempt."""
    return replace(state, proposal=None, external=False, running=None, breaks=0, watched=None, first=False, tried=())


def _strategy(state: State) -> str:
    return _NOBODY if state.external or state.proposal is None else state.proposal.strategy


def _of(state: State) -> ProposalView:
    """The proposal, in a phase that always has one; see :meth:`State.from_status`."""
    assert state.proposal is not None
    return state.proposal


def _after(note: Note, step: Step) -> Step:
    return _after_all((note,), step)


def _after_all(commands: tuple[Command, ...], step: Step) -> Step:
    return Step(step.state, (*commands, *step.commands))
