"""The operator's own settings, which the chart passes as environment variables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spatialstream.model.errors import SettingError

__all__ = ["OperatorConfig"]

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """Settings of one installation.

    Attributes:
        namespaces: the namespaces whose streams are managed; empty: all namespaces of the cluster.
        image: default image of drivers and executors.
        image_pull_policy: default pull policy of that image.
        prometheus_url: default Prometheus server to query for load metrics; "": none.
        prometheus_access: directory with the credentials for that server, see
            :class:`~spatialstream_operator.prometheus.PrometheusAccess`; "": none.
        monitors: whether to create PodMonitors for the Prometheus operator.
        monitor_labels: labels of the PodMonitors, by which the Prometheus operator selects them.
        network_policies: whether to create a NetworkPolicy for each stream.
        metrics_from: peers that these policies allow to read metrics, as in a NetworkPolicy's ``from``; empty: any.
        clients_from: peers, besides the stream's own pods, that these policies allow to connect to them; empty: none.
        gateway_url: public URL of the gateway that serves all streams; "": there is none.
        gateway_service: URL at which the operator reaches the gateway to register queries; "": it cannot.
        gateway_token: file with the token that the operator sends to the gateway.
        gateway_authority: file with the CA certificates that verify the gateway; "": the system's.
        template_allow: parts of pod templates that streams may give beside what is harmless; ``*``: all.
        options_any: whether their options of Spark may be any.
        images: repositories of images that they may name beside that of ``image``.
        secrets: names of Secrets that they may use without a label that says so.
        pod: name of the operator's own pod, its identity as lease holder.
        namespace: the namespace that the operator runs in.
        log_level: one of debug, info, warning and error.
        log_format: ``text`` or ``json``.
        metrics_port: port of the operator's metrics.
        health_port: port of ``/healthz`` and ``/readyz``.
        interval: seconds between two reconciliations of a stream in steady state.
        lease: seconds without a renewal after which another operator takes over.
        executor_grace: seconds for which executors may be missing before the stream is Degraded. A node that a cluster
            autoscaler adds is usually ready within a few minutes.
    """

    namespaces: tuple[str, ...] = ()
    image: str = "spatialstream-spark"
    image_pull_policy: str = "IfNotPresent"
    prometheus_url: str = ""
    prometheus_access: str = ""
    monitors: bool = False
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    network_policies: bool = False
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    clients_from: tuple[Mapping[str, Any], ...] = ()
    gateway_url: str = ""
    gateway_service: str = ""
    gateway_token: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    gateway_authority: str = ""
    template_allow: frozenset[str] = frozenset()
    options_any: bool = False
    images: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    pod: str = "spatialstream-operator"
    namespace: str = "default"
    log_level: str = "info"
    log_format: str = "text"
    metrics_port: int = 8080
    health_port: int = 8081
    interval: float = 5.0
    lease: float = 30.0
    executor_grace: float = 300.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> OperatorConfig:
        """Read the settings from environment variables.

        Raises:
            SettingError: a variable has an invalid value; the error names it.
        """
        variables = {name: environment.get(f"SPATIALSTREAM_OPERATOR_{name.upper()}", "") for name in _VARIABLES}
        plain = {name: variables[name] for name in _PLAIN if variables[name]}
        return cls(
            **plain,
            namespaces=_names(variables["namespaces"]),
            template_allow=_parts("template_allow", variables["template_allow"]),
            options_any=_choice("options", variables["options"] or "plain", ("plain", "any")) == "any",
            images=_names(variables["images"]),
            secrets=_names(variables["secrets"]),
            monitors=_choice("monitors", variables["monitors"] or "false", ("true", "false")) == "true",
            monitor_labels=_labels("monitor_labels", variables["monitor_labels"]),
            network_policies=_choice("network_policies", variables["network_policies"] or "false", ("true", "false"))
            == "true",
            metrics_from=_peers("metrics_from", variables["metrics_from"] or "[]"),
            clients_from=_peers("clients_from", variables["clients_from"] or "[]"),
            log_level=_choice("log_level", variables["log_level"] or "info", _LEVELS),
            log_format=_choice("log_format", variables["log_format"] or "text", _FORMATS),
            metrics_port=_port("metrics_port", variables["metrics_port"] or "8080"),
            health_port=_port("health_port", variables["health_port"] or "8081"),
            interval=_seconds("interval", variables["interval"] or "5", 0.1),
            lease=_seconds("lease", variables["lease"] or "30", 1.0),
            executor_grace=_seconds("executor_grace", variables["executor_grace"] or "300", 1.0),
            pod=environment.get("POD_NAME", "spatialstream-operator"),
            namespace=environment.get("POD_NAMESPACE", "default"),
        )


_PLAIN = (
    "image",
    "image_pull_policy",
    "prometheus_url",
    "prometheus_access",
    "gateway_url",
    "gateway_service",
    "gateway_token",
    "gateway_authority",
)
_VARIABLES = (
    *_PLAIN,
    "namespaces",
    "template_allow",
    "options",
    "images",
    "secrets",
    "monitors",
    "monitor_labels",
    "network_policies",
    "metrics_from",
    "clients_from",
    "log_level",
    "log_format",
    "metrics_port",
    "health_port",
    "interval",
    "lease",
    "executor_grace",
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parts(name: str, text: str) -> frozenset[str]:
    parts = frozenset(_names(text))
    for part in sorted(parts):
        if part != "*" and not re.fullmatch(r"[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)?", part):
            problem = (
                f"{part!r} is not a part of a pod template; give a field of a pod, volumes.KIND or containers.FIELD"
            )
            raise SettingError(_variable(name), problem)
    return parts


def _variable(name: str) -> str:
    return f"SPATIALSTREAM_OPERATOR_{name.upper()}"


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise SettingError(_variable(name), f"{text!r} is not one of {', '.join(choices)}")
    return text.lower()


def _labels(name: str, text: str) -> dict[str, str]:
    labels = {}
    for part in filter(None, text.split(",")):
        label, equals, value = part.partition("=")
        if not equals or not label.strip():
            raise SettingError(_variable(name), f"{part!r} is not LABEL=VALUE; separate labels by commas")
        labels[label.strip()] = value.strip()
    return labels


def _peers(name: str, text: str) -> tuple[Mapping[str, Any], ...]:
    try:
        peers = json.loads(text)
    except ValueError:
        peers = None
    if not isinstance(peers, list) or not all(isinstance(each, dict) for each in peers):
        raise SettingError(_variable(name), f"{text!r} is not a list of peers; give a JSON list as in a NetworkPolicy")
    return tuple(peers)


def _port(name: str, text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise SettingError(_variable(name), f"{text!r} is not a port; give 1 to 65535")
    return int(text)


def _seconds(name: str, text: str, least: float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not least <= seconds <= 3600.0:
        raise SettingError(_variable(name), f"{text!r} is not a number of seconds; give {least:g} to 3600")
    return seconds
