"""Validates the pods of the spec before any running pod is replaced.

The custom resource's schema cannot describe all fields of a pod. So each pod is created as a dry run: the API server
rejects an unknown field (``nodeselector``) or an invalid value with its own message. Executors are validated too,
because Spark would silently drop unknown fields of their template.
"""

from __future__ import annotations

import hashlib
import json

from spatialstream.model.errors import SettingError
from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import ReconcileContext

__all__ = ["check_pods"]

_WRONG = frozenset({400, 422})
"""Statuses for an invalid pod. Other rejections, for example by a quota, may end without a change of the pod."""


async def check_pods(context: ReconcileContext) -> None:
    """Check the pods of a spec once.

    Raises:
        SettingError: one of them is refused; names the part of the spec.
    """
    if context.problem is not None:
        return
    pods = _pods(context)
    digest = hashlib.sha256(json.dumps(pods, sort_keys=True).encode()).hexdigest()
    if context.memory.checked != digest:
        context.memory.wrong = await _wrong(context, pods)
        context.memory.checked = digest
    if context.memory.wrong is not None:
        raise context.memory.wrong


async def _wrong(context: ReconcileContext, pods: dict[str, Object]) -> SettingError | None:
    for field, pod in pods.items():
        try:
            await context.environment.cluster.check(pod)
        except ApiError as error:
            if error.code in _WRONG:
                return SettingError(field, f"makes a pod that the API server refuses: {error}")
    return None


def _pods(context: ReconcileContext) -> dict[str, Object]:
    """The pods by the part of the spec that they are built from, under unused names."""
    spec, names, uid = context.spec, context.names, context.body["metadata"]["uid"]
    pods = {
        "spec.router": manifests.driver_pod("router", spec, names, uid),
        "spec.workers.driver": manifests.driver_pod("worker", spec, names, uid),
        "spec.workers": _executor(context, "worker"),
    }
    if spec.router.executors is not None:
        pods["spec.router.executor"] = _executor(context, "router")
    return {
        field: {**pod, "metadata": {**pod["metadata"], "name": f"{names.name}-check", "namespace": names.namespace}}
        for field, pod in pods.items()
    }


def _executor(context: ReconcileContext, job: str) -> Object:
    """An executor's pod, as Spark completes its template."""
    pod = manifests.executor_template(context.spec, context.names, job)
    first, *others = pod["spec"]["containers"]
    containers = [{**first, "image": context.spec.image}, *others]
    return {
        **pod,
        "spec": {**pod["spec"], "serviceAccountName": context.names.executor_account, "containers": containers},
    }
