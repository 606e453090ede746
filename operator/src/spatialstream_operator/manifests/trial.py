"""The pod that tries an image: where the router would be, with its Secrets for pulling, and nothing to do but to begin.

It is small, has no volume and no token, and what it runs ends at once: ``spatialstream --version``.
"""

from __future__ import annotations

import hashlib
import json

from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.manifests.pods import driver_pod
from spatialstream_operator.names import HASH_ANNOTATION, StreamNames
from spatialstream_operator.spec import StreamSpec

__all__ = ["TRIAL_CONTAINER", "image_key", "trial_pod"]

TRIAL_CONTAINER = "image"

_RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
_PLACES = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName", "securityContext")
"""Fields of the router's pod that determine its nodes and its identity."""


def image_key(spec: StreamSpec) -> str:
    """A key that differs between specs whose pods pull their image differently."""
    parts = [spec.image, spec.image_pull_policy, *spec.image_pull_secrets]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def trial_pod(spec: StreamSpec, names: StreamNames, uid: str) -> Manifest:
    """The pod.

    Args:
        spec: of the stream, with the image that is to be tried.
        names: of the stream.
        uid: of the SpatialStream, which owns the pod.
    """
    router = driver_pod("router", spec, names, uid)["spec"]
    driver = router["containers"][0]
    container = {
        "name": TRIAL_CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["spatialstream", "--version"],
        "resources": _RESOURCES,
        "securityContext": driver["securityContext"],
        "env": [{"name": "HOME", "value": "/"}],
        "workingDir": "/",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    about = metadata(names, names.trial, uid, "image")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**about, "annotations": {HASH_ANNOTATION: image_key(spec)}},
        "spec": {
            **{name: router[name] for name in _PLACES if name in router},
            "serviceAccountName": names.executor_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
