import json
import logging

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.__main__ import main
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.logs import set_up_logging

PREFIX = "SPATIALSTREAM_OPERATOR_"


def read(**variables):
    return OperatorConfig.from_environment({PREFIX + name: value for name, value in variables.items()})


def test_what_is_not_said_has_its_default():
    assert read() == OperatorConfig()
    assert read(NAMESPACES="", IMAGE="", MONITORS="", INTERVAL="") == OperatorConfig()


def test_what_is_said_counts():
    config = OperatorConfig.from_environment(
        {
            f"{PREFIX}NAMESPACES": "geo, weather ,",
            f"{PREFIX}IMAGE": "spark:1",
            f"{PREFIX}IMAGE_PULL_POLICY": "Always",
            f"{PREFIX}PROMETHEUS_URL": "http://prometheus:9090",
            f"{PREFIX}PROMETHEUS_ACCESS": "/access",
            f"{PREFIX}TEMPLATE_ALLOW": "nodeName, volumes.secret",
            f"{PREFIX}OPTIONS": "any",
            f"{PREFIX}IMAGES": "registry.example/geo/*",
            f"{PREFIX}SECRETS": "kafka,zk-*",
            f"{PREFIX}MONITORS": "True",
            f"{PREFIX}MONITOR_LABELS": "release=prometheus, team=,",
            f"{PREFIX}NETWORK_POLICIES": "true",
            f"{PREFIX}METRICS_FROM": '[{"podSelector": {}}]',
            f"{PREFIX}CLIENTS_FROM": '[{"namespaceSelector": {}}]',
            f"{PREFIX}GATEWAY_URL": "http://gateway",
            f"{PREFIX}GATEWAY_SERVICE": "http://gateway.system.svc",
            f"{PREFIX}GATEWAY_TOKEN": "/token",
            f"{PREFIX}GATEWAY_AUTHORITY": "/ca.crt",
            f"{PREFIX}LOG_LEVEL": "DEBUG",
            f"{PREFIX}LOG_FORMAT": "json",
            f"{PREFIX}METRICS_PORT": "1",
            f"{PREFIX}HEALTH_PORT": "65535",
            f"{PREFIX}INTERVAL": "0.1",
            f"{PREFIX}LEASE": "15",
            f"{PREFIX}EXECUTOR_GRACE": "600",
            "POD_NAME": "operator-0",
            "POD_NAMESPACE": "system",
        }
    )

    assert config == OperatorConfig(
        namespaces=("geo", "weather"),
        image="spark:1",
        image_pull_policy="Always",
        prometheus_url="http://prometheus:9090",
        prometheus_access="/access",
        template_allow=frozenset({"nodeName", "volumes.secret"}),
        options_any=True,
        images=("registry.example/geo/*",),
        secrets=("kafka", "zk-*"),
        monitors=True,
        monitor_labels={"release": "prometheus", "team": ""},
        network_policies=True,
        metrics_from=({"podSelector": {}},),
        clients_from=({"namespaceSelector": {}},),
        gateway_url="http://gateway",
        gateway_service="http://gateway.system.svc",
        gateway_token="/token",
        gateway_authority="/ca.crt",
        pod="operator-0",
        namespace="system",
        log_level="debug",
        log_format="json",
        metrics_port=1,
        health_port=65535,
        interval=0.1,
        lease=15.0,
        executor_grace=600.0,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MONITORS", "perhaps"),
        ("OPTIONS", "all"),
        ("TEMPLATE_ALLOW", "spec.volumes.secret"),
        ("MONITOR_LABELS", "release"),
        ("MONITOR_LABELS", "=prometheus"),
        ("CLIENTS_FROM", "gateway"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("METRICS_PORT", "0"),
        ("METRICS_PORT", "65536"),
        ("HEALTH_PORT", "http"),
        ("HEALTH_PORT", "-1"),
        ("INTERVAL", "0"),
        ("INTERVAL", "soon"),
        ("INTERVAL", "nan"),
        ("INTERVAL", "inf"),
        ("LEASE", "0.5"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name, value):
    with pytest.raises(SettingError, match=f"{PREFIX}{name}: {value!r}"):
        read(**{name: value})


def test_an_operator_does_not_start_with_what_cannot_be_used(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(f"{PREFIX}PROMETHEUS_URL", "https://prometheus:9090")
    monkeypatch.setenv(f"{PREFIX}PROMETHEUS_ACCESS", str(tmp_path))

    assert main() == 2
    assert f"spatialstream-operator: {PREFIX}PROMETHEUS_ACCESS: {tmp_path} holds none" in capsys.readouterr().err


@pytest.fixture
def logging_as_before():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_log_is_for_people_or_for_machines(logging_as_before, capsys):
    for form in ("text", "json"):
        set_up_logging(OperatorConfig(log_format=form))
        logging.getLogger("here").debug("not shown")
        try:
            raise ValueError("a cause")
        except ValueError:
            logging.getLogger("here").exception("größer %s", "now")
    lines = capsys.readouterr().err.splitlines()
    record = json.loads(lines[-1])

    assert "größer now" in lines[0]
    assert (record["level"], record["logger"], record["message"]) == ("error", "here", "größer now")
    assert "ValueError: a cause" in record["exception"]
    assert not any("not shown" in line for line in lines)
