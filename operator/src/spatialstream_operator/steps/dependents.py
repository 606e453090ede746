"""What a stream has besides pods: accounts, rights, configuration, services, policy, and a monitor if it is read."""

from __future__ import annotations

import hashlib
import json

from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.steps.ownership import hindrance

__all__ = ["apply_belongings"]

_AGAIN = 300_000
"""ms after which everything is applied once more, in case somebody has changed it."""


async def apply_belongings(look: ReconcileContext) -> None:
    """Apply what has changed since the last time; all of it now and then."""
    wanted = _wanted(look)
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    memory = look.memory
    if memory.applied == digest and look.now - memory.applied_at < _AGAIN:
        return
    for each in wanted:
        look.problem = await _apply(look, each)
        if look.problem is not None:
            return
    memory.applied, memory.applied_at = digest, look.now


async def _apply(look: ReconcileContext, wanted: manifests.Manifest) -> Failure | None:
    """Apply one thing; why that cannot be done."""
    cluster, kind, name = look.environment.cluster, wanted["kind"], wanted["metadata"]["name"]
    problem = hindrance(look.body, await cluster.get(kind, name, look.names.namespace), kind, name)
    if problem is not None:
        return problem
    try:
        await cluster.apply(wanted)
    except ApiError as error:
        if not error.is_hindered:
            raise
        return Failure("Refused", f"The {kind} {name} is refused: {error}", "slow")
    return None


def _wanted(look: ReconcileContext) -> list[manifests.Manifest]:
    names, uid = look.names, look.body["metadata"]["uid"]
    wanted = [
        manifests.service_account(names, uid, look.spec.accounts.driver),
        manifests.executor_account(names, uid, look.spec.accounts.executor),
        manifests.role(names, uid),
        manifests.role_binding(names, uid),
        manifests.config_map(look.spec, names, uid),
        manifests.service(names, "router", uid),
        manifests.service(names, "worker", uid),
    ]
    config = look.environment.config
    if config.network_policies:
        wanted.append(manifests.network_policy(names, uid, config.metrics_from, config.clients_from))
    if config.monitors:
        wanted.append(manifests.pod_monitor(names, uid, config.monitor_labels))
    return wanted
