"""The objects of a stream besides pods: accounts, roles, configuration, services, policy, and a monitor if enabled."""

from __future__ import annotations

import hashlib
import json

from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.steps.ownership import hindrance

__all__ = ["apply_dependents"]

_AGAIN = 300_000
"""ms after which everything is applied again, in case somebody has changed it."""


async def apply_dependents(context: ReconcileContext) -> None:
    """Apply all objects if they have changed, or were last applied too long ago."""
    dependents = _wanted(context)
    digest = hashlib.sha256(json.dumps(dependents, sort_keys=True).encode()).hexdigest()
    memory = context.memory
    if memory.applied == digest and context.now - memory.applied_at < _AGAIN:
        return
    for each in dependents:
        context.problem = await _apply(context, each)
        if context.problem is not None:
            return
    memory.applied, memory.applied_at = digest, context.now


async def _apply(context: ReconcileContext, wanted: manifests.Manifest) -> Failure | None:
    """Apply one object; return why that cannot be done, None on success."""
    cluster, kind, name = context.environment.cluster, wanted["kind"], wanted["metadata"]["name"]
    problem = hindrance(context.body, await cluster.get(kind, name, context.names.namespace), kind, name)
    if problem is not None:
        return problem
    try:
        await cluster.apply(wanted)
    except ApiError as error:
        if not error.is_hindered:
            raise
        return Failure("Refused", f"The {kind} {name} is rejected: {error}", "slow")
    return None


def _wanted(context: ReconcileContext) -> list[manifests.Manifest]:
    names, uid = context.names, context.body["metadata"]["uid"]
    dependents = [
        manifests.service_account(names, uid, context.spec.accounts.driver),
        manifests.executor_account(names, uid, context.spec.accounts.executor),
        manifests.role(names, uid),
        manifests.role_binding(names, uid),
        manifests.config_map(context.spec, names, uid),
        manifests.service(names, "router", uid),
        manifests.service(names, "worker", uid),
    ]
    config = context.environment.config
    if config.network_policies:
        dependents.append(manifests.network_policy(names, uid, config.metrics_from, config.clients_from))
    if config.monitors:
        dependents.append(manifests.pod_monitor(names, uid, config.monitor_labels))
    return dependents
