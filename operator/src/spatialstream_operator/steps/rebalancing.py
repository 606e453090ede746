"""Moving load: what :mod:`spatialstream_operator.decisions.rebalancing` decides, carried out.

The machine's state is written to the status before its commands are carried out, and the outcome of each command is its
next input.
"""

from __future__ import annotations

import asyncio

from spatialstream.balance.loads import imbalance, leaf_loads, slot_loads
from spatialstream.balance.proposal import propose
from spatialstream.balance.rebuild import ENOUGH
from spatialstream.model.errors import Conflict, SettingError, StateError, Unavailable
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import read_load, read_sample, read_seen
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.choosing import choose
from spatialstream_operator.decisions.rebalancing import Step, advance
from spatialstream_operator.decisions.rebalancing_inputs import (
    Command,
    Finish,
    Input,
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
from spatialstream_operator.decisions.rebalancing_state import State
from spatialstream_operator.names import APPROVE_ANNOTATION

__all__ = ["observe", "rebalance", "settings"]

_LONGEST_CHAIN = 8


async def rebalance(look: ReconcileContext) -> None:
    """Go on with what is under way, or begin."""
    state = State.from_status(look.part("rebalance"))
    step = advance(state, observe(look, await _known(look)), settings(look))
    for _ in range(_LONGEST_CHAIN):
        await look.remember(rebalance=step.state.to_status())
        outcome = await _carry_out(look, step)
        if outcome is None:
            return
        step = advance(step.state, outcome, settings(look))
    await look.remember(rebalance=step.state.to_status())


def settings(look: ReconcileContext) -> RebalanceSettings:
    """What the spec says about rebalancing."""
    wanted, threshold = look.spec.rebalance, look.spec.index.balance.imbalance
    mode: Mode = "auto" if wanted.mode == "auto" else "approve" if wanted.mode == "approve" else "off"
    return RebalanceSettings(
        mode,
        threshold,
        wanted.interval,
        wanted.stabilisation,
        wanted.cooldown,
        wanted.timeout,
        rebuild=wanted.rebuild,
    )


async def _known(look: ReconcileContext) -> float:
    """How many objects have been seen of a stream whose first tree may have to be built anew; else 0.

    Of long texts, or of many objects at a time, a sample keeps few. Where these were too few for a tree, that is tried
    again when twice as many have been seen, and load is balanced meanwhile.
    """
    wanted = look.spec.rebalance.rebuild > 0
    if not wanted or look.store is None or look.routing is None or look.routing.rebuilt is not None:
        return 0.0
    try:
        seen = await asyncio.to_thread(read_seen, look.store)
        return seen if seen >= 2.0 * look.memory.small else 0.0
    except (StateError, Unavailable):
        return 0.0


def observe(look: ReconcileContext, known: float = 0.0) -> Observation:
    """What the machine is told in this look."""
    kept = look.memory.proposal
    return Observation(
        look.environment.now(),
        look.routing,
        look.figures.load,
        all(job.is_ready for job in look.jobs.values()),
        look.annotations.get(APPROVE_ANNOTATION, ""),
        None if kept is None else kept.id,
        known,
    )


async def _carry_out(look: ReconcileContext, step: Step) -> Input | None:
    """Carry out a step's commands; the outcome of the one that has an outcome."""
    outcome: Input | None = None
    for command in step.commands:
        if isinstance(command, Note):
            await look.tell(command)
        elif isinstance(command, Finish):
            labels = look.names.namespace, look.names.name, command.strategy, command.result
            look.environment.metrics.rebalances.labels(*labels).inc()
        else:
            outcome = await _ask_store(look, command)
    return outcome


async def _ask_store(look: ReconcileContext, command: Command) -> Input:
    """What needs the routing store; every failure is an outcome too."""
    now = look.environment.now
    if look.store is None:
        return Refused(now(), "unavailable", "the routing store is out of reach")
    try:
        if isinstance(command, Propose):
            return await asyncio.to_thread(_propose, look, look.store, command)
        if isinstance(command, Publish):
            return await asyncio.to_thread(_publish, look, look.store, command)
        assert isinstance(command, Withdraw)
        await asyncio.to_thread(look.store.withdraw, command.version, command.proposal)
        return Withdrawn(now())
    except Conflict as error:
        return Refused(now(), "conflict", str(error))
    except (StateError, Unavailable, SettingError) as error:
        return Refused(now(), "unavailable", str(error))


def _propose(look: ReconcileContext, store: RoutingStore, command: Propose) -> Input:
    now, state = look.environment.now, store.state()
    if state.active.number != command.base:
        return Refused(now(), "conflict", f"version {state.active.number} is active, and not {command.base}")
    load, sample = read_load(store), read_sample(store)
    if load.version != command.base:
        return Refused(now(), "unavailable", f"there are no load statistics of version {command.base} yet")
    if sample is None:
        return Refused(now(), "unavailable", "the router has not learned any statistics yet")
    if command.first and len(sample.objects) < ENOUGH:
        look.memory.small = sample.seen
        return Refused(now(), "unavailable", f"the router's sample holds fewer than {ENOUGH:,} objects")
    version, balance, statistics = store.load(command.base), look.spec.index.balance, sample.statistics()
    if command.first:
        proposal = propose(version, load.counts, statistics, balance, "rebuild", state.last + 1, sample)
    else:
        proposal = choose(version, load.counts, statistics, balance, command.strategies, state.last + 1, sample)
    look.memory.proposal = proposal
    ratio = imbalance(slot_loads(leaf_loads(version, load.counts, statistics), version.mapping, version.slots))
    view = None if proposal is None else ProposalView.of(proposal.to_record(), proposal.explain())
    return Proposed(now(), view, ratio)


def _publish(look: ReconcileContext, store: RoutingStore, command: Publish) -> Input:
    now, proposal = look.environment.now, look.memory.proposal
    if proposal is None or proposal.id != command.proposal:
        return Refused(now(), "forgotten", "the proposed version is not at hand any more")
    store.publish(proposal.version, proposal.base, proposal.id, proposal.to_record())
    return Published(now(), proposal.version.number)
