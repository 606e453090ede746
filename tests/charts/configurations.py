"""Values under which the charts are looked at: each has something switched on, off, or elsewhere."""

from typing import Any

from tests.charts.render import OPERATOR, SERVICES

EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example/geo/operator", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "streamImage": {"repository": "registry.example/geo/spark", "tag": "9.9.9"},
    "imagePullSecrets": [{"name": "pull"}],
    "watch": {"namespaces": ["geo", "weather"]},
    "prometheus": {"url": "http://prometheus.monitoring:9090"},
    "executors": {"graceSeconds": 600},
    "log": {"level": "debug", "format": "text"},
    "rbac": {"secrets": {"names": ["kafka", "zookeeper"]}},
    "serviceAccount": {"name": "operator", "annotations": {"example.com/role": "operator"}},
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/team": "geo"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "podDisruptionBudget": {"maxUnavailable": 0},
    "monitoring": {"prometheusOperator": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    "networkPolicy": {"restrictEgress": True, "metricsFrom": [{"namespaceSelector": {}}]},
}
NOTHING: dict[str, Any] = {
    "crds": {"install": False},
    "rbac": {"create": False, "aggregate": False},
    "serviceAccount": {"create": False},
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "alerts": {"enabled": False},
    "dashboards": {"enabled": False},
}
CONFIGURATIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "operator": (OPERATOR, {}),
    "operator-everything": (OPERATOR, EVERYTHING),
    "operator-nothing": (OPERATOR, NOTHING),
    "operator-of-all-namespaces": (OPERATOR, {"watch": {"all": True}}),
    "operator-of-namespaces": (OPERATOR, {"watch": {"namespaces": ["geo", "weather"]}}),
    "operator-without-secrets": (OPERATOR, {"rbac": {"secrets": {"get": False}}}),
    "operator-monitored": (OPERATOR, {"monitoring": {"prometheusOperator": True}}),
    "operator-isolated": (OPERATOR, {"networkPolicy": {"restrictEgress": True, "streamNamespaces": ["geo"]}}),
    "services": (SERVICES, {}),
    "services-on-a-folder": (SERVICES, {"storage": {"hostPath": "/var/tmp", "services": True}}),
    "services-on-a-class": (SERVICES, {"storage": {"storageClass": "nfs", "services": True}}),
    "services-alone": (SERVICES, {"storage": {"enabled": False}, "alerts": {"enabled": False}}),
    "services-elsewhere": (SERVICES, {"prometheus": {"namespaces": ["geo", "spatialstream-system"]}}),
}
