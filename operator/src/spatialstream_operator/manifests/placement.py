"""On which nodes a stream's pods are: spread over several, and soon on another one when theirs is lost.

Both are defaults. Where a pod template says itself for how long a pod stays on a lost node, or how pods are spread,
that holds. Source: the admission plugin DefaultTolerationSeconds of Kubernetes, which does the same with 300 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.manifests.metadata import Manifest

__all__ = ["SECONDS_WITHOUT_NODE", "placed"]

SECONDS_WITHOUT_NODE = 20
"""For so long a pod stays on a node that is known to be out of reach, which takes the cluster 40 s or so to know.

Soon enough for a stream, and long enough for a kubelet that is started again: that costs a node no pods.
"""

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EFFECT = "NoExecute"


def placed(pod: Manifest, selector: Mapping[str, Any]) -> Manifest:
    """The pod, with what it says of nodes.

    Args:
        pod: with what its template has added.
        selector: of the pods among which it is spread, as a LabelSelector.
    """
    spec = pod["spec"]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": dict(selector),
    }
    given = spec.get("tolerations")
    known = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    missing = [taint for taint in _TAINTS if not any(_speaks_of(each, taint) for each in known)]
    return {
        **pod,
        "spec": {
            "topologySpreadConstraints": [spread],
            **spec,
            "tolerations": [*known, *(_toleration(taint) for taint in missing)],
        },
    }


def _speaks_of(toleration: Mapping[str, Any], taint: str) -> bool:
    """Whether a toleration says what becomes of a pod with such a taint; one without a key speaks of all."""
    return toleration.get("key") in (taint, "", None) and toleration.get("effect") in (_EFFECT, "", None)


def _toleration(taint: str) -> Manifest:
    return {"key": taint, "operator": "Exists", "effect": _EFFECT, "tolerationSeconds": SECONDS_WITHOUT_NODE}
