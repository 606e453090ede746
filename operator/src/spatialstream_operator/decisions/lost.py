"""Pods that nobody will end, because their node is lost: they hold their names, and the place of their successors.

What is known of a node is read from its pods: the operator may not look at nodes. When a node has been silent for some
time (40 or 50 s, by the cluster's settings) the node controller says *not ready* in the name of all its pods, and
after the time that they tolerate it, it asks for their end. The node's kubelet would confirm that; while it is silent
the pod stays, for days if need be. So a pod is lost

- if it is to end, and the node controller has spoken for it: it sets the condition ``Ready`` to False, and gives no
  reason, while ``ContainersReady`` stays as the kubelet has left it. A kubelet changes both, and says why.
- if it is to end, and is still there long after the time that it had for that. A pod that was not ready when its node
  went is not spoken for.

Whether its processes have ended cannot be known: the node may only be out of reach. That they go on does no harm to
answers (:mod:`spatialstream.stream.leadership`), so a successor need not wait for them. It waits for the *lease* where
the node reaches ZooKeeper.

Source: kubernetes/pkg/controller/nodelifecycle, and ``MarkPodsNotReady`` in kubernetes/pkg/controller/util/node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.starting import named

__all__ = ["OVERDUE", "is_lost", "is_out_of_reach"]

OVERDUE = 60_000
"""ms after the end of its grace period from which a pod counts as one that will not end."""


def is_out_of_reach(pod: Mapping[str, Any]) -> bool:
    """Whether the node of a pod has been silent for so long that the node controller speaks for it."""
    conditions = records.part(pod, "status").get("conditions")
    ready, containers = (named(conditions, "type", name) for name in ("Ready", "ContainersReady"))
    return ready.get("status") == "False" and not ready.get("reason") and containers.get("status") == "True"


def is_lost(pod: Mapping[str, Any], now: int) -> bool:
    """Whether a pod is to end, and nobody will say that it has.

    Args:
        pod: the Pod, as the API server gives it.
        now: the time, in ms since 1970-01-01 UTC.
    """
    leaving = records.moment(records.part(pod, "metadata"), "deletionTimestamp")
    return leaving is not None and (is_out_of_reach(pod) or now - leaving > OVERDUE)
