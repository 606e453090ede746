"""What a stream is in Kubernetes: its objects as plain dictionaries, made from names and spec alone.

Nothing here talks to a cluster. The same spec gives the same objects, so whoever applies them can compare.
"""

from spatialstream_operator.manifests.access import executor_account, role, role_binding, service_account
from spatialstream_operator.manifests.config import config_map
from spatialstream_operator.manifests.metadata import Manifest, owner_reference
from spatialstream_operator.manifests.network import network_policy, pod_monitor, service
from spatialstream_operator.manifests.pods import (
    executor_template,
    executor_trial,
    router_pod,
    template_hash,
    worker_pod,
)

__all__ = [
    "Manifest",
    "config_map",
    "executor_account",
    "executor_template",
    "executor_trial",
    "network_policy",
    "owner_reference",
    "pod_monitor",
    "role",
    "role_binding",
    "router_pod",
    "service",
    "service_account",
    "template_hash",
    "worker_pod",
]
