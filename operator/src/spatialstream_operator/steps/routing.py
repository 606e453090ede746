"""What the routing store says: the active version, the pending one, and which Kafka; and what it is told of balance."""

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
"""ms after which it is looked at anew which Kafka the stream uses."""


async def read_routing(look: ReconcileContext) -> None:
    """Connect to ZooKeeper, and read the stream's state. That it cannot be read is no reason to stop anything."""
    zookeeper = look.spec.zookeeper
    try:
        stores, names = look.environment.stores, look.names
        servers = servers_from_outside(zookeeper.servers, names.namespace)
        secrets = zookeeper.credentials, zookeeper.tls
        look.store = store = await stores.of(names.stream, servers, names.namespace, *secrets)
        look.routing = await asyncio.to_thread(store.state)
        await _keep_balance(look, store)
        await _keep_suspended(look, store)
        await _hear(look, store)
        await _know_topics(look, store, look.routing.incarnation)
    except SettingError as error:
        look.problem = Failure("SettingsRefused", str(error), "slow")
    except Unavailable:
        return
    except StateError:
        # a stream that has had a router before has lost what was there, which that router says
        look.uncreated = look.store is not None and not look.part("routing").get("version")


async def _keep_balance(look: ReconcileContext, store: RoutingStore) -> None:
    """λ and what belongs to it, for who rebalances the stream by hand."""
    wanted = look.spec.index.balance
    if look.memory.balance == wanted:
        return
    if await asyncio.to_thread(read_balance, store) != wanted:
        await asyncio.to_thread(save_balance, store, wanted)
    look.memory.balance = wanted


async def _keep_suspended(look: ReconcileContext, store: RoutingStore) -> None:
    """Whether the stream is suspended, for who asks it and gets no answer."""
    wanted = look.spec.suspend
    if look.memory.suspended == wanted:
        return
    try:
        known = await asyncio.to_thread(read_suspended, store)
    except StateError:  # what is damaged says nothing
        known = None
    if known != wanted:
        await asyncio.to_thread(save_suspended, store, wanted)
    look.memory.suspended = wanted


async def _hear(look: ReconcileContext, store: RoutingStore) -> None:
    """What drivers that run say about why they cannot go on: their pods only say that they are not ready."""
    for name, job in look.jobs.items():
        if job.state not in ("starting", "running"):
            continue
        try:
            said = await asyncio.to_thread(read_trouble, store, name)
        except StateError:  # what is damaged says nothing
            continue
        if said.text:
            before = job.started is not None and said.at < job.started
            if not (before and job.state == "running"):
                look.jobs[name] = replace(job, trouble=said.text, since=said.since, before=before)


async def _know_topics(look: ReconcileContext, store: RoutingStore, incarnation: str) -> None:
    """Remember what has to be known when the stream goes: which Kafka it uses, and which incarnation of its name it is.

    A router that is ready has made sure that the routing store is of its own incarnation.
    """
    router, at = look.jobs.get("router"), look.memory.used
    if router is None or not router.is_ready or (at is not None and look.now - at < _AGAIN):
        return
    used = await asyncio.to_thread(read_topics, store)
    await look.remember(
        routing={"incarnation": incarnation}, **({} if used is None else {"kafka": {"cluster": used.cluster}})
    )
    look.memory.used = look.now
