"""Cleanup of a deleted stream: its jobs are stopped, then a pod removes their external state.

Topics, routing state and checkpoint are removed by a pod with the stream's image, volumes and secrets, which runs
``spatialstream remove``; the operator itself has no access to topics and volumes. The stream's Kubernetes objects are
deleted with the resource that owns them. Cleanup always terminates: if the pod fails several times, or cannot be
created at all, that is reported, and the remaining state is kept. Only the termination of the drivers is awaited
without a limit, because a driver on an unreachable node may still be writing. Then a person has to decide, by an
annotation, that nothing is removed.

In a namespace that is being deleted no pod can be created, and the operator may lose its permissions at any moment.
There it removes only the routing state, which it can reach itself, and logs what remains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from spatialstream.model.addresses import servers_from_outside
from spatialstream.model.errors import SettingError, SpatialStreamError, StateError, Unavailable
from spatialstream.store.base import RoutingStore
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import Job, Summary, conditions, phase
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.decisions.restarts import ran, report
from spatialstream_operator.environment import Environment
from spatialstream_operator.manifests.remover import remover_pod
from spatialstream_operator.names import INTERNAL_KINDS, KIND, TOPIC_KINDS, StreamNames
from spatialstream_operator.permissions import narrowed
from spatialstream_operator.spec import Bucket, StreamSpec
from spatialstream_operator.steps.ownership import hindrance
from spatialstream_operator.steps.permitting import check_secrets
from spatialstream_operator.steps.topics import topics_of_others

__all__ = ["SKIP_ANNOTATION", "remove"]

_log = logging.getLogger(__name__)

SKIP_ANNOTATION = "spatialstream.dev/skip-cleanup"
"""Annotation of a SpatialStream to delete only its Kubernetes objects, without waiting for anything."""

_TRIES = 3
_PATIENCE = 180_000
"""Timeout of one attempt, in ms."""
_UNSEEN = 10_000
"""ms that drivers get to terminate if they can no longer be observed."""


async def remove(environment: Environment, body: Object) -> bool:
    """Continue the removal of a stream; True when there is nothing left to do.

    Args:
        environment: shared clients and settings.
        body: the resource, which is being deleted.
    """
    metadata = body["metadata"]
    names = StreamNames(metadata["namespace"], metadata["name"])
    if body.get("status", {}).get("phase") != "Deleting":
        await _announce(environment, names, body)
    skipped = (metadata.get("annotations") or {}).get(SKIP_ANNOTATION) == "true"
    going = await environment.cluster.is_terminating(names.namespace)
    try:
        ended = await _ended(environment, names, body)
    except ApiError as error:
        if not error.is_forbidden or not (going or skipped):
            raise
        ended = _long_enough(environment, body)
    if not skipped and not (ended and await (_reached if going else _cleaned)(environment, names, body)):
        return False
    await environment.stores.close(names.stream)
    environment.metrics.end(names.namespace, names.name)
    return True


async def _announce(environment: Environment, names: StreamNames, body: Object) -> None:
    """Set the status to Deleting."""
    jobs = Job("router", "terminating"), Job("worker", "terminating")
    unknown = Verdict("Unknown", "NotRunning", "The stream is being deleted.")
    generation = int(body["metadata"].get("generation", 0))
    summary = Summary(environment.now(), generation, *jobs, unknown, Phase.OFF, {}, deleting=True)
    told = conditions(summary, body.get("status", {}).get("conditions", []))
    change = {"phase": phase(summary), "conditions": told}
    await environment.cluster.patch_status(KIND, names.name, names.namespace, change)


def _long_enough(environment: Environment, body: Object) -> bool:
    """Whether drivers that can no longer be observed have had time to terminate."""
    since = records.moment(body["metadata"], "deletionTimestamp")
    return since is None or environment.now() - since >= _UNSEEN


async def _reached(environment: Environment, names: StreamNames, body: Object) -> bool:
    """In a namespace that is being deleted: remove the routing state, log what remains, and finish."""
    spec = _to_be_cleaned(environment, body)
    if spec is None:
        return True
    routing = "The routing state in ZooKeeper is removed"
    try:
        store = await _store(environment, names, spec)
        await asyncio.to_thread(_erase, store, names.stream, _incarnation(body))
    except SpatialStreamError as error:
        routing = f"The routing state remains in ZooKeeper ({error})"
    kinds = (*INTERNAL_KINDS, *(TOPIC_KINDS if spec.deletion.topics else ()))
    topics = names.topics(spec.kafka.topics)
    state = "The checkpoint directory remains if the claim's volume does"
    if isinstance(spec.checkpoint, Bucket):
        state = f"The content of {spec.checkpoint.url} remains"
    _log.warning(
        "%s/%s: no pod can remove the stream's external state, because its namespace is being deleted. %s. "
        "These topics remain in Kafka: %s. %s.",
        *(names.namespace, names.name, routing, ", ".join(topics[kind] for kind in kinds), state),
    )
    return True


def _erase(store: RoutingStore, stream: str, incarnation: str | None) -> None:
    """Remove the routing state of a stream, unless it belongs to another incarnation of its name.

    Another cluster may have such a stream.
    """
    if incarnation is not None and store.versions() and (theirs := store.state().incarnation) != incarnation:
        raise StateError(
            f"it belongs to another incarnation of {stream}: {theirs or 'without an id'}, not {incarnation}"
        )
    store.erase()


async def _store(environment: Environment, names: StreamNames, spec: StreamSpec) -> RoutingStore:
    """The routing store; an open connection is reused, because the Secret with the credentials may be gone."""
    known = environment.stores.known(names.stream)
    if known is not None:
        return known
    servers = servers_from_outside(spec.zookeeper.servers, names.namespace)
    secrets = spec.zookeeper.credentials, spec.zookeeper.tls
    return await environment.stores.of(names.stream, servers, names.namespace, *secrets)


def _to_be_cleaned(environment: Environment, body: Object) -> StreamSpec | None:
    """The spec; None if it is invalid, if the router was never started, or if the state is to be kept."""
    try:
        spec = StreamSpec.parse(body["spec"], environment.defaults)
    except SettingError:
        return None
    begun = body.get("status", {}).get("router", {}).get("templateHash")
    if not begun or not spec.deletion.state:
        return None
    return narrowed(spec, environment.defaults.image, environment.permissions)


async def _ended(environment: Environment, names: StreamNames, body: Object) -> bool:
    """Delete the drivers' pods; True when they are gone."""
    all_gone = True
    for name in (names.router, names.worker):
        pod = await environment.cluster.get("Pod", name, names.namespace)
        if pod is not None and hindrance(body, pod, "Pod", name) is None:
            all_gone = False
            if name == names.router:
                await _remember(environment, names, body, pod)
            if "deletionTimestamp" not in pod["metadata"]:
                await environment.cluster.delete("Pod", name, names.namespace)
    return all_gone


async def _remember(environment: Environment, names: StreamNames, body: Object, pod: Object) -> None:
    """Store whether the router has ever run, because that is unknown once its pod is gone."""
    before = body.get("status", {}).get("router", {})
    after = {"ran": ran(before, report(pod, environment.now())), "podUid": ""}
    if before.get("templateHash") and before != {**before, **after}:
        await environment.cluster.patch_status(KIND, names.name, names.namespace, {"router": after})


async def _nothing_made(environment: Environment, names: StreamNames, spec: StreamSpec, body: Object) -> bool:
    """Whether the router has never run, and no earlier stream of this name is known to have left state behind.

    The store is read without credentials, because these may be missing; if reading requires credentials, there are
    versions. A store that is unreachable, or whose certificates are missing, does not block the deletion: that may have
    been the problem from the beginning, and the state of an earlier stream was meant to be kept.
    """
    router = body.get("status", {}).get("router", {})
    if router.get("ran") != "no" or router.get("podUid"):
        return False
    servers = servers_from_outside(spec.zookeeper.servers, names.namespace)
    try:
        store = await environment.stores.of(names.stream, servers, names.namespace, None, spec.zookeeper.tls)
    except SettingError:
        return True
    try:
        return not await asyncio.to_thread(store.versions)
    except Unavailable:
        return True
    except SpatialStreamError:
        return False


async def _cleaned(environment: Environment, names: StreamNames, body: Object) -> bool:
    """Run the cleanup pod; True when it has succeeded, is not needed, or has been given up."""
    status = body.get("status", {})
    spec = _to_be_cleaned(environment, body)
    if spec is None:
        return True
    failed = int(status.get("removal", {}).get("failures", 0))
    pod = await environment.cluster.get("Pod", names.remover, names.namespace)
    if pod is None and not failed and await _nothing_made(environment, names, spec, body):
        await emit(
            environment, body, Note("NothingToRemove", "the router has never run, so there is nothing to remove")
        )
        return True
    if pod is None:
        return failed >= _TRIES or await _begin(environment, names, spec, body)
    if pod["metadata"].get("deletionTimestamp") or hindrance(body, pod, "Pod", names.remover) is not None:
        return failed >= _TRIES or await _makes_room(environment, names, body, pod)
    ended = pod.get("status", {}).get("phase")
    if ended == "Succeeded":
        return True
    if ended == "Failed" or _is_overdue(pod, environment.now()):
        return await _again(environment, names, body, pod, failed + 1)
    return False


async def _begin(environment: Environment, names: StreamNames, spec: StreamSpec, body: Object) -> bool:
    """Create the cleanup pod; True if that is forbidden, as in a namespace that is being deleted."""
    uid, incarnation = body["metadata"]["uid"], _incarnation(body)
    try:
        await check_secrets(environment, names.namespace, spec)
        spared = await topics_of_others(environment, body)
        await environment.cluster.create(remover_pod(spec, names, uid, spared, incarnation))
    except (ApiError, SettingError) as error:
        if isinstance(error, ApiError) and not error.is_refusal:
            raise
        return await _give_up(environment, body, str(error))
    return False


def _incarnation(body: Object) -> str | None:
    """The id of the stream's incarnation; None if unknown."""
    incarnation = records.part(records.part(body, "status"), "routing").get("incarnation")
    return incarnation if isinstance(incarnation, str) else None


async def _makes_room(environment: Environment, names: StreamNames, body: Object, pod: Object) -> bool:
    """Delete the pod of an earlier attempt or stream; True if that takes too long, or the pod belongs to others."""
    problem = hindrance(body, pod, "Pod", names.remover)
    if problem is not None and problem.retry == "slow":
        return await _give_up(environment, body, problem.message)
    leaving = records.moment(pod["metadata"], "deletionTimestamp")
    if leaving is None:
        await environment.cluster.delete("Pod", names.remover, names.namespace)
    elif environment.now() - leaving > _PATIENCE:
        return await _give_up(environment, body, f"the pod {names.remover} does not terminate")
    return False


async def _give_up(environment: Environment, body: Object, why: str) -> bool:
    await emit(environment, body, Note("CleanupSkipped", f"cleanup is impossible: {why}", warning=True))
    return True


async def _again(environment: Environment, names: StreamNames, body: Object, pod: Object, failures: int) -> bool:
    """Record a failed attempt, and delete its pod; True if it was the last attempt."""
    failure = report(pod, environment.now()).failure
    text = "the pod did not complete in time" if failure is None else f"{failure.reason}: {failure.message}"
    last = failures >= _TRIES
    note = f"cleanup has failed {failures} times{' and is given up' if last else ''}: {text}"
    change = {"removal": {"failures": failures, "message": text}}
    await environment.cluster.patch_status(KIND, names.name, names.namespace, change)
    await environment.cluster.delete("Pod", pod["metadata"]["name"], names.namespace)
    await emit(environment, body, Note("CleanupFailed", note, warning=True))
    return last


def _is_overdue(pod: Mapping[str, Any], now: int) -> bool:
    begun = records.moment(pod["metadata"], "creationTimestamp")
    return begun is not None and now - begun > _PATIENCE
