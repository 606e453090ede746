"""Reads the routing store (active and pending version, Kafka cluster), and writes the balance settings to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from spatialstream.model.addresses import servers_from_outside
from spatialstream.model.errors import SettingError, StateError, Unavailable
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import (
    read_balance,
    read_suspended,
    read_topics,
    read_trouble,
    save_balance,
    save_suspended,
)
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.restarts import Failure

__all__ = ["read_routing"]

_AGAIN = 60_000
"""ms after which the Kafka cluster of the stream is read again."""


async def read_routing(context: ReconcileContext) -> None:
    """Connect to ZooKeeper, and read the stream's state. The other steps continue if it is unavailable."""
    zookeeper = context.spec.zookeeper
    try:
        stores, names = context.environment.stores, context.names
        servers = servers_from_outside(zookeeper.servers, names.namespace)
        secrets = zookeeper.credentials, zookeeper.tls
        context.store = store = await stores.of(names.stream, servers, names.namespace, *secrets)
        context.routing = await asyncio.to_thread(store.state)
        await _keep_balance(context, store)
        await _keep_suspended(context, store)
        await _hear(context, store)
        await _know_topics(context, store, context.routing.incarnation)
    except SettingError as error:
        context.problem = Failure("SettingsRefused", str(error), "slow")
    except Unavailable:
        return
    except StateError:
        # if the stream has had a version before, its state was lost, which its router reports
        context.uncreated = context.store is not None and not context.part("routing").get("version")


async def _keep_balance(context: ReconcileContext, store: RoutingStore) -> None:
    """Write the balance settings (λ etc.) to the store, for rebalancing by hand."""
    balance = context.spec.index.balance
    if context.memory.balance == balance:
        return
    if await asyncio.to_thread(read_balance, store) != balance:
        await asyncio.to_thread(save_balance, store, balance)
    context.memory.balance = balance


async def _keep_suspended(context: ReconcileContext, store: RoutingStore) -> None:
    """Store whether the stream is suspended, for query clients that get no answer."""
    suspend = context.spec.suspend
    if context.memory.suspended == suspend:
        return
    try:
        known = await asyncio.to_thread(read_suspended, store)
    except StateError:  # what is damaged says nothing
        known = None
    if known != suspend:
        await asyncio.to_thread(save_suspended, store, suspend)
    context.memory.suspended = suspend


async def _hear(context: ReconcileContext, store: RoutingStore) -> None:
    """What drivers that run say about why they cannot continue: their pods only say that they are not ready."""
    for name, job in context.jobs.items():
        if job.state not in ("starting", "running"):
            continue
        try:
            trouble = await asyncio.to_thread(read_trouble, store, name)
        except StateError:  # what is damaged says nothing
            continue
        if trouble.text:
            before = job.started is not None and trouble.at < job.started
            if not (before and job.state == "running"):
                context.jobs[name] = replace(job, trouble=trouble.text, since=trouble.since, before=before)


async def _know_topics(context: ReconcileContext, store: RoutingStore, incarnation: str) -> None:
    """Store what is needed when the stream is deleted: its Kafka cluster and the id of its incarnation.

    A ready router has verified that the routing store belongs to its own incarnation.
    """
    router, at = context.jobs.get("router"), context.memory.used
    if router is None or not router.is_ready or (at is not None and context.now - at < _AGAIN):
        return
    used = await asyncio.to_thread(read_topics, store)
    await context.remember(
        routing={"incarnation": incarnation}, **({} if used is None else {"kafka": {"cluster": used.cluster}})
    )
    context.memory.used = context.now
