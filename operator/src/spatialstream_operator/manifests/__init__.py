"""The Kubernetes objects of a stream, as plain dictionaries that are built from its names and spec only.

Nothing here accesses a cluster. The same spec yields the same objects, so that callers can detect changes.
"""

from spatialstream_operator.manifests.access import executor_account, role, role_binding, service_account
from spatialstream_operator.manifests.config import config_map
from spatialstream_operator.manifests.metadata import Manifest, owner_reference
from spatialstream_operator.manifests.network import network_policy, pod_monitor, service
from spatialstream_operator.manifests.pods import driver_pod, executor_template, executor_trial, template_hash
from spatialstream_operator.manifests.trial import TRIAL_CONTAINER, image_key, trial_pod

__all__ = [
    "TRIAL_CONTAINER",
    "Manifest",
    "config_map",
    "driver_pod",
    "executor_account",
    "executor_template",
    "executor_trial",
    "image_key",
    "network_policy",
    "owner_reference",
    "pod_monitor",
    "role",
    "role_binding",
    "service",
    "service_account",
    "template_hash",
    "trial_pod",
]
