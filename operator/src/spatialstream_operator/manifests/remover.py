"""The pod that removes a stream's external state: the router's pod with another command, and without sidecars.

Native sidecars (init containers with ``restartPolicy: Always``) are kept, because they terminate with the pod.
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
    spec: StreamSpec, names: StreamNames, uid: str, spared: Sequence[str] = (), incarnation: str | None = None
) -> Manifest:
    """The pod; like the router, it gets the stream's addresses from the environment.

    Args:
        spec: spec of the stream.
        names: names of the stream.
        uid: uid of the SpatialStream, which owns the pod.
        spared: topics that are kept, even if the stream created them.
        incarnation: id of the incarnation of the stream, if known.
    """
    pod = driver_pod("router", spec, names, uid)
    container = pod["spec"]["containers"][0]
    command = ["spatialstream", "remove", "--yes", "--checkpoint", checkpoint_place(spec)]
    command += [] if incarnation is None else ["--incarnation", incarnation]
    command += [part for topic in spared for part in ("--spare", topic)]
    command += ["--topics", "all" if spec.deletion.topics else "internal"]
    changed = {key: value for key, value in container.items() if key not in _FOR_A_SERVICE} | {"args": command}
    labels = {**pod["metadata"]["labels"], COMPONENT_LABEL: "remover"}
    metadata = {**pod["metadata"], "name": names.remover, "labels": labels, "annotations": {}}
    # it has no executors; and a second container that never terminates would keep the pod from completing
    changes = {"automountServiceAccountToken": False, "containers": [changed]}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], **changes}}
