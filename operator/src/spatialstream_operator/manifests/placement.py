"""Placement of a stream's pods on nodes: they are spread, and soon evicted from a lost node.

Both are defaults: a pod template may set its own tolerations and topology spread constraints. Source: the admission
plugin DefaultTolerationSeconds of Kubernetes, which does the same with 300 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.manifests.metadata import Manifest

__all__ = ["SECONDS_WITHOUT_NODE", "placed"]

SECONDS_WITHOUT_NODE = 20
"""How long a pod stays on a node after it was marked unreachable, which itself takes the cluster about 40 s.

Short enough for a stream, and long enough that restarting a kubelet evicts no pods.
"""

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EFFECT = "NoExecute"


def placed(pod: Manifest, selector: Mapping[str, Any]) -> Manifest:
    """The pod, with default tolerations and topology spread constraints.

    Args:
        pod: the pod, including the additions of its template.
        selector: LabelSelector of the pods among which it is spread.
    """
    spec = pod["spec"]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": dict(selector),
    }
    given = spec.get("tolerations")
    tolerations = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    untolerated = [taint for taint in _TAINTS if not any(_speaks_of(each, taint) for each in tolerations)]
    return {
        **pod,
        "spec": {
            "topologySpreadConstraints": [spread],
            **spec,
            "tolerations": [*tolerations, *(_toleration(taint) for taint in untolerated)],
        },
    }


def _speaks_of(toleration: Mapping[str, Any], taint: str) -> bool:
    """Whether a toleration applies to a taint; one without a key applies to all."""
    return toleration.get("key") in (taint, "", None) and toleration.get("effect") in (_EFFECT, "", None)


def _toleration(taint: str) -> Manifest:
    return {"key": taint, "operator": "Exists", "effect": _EFFECT, "tolerationSeconds": SECONDS_WITHOUT_NODE}
