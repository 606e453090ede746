"""How the development chart's Prometheus comes to know which pods there are."""

import importlib.util
import json
from types import ModuleType

import pytest

from tests.charts.render import SERVICES, named, render

pytestmark = pytest.mark.gate

NOTES = {"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "prometheus.io/path": "/stats"}


@pytest.fixture
def discover():
    spec = importlib.util.spec_from_file_location("discover", SERVICES / "files" / "discover.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pod(annotations=None, **status):
    metadata = {"name": "quakes-worker", "namespace": "geo"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "status": {"phase": "Running", "podIP": "10.0.0.7", **status}}


def test_an_annotated_pod_is_a_target(discover):
    assert discover.target(pod(NOTES)) == {
        "targets": ["10.0.0.7:9090"],
        "labels": {"namespace": "geo", "pod": "quakes-worker", "__metrics_path__": "/stats"},
    }


def test_what_an_annotation_does_not_say_is_as_usual(discover):
    found = discover.target(pod({"prometheus.io/scrape": "true"}, podIP="fd00::7"))

    assert found["targets"] == ["[fd00::7]:80"]
    assert found["labels"]["__metrics_path__"] == "/metrics"


@pytest.mark.parametrize(
    "other",
    [
        pod(),
        pod({}),
        pod({**NOTES, "prometheus.io/scrape": "false"}),
        pod(NOTES, phase="Pending"),
        pod(NOTES, phase="Succeeded"),
        pod(NOTES, podIP=""),
    ],
    ids=["bare", "plain", "declined", "pending", "over", "without-address"],
)
def test_other_pods_are_none(discover, other):
    assert discover.target(other) is None


class OverError(Exception):
    """Ends the loop that has no end."""


def run(discover: ModuleType, monkeypatch, tmp_path, answers):
    """Let the loop run as often as there are answers; what the file held after each."""
    path, held, left = tmp_path / "pods.json", [], list(answers)

    def pods(namespace):
        answer = left[0][namespace]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds):
        held.append(json.loads(path.read_text("utf-8")) if path.exists() else None)
        left.pop(0)
        if not left:
            raise OverError

    monkeypatch.setattr(discover, "pods", pods)
    monkeypatch.setattr(discover.time, "sleep", sleep)
    monkeypatch.setattr(discover.signal, "signal", lambda *_: None)
    with pytest.raises(OverError):
        discover.main(path, 1.0, list(answers[0]))
    return held


def test_the_file_follows_the_cluster_and_stays_while_it_cannot_be_asked(discover, monkeypatch, tmp_path):
    one = discover.target(pod(NOTES))
    answers = [
        {"geo": OSError("away"), "weather": []},
        {"geo": [pod(NOTES), pod()], "weather": []},
        {"geo": [pod(NOTES)], "weather": OSError("away")},
        {"geo": [], "weather": [pod(NOTES)] * 2},
        {"geo": [], "weather": []},
    ]

    assert run(discover, monkeypatch, tmp_path, answers) == [None, [one], [one], [one, one], []]


def test_the_pod_runs_it_beside_prometheus_and_both_see_the_file():
    objects = render(SERVICES, {"prometheus": {"namespaces": ["geo", "weather"]}})
    spec = named(objects, "StatefulSet", "spatialstream-prometheus")["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in spec["containers"]}
    mounted = {
        name: {mount["name"]: mount["mountPath"] for mount in each["volumeMounts"] if mount["name"] == "targets"}
        for name, each in containers.items()
    }

    assert containers["discover"]["command"][2:] == ["/targets/pods.json", "2", "geo", "weather"]
    assert mounted == {"prometheus": {"targets": "/etc/prometheus/targets"}, "discover": {"targets": "/targets"}}
