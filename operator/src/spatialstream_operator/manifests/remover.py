"""The pod that removes what a stream has left behind: the router's, with another command, and without sidecars.

Sidecars that Kubernetes knows as such (init containers with ``restartPolicy: Always``) stay: they end with the pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from spatialstream_operator.commands import checkpoint_place
from spatialstream_operator.manifests.metadata import Manifest
from spatialstream_operator.manifests.pods import driver_pod
from spatialstream_operator.names import COMPONENT_LABEL, StreamNames
from spatialstream_operator.spec import StreamSpec

__all__ = ["remover_pod"]

_FOR_A_SERVICE = ("startupProbe", "readinessProbe", "livenessProbe", "ports")


def remover_pod(
    spec: StreamSpec, names: StreamNames, uid: str, spared: Sequence[str] = (), life: str | None = None
) -> Manifest:
    """The pod; where the stream is, it knows from the environment, as the router does.

    Args:
        spec: of the stream.
        names: of the stream.
        uid: of the SpatialStream, which owns the pod.
        spared: topics that stay, whoever has made them.
        life: id of the stream's life, if it is known.
    """
    pod = driver_pod("router", spec, names, uid)
    container = pod["spec"]["containers"][0]
    command = ["spatialstream", "remove", "--yes", "--checkpoint", checkpoint_place(spec)]
    command += [] if life is None else ["--incarnation", life]
    command += [part for topic in spared for part in ("--spare", topic)]
    command += ["--topics", "all" if spec.deletion.topics else "internal"]
    changed = {key: value for key, value in container.items() if key not in _FOR_A_SERVICE} | {"args": command}
    labels = {**pod["metadata"]["labels"], COMPONENT_LABEL: "remover"}
    metadata = {**pod["metadata"], "name": names.remover, "labels": labels, "annotations": {}}
    # it has no executors; and a container beside it that never ends would keep its pod from having ended
    changes = {"automountServiceAccountToken": False, "containers": [changed]}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], **changes}}
