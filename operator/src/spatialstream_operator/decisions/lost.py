"""Detection of pods on lost nodes. Nothing terminates such pods, and they block their names for their successors.

The state of a node is inferred from its pods, because the operator has no permission to read nodes. When a node has
sent no heartbeat for some time (40 or 50 s, depending on the cluster's settings), the node controller marks all its
pods *not ready* and, after their toleration time, deletes them. The node's kubelet would have to confirm the deletion;
while it is unreachable the pod object remains, for days if necessary. So a pod that is being deleted is lost

- if the node controller has marked it: that sets the condition ``Ready`` to False without a reason, and leaves
  ``ContainersReady`` as the kubelet had set it, whereas a kubelet changes both and gives a reason;
- if it still exists long after its grace period. (The node controller does not mark a pod that was not ready when its
  node failed.)

Whether its processes have ended cannot be known: the node may only be unreachable. If they continue, answers are still
correct (:mod:`spatialstream.stream.leadership`), so a successor need not wait for them. It waits for the *lease* if the
node can reach ZooKeeper.

Source: kubernetes/pkg/controller/nodelifecycle, and ``MarkPodsNotReady`` in kubernetes/pkg/controller/util/node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.starting import named

__all__ = ["OVERDUE", "is_lost", "is_out_of_reach"]

OVERDUE = 60_000
"""ms after the end of its grace period from which a pod is assumed not to terminate."""


def is_out_of_reach(pod: Mapping[str, Any]) -> bool:
    """Whether the node controller has marked a pod *not ready* because its node sends no heartbeats."""
    conditions = records.part(pod, "status").get("conditions")
    ready, containers = (named(conditions, "type", name) for name in ("Ready", "ContainersReady"))
    return ready.get("status") == "False" and not ready.get("reason") and containers.get("status") == "True"


def is_lost(pod: Mapping[str, Any], now: int) -> bool:
    """Whether a pod is being deleted, and its kubelet will not confirm that.

    Args:
        pod: the Pod, as the API server returns it.
        now: the time, in ms since 1970-01-01 UTC.
    """
    leaving = records.moment(records.part(pod, "metadata"), "deletionTimestamp")
    return leaving is not None and (is_out_of_reach(pod) or now - leaving > OVERDUE)
