"""Carries out the rebalancing decisions of :mod:`spatialstream_operator.decisions.rebalancing`.

The state of the state machine is written to the status before its commands are carried out, and the outcome of each
command is its next input.
"""

from __future__ import annotations

import asyncio

from spatialstream.balance.explanation import explanation
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


async def rebalance(context: ReconcileContext) -> None:
    """Advance the state machine, and carry out its commands."""
    state = State.from_status(context.part("rebalance"))
    step = advance(state, observe(context, await _known(context)), settings(context))
    for _ in range(_LONGEST_CHAIN):
        await context.remember(rebalance=step.state.to_status())
        outcome = await _carry_out(context, step)
        if outcome is None:
            return
        step = advance(step.state, outcome, settings(context))
    await context.remember(rebalance=step.state.to_status())


def settings(context: ReconcileContext) -> RebalanceSettings:
    """The rebalancing settings of the spec."""
    rebalance_spec, threshold = context.spec.rebalance, context.spec.index.balance.imbalance
    mode: Mode = "auto" if rebalance_spec.mode == "auto" else "approve" if rebalance_spec.mode == "approve" else "off"
    return RebalanceSettings(
        mode,
        threshold,
        rebalance_spec.interval,
        rebalance_spec.stabilisation,
        rebalance_spec.cooldown,
        rebalance_spec.timeout,
        rebuild=rebalance_spec.rebuild,
        strategies=context.spec.index.strategies("" if context.routing is None else context.routing.kind),
    )


async def _known(context: ReconcileContext) -> float:
    """Number of objects seen by a stream whose initial tree may have to be rebuilt; else 0.

    With long texts, or many objects at a time, a sample keeps few objects. If they were too few for a tree, the rebuild
    is retried when twice as many have been seen; load is balanced meanwhile.
    """
    wanted = context.spec.rebalance.rebuild > 0
    if not wanted or context.store is None or context.routing is None or context.routing.rebuilt is not None:
        return 0.0
    try:
        seen = await asyncio.to_thread(read_seen, context.store)
        return seen if seen >= 2.0 * context.memory.small else 0.0
    except (StateError, Unavailable):
        return 0.0


def observe(context: ReconcileContext, known: float = 0.0) -> Observation:
    """The observation for the state machine in this reconciliation."""
    proposal = context.memory.proposal
    return Observation(
        context.environment.now(),
        context.routing,
        context.load_metrics.load,
        all(job.is_ready for job in context.jobs.values()),
        context.annotations.get(APPROVE_ANNOTATION, ""),
        None if proposal is None else proposal.id,
        known,
    )


async def _carry_out(context: ReconcileContext, step: Step) -> Input | None:
    """Carry out a step's commands; return the outcome of the one that has an outcome."""
    outcome: Input | None = None
    for command in step.commands:
        if isinstance(command, Note):
            await context.emit(command)
        elif isinstance(command, Finish):
            labels = context.names.namespace, context.names.name, command.strategy, command.result
            context.environment.metrics.rebalances.labels(*labels).inc()
        else:
            outcome = await _ask_store(context, command)
    return outcome


async def _ask_store(context: ReconcileContext, command: Command) -> Input:
    """Carry out a command on the routing store; a failure is an outcome, too."""
    now = context.environment.now
    if context.store is None:
        return Refused(now(), "unavailable", "the routing store is unreachable")
    try:
        if isinstance(command, Propose):
            return await asyncio.to_thread(_propose, context, context.store, command)
        if isinstance(command, Publish):
            return await asyncio.to_thread(_publish, context, context.store, command)
        assert isinstance(command, Withdraw)
        await asyncio.to_thread(context.store.withdraw, command.version, command.proposal)
        return Withdrawn(now())
    except Conflict as error:
        return Refused(now(), "conflict", str(error))
    except (StateError, Unavailable, SettingError) as error:
        return Refused(now(), "unavailable", str(error))


def _propose(context: ReconcileContext, store: RoutingStore, command: Propose) -> Input:
    now, state = context.environment.now, store.state()
    if state.active.number != command.base:
        return Refused(now(), "conflict", f"version {state.active.number} is active, not {command.base}")
    load, sample = read_load(store), read_sample(store)
    if load.version != command.base:
        return Refused(now(), "unavailable", f"there are no load statistics of version {command.base} yet")
    if sample is None:
        return Refused(now(), "unavailable", "the router has not learned any statistics yet")
    if command.first and len(sample.objects) < ENOUGH:
        context.memory.small = sample.seen
        return Refused(now(), "unavailable", f"the router's sample holds fewer than {ENOUGH:,} objects")
    version, index, statistics = store.load(command.base), context.spec.index, sample.statistics()
    given, more = (version, load.counts, statistics, index.balance), (state.last + 1, sample, index.rebuilt)
    if command.first:
        proposal = propose(*given, "rebuild", *more)
    else:
        proposal = choose(*given, command.strategies, *more)
    context.memory.proposal = proposal
    ratio = imbalance(slot_loads(leaf_loads(version, load.counts, statistics), version.mapping, version.slots))
    view = None if proposal is None else ProposalView.of(proposal.to_record(), explanation(proposal))
    return Proposed(now(), view, ratio)


def _publish(context: ReconcileContext, store: RoutingStore, command: Publish) -> Input:
    now, proposal = context.environment.now, context.memory.proposal
    if proposal is None or proposal.id != command.proposal:
        return Refused(now(), "forgotten", "the proposed version is no longer available")
    store.publish(proposal.version, proposal.base, proposal.id, proposal.to_record())
    return Published(now(), proposal.version.number)
