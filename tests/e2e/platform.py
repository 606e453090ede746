"""The platform as the tests install it, and streams on it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.data import Part, Story
from tests.e2e.kube import CommandError, Kube, run, trouble, wait_for

__all__ = ["GOING", "NAMESPACE", "SYSTEM", "Platform", "Stream"]

SYSTEM, NAMESPACE = "e2e-system", "e2e"
GOING = "e2e-going"
"""A namespace that a test deletes with a stream in it."""
TOOLBOX = "toolbox"

_OPERATOR = "app.kubernetes.io/name=spatialstream-operator,pod-template-hash"
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_RESOURCES = {"requests": {"cpu": "50m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
EXECUTOR = {"requests": {"cpu": "50m", "memory": "1400Mi"}, "limits": {"memory": "1400Mi"}}


@dataclass
class Platform:
    """Both charts.

    Attributes:
        root: of the repository.
        folder: for files of the tests.
        version: of the images.
        prefix: of the images' names.
        storage_class: of volumes; "": see :meth:`_storage`.
    """

    root: Path
    folder: Path
    version: str
    prefix: str
    storage_class: str
    system: Kube = field(default_factory=lambda: Kube(SYSTEM))
    kube: Kube = field(default_factory=lambda: Kube(NAMESPACE))

    def image(self, name: str) -> str:
        """The name of an image, without its tag."""
        return f"{self.prefix}spatialstream-{name}"

    # ---------------------------------------------------------------------------------------------------- installing

    def install(self) -> None:
        """Make the namespaces, install both charts, and wait until everything runs."""
        for namespace in (SYSTEM, NAMESPACE, GOING):
            run(["kubectl", "create", "namespace", namespace])
            run(["kubectl", "label", "namespace", namespace, *(f"{k}={v}" for k, v in _RESTRICTED.items())])
        if "hostPath" in self._storage():
            self._empty_folder()
        self.kube.helm("install", "dev", str(self.root / "charts/spatialstream-dev"), *self._values(self._dev()))
        self.upgrade("install")
        self.kube.apply(self._toolbox())
        for pod in ("dev-kafka-0", "dev-zookeeper-0", "dev-prometheus-0", "dev-objects-0", TOOLBOX):
            wait_for(f"{pod} to be ready", lambda pod=pod: self.kube.ready(pod), 300.0, self.state)  # type: ignore[misc]

    def upgrade(self, verb: str = "upgrade", **more: Any) -> None:
        """Install the operator's chart, or upgrade it."""
        values = self._values(self._operator() | more)
        self.system.helm(
            verb, "spatialstream", str(self.root / "charts/spatialstream"), *values, "--wait", "--timeout", "5m"
        )

    def remove(self) -> None:
        """Remove everything that the tests have installed; nothing happens if there is nothing."""
        for namespace in (NAMESPACE, GOING, SYSTEM):
            if run(["kubectl", "get", "namespace", namespace, "--ignore-not-found"]).strip():
                self._end("spatialqueries", namespace)
                self._end("spatialareas", namespace)
                self._end("spatialstreams", namespace)
        try:
            self._empty_volume()
        finally:  # what is left in the volume is no reason to leave the rest too
            self._uninstall()

    def _uninstall(self) -> None:
        """Remove both charts, and what is in the namespaces with them."""
        for kube, release in ((self.system, "spatialstream"), (self.kube, "dev")):
            if release in run(["helm", "-n", kube.namespace, "list", "-q"]).split():
                kube.helm("uninstall", release, "--wait")
        for kind, name in (
            ("namespace", GOING),
            ("persistentvolume", GOING),
            ("persistentvolume", NAMESPACE),
            ("namespace", NAMESPACE),
            ("namespace", SYSTEM),
            ("crd", "spatialstreams.spatialstream.dev"),
            ("crd", "spatialqueries.spatialstream.dev"),
            ("crd", "spatialareas.spatialstream.dev"),
        ):
            run(["kubectl", "delete", kind, name, "--ignore-not-found", "--timeout=180s"], timeout=200.0)

    def _empty_volume(self) -> None:
        """Delete what services and streams have written: a folder of the node outlives the claim."""
        if not run(["kubectl", "-n", NAMESPACE, "get", "pvc", "dev-checkpoints", "--ignore-not-found"]).strip():
            return
        self.kube.kubectl(
            *("delete", "statefulset", "dev-kafka", "dev-zookeeper", "dev-objects"),
            *("--ignore-not-found", "--cascade=foreground"),
        )
        self._empty("dev-checkpoints")

    def _empty_folder(self) -> None:
        """Delete what a run has left whose cluster has ended before it: another cluster on the node knows no claim."""
        self.kube.apply(*self.claim("left", NAMESPACE))
        self._empty("left")
        self.kube.kubectl("delete", "persistentvolumeclaim", "left")
        run(["kubectl", "delete", "persistentvolume", NAMESPACE])

    def _empty(self, claim: str) -> None:
        """Delete what services and streams have written to a volume, with nobody at it."""
        self.kube.apply(self._toolbox(claim))
        wait_for("the toolbox", lambda: self.kube.ready(TOOLBOX), 120.0)
        folders = ["/checkpoints", "/services/kafka", "/services/zookeeper", "/services/objects"]
        self.kube.exec(TOOLBOX, "find", *folders, "-mindepth", "1", "-uid", "10001", "-delete")
        self.kube.kubectl("delete", "pod", TOOLBOX)

    def _end(self, kind: str, namespace: str) -> None:
        """Delete the resources of a kind, with or without an operator that looks after them."""
        kube = Kube(namespace)
        try:
            names = [each["metadata"]["name"] for each in kube.list(kind)]
        except CommandError:
            return
        for name in names:
            kube.kubectl("annotate", kind, name, "spatialstream.dev/skip-cleanup=true", "--overwrite")
            kube.kubectl("delete", kind, name, "--wait=false")
        for name in names:
            try:
                wait_for(f"{name} to be gone", lambda name=name: kube.get(kind, name) is None, 60.0)  # type: ignore[misc]
            except AssertionError:
                kube.kubectl("patch", kind, name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')

    def _values(self, values: Mapping[str, Any]) -> list[str]:
        path = self.folder / f"values-{time.monotonic_ns()}.json"
        path.write_text(json.dumps(values))
        return ["--values", str(path)]

    def _operator(self) -> dict[str, Any]:
        return {
            "image": {"repository": self.image("operator")},
            "streamImage": {"repository": self.image("spark")},
            "prometheus": {"url": f"http://dev-prometheus.{NAMESPACE}.svc:9090"},
            "watch": {"namespaces": [NAMESPACE, GOING]},
            "gateway": {
                "replicas": 2,
                "resources": {"requests": {"cpu": "20m", "memory": "200Mi"}, "limits": {"memory": "1Gi"}},
            },
        }

    def _dev(self) -> dict[str, Any]:
        return {
            "image": {"repository": self.image("services")},
            "storage": {**self._storage(), "services": True, "size": "5Gi"},
            "objects": {"enabled": True},
            "prometheus": {"namespaces": [NAMESPACE, SYSTEM], "scrapeInterval": "3s"},
            # above which ratio: the stream's own, as the operator says it
            "alerts": {"rules": {"SpatialStreamImbalanced": {"for": "5s"}}},
        }

    def _storage(self) -> dict[str, Any]:
        """Volumes of a class, or a folder of the only node where there is none."""
        if self.storage_class:
            return {"storageClass": self.storage_class}
        classes = json.loads(run(["kubectl", "get", "storageclass", "-o", "json"]))["items"]
        mark = "storageclass.kubernetes.io/is-default-class"
        if any(each["metadata"].get("annotations", {}).get(mark) == "true" for each in classes):
            return {"accessMode": "ReadWriteOnce"}
        return {"hostPath": "/var/tmp"}

    def claim(self, name: str, namespace: str = GOING) -> list[dict[str, Any]]:
        """A claim, and where the cluster provides none its volume, which is called as the namespace."""
        storage = self._storage()
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        made = []
        if "hostPath" in storage:
            volume = {
                "accessModes": spec["accessModes"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": name},
                "hostPath": {"path": storage["hostPath"], "type": "Directory"},
            }
            made.append(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume}
            )
            spec |= {"storageClassName": "", "volumeName": namespace}
        elif "storageClass" in storage:
            spec["storageClassName"] = storage["storageClass"]
        about = {"name": name, "namespace": namespace}
        return [*made, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}]

    def _toolbox(self, claim: str = "dev-checkpoints") -> dict[str, Any]:
        """A pod in which commands of the project can be run, with a volume."""
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        ids = {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
        variables = {
            "SPATIALSTREAM_BOOTSTRAP": "dev-kafka:9092",
            "SPATIALSTREAM_ZOOKEEPER": "dev-zookeeper:2181",
            "HOME": "/tmp",
        }
        container = {
            "name": TOOLBOX,
            "image": f"{self.image('spark')}:{self.version}",
            "args": ["sleep", "infinity"],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "resources": {"requests": {"cpu": "20m", "memory": "200Mi"}, "limits": {"memory": "1Gi"}},
            "securityContext": rights,
            "volumeMounts": [
                {"name": "tmp", "mountPath": "/tmp"},
                {"name": "work", "mountPath": "/var/spatialstream"},
                {"name": "volume", "mountPath": "/checkpoints", "subPath": "e2e"},
                {"name": "volume", "mountPath": "/services/kafka", "subPath": "dev-kafka"},
                {"name": "volume", "mountPath": "/services/zookeeper", "subPath": "dev-zookeeper"},
                {"name": "volume", "mountPath": "/services/objects", "subPath": "dev-objects"},
            ],
        }
        volumes = [
            {"name": "tmp", "emptyDir": {}},
            {"name": "work", "emptyDir": {}},
            {"name": "volume", "persistentVolumeClaim": {"claimName": claim}},
        ]
        pod = {
            "securityContext": ids,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": volumes,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": TOOLBOX}, "spec": pod}

    # ----------------------------------------------------------------------------------------------------- looking at

    @property
    def operator(self) -> str:
        """Name of the operator's pod."""
        pods = self.system.list("pods", _OPERATOR)
        living = [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]
        assert len(living) == 1, living
        return str(living[0])

    def prometheus(self, expression: str) -> list[dict[str, Any]]:
        """The answer of the cluster's Prometheus."""
        script = (
            "import sys, urllib.parse, urllib.request as r; "
            "print(r.urlopen('http://dev-prometheus:9090/api/v1/query?' + "
            "urllib.parse.urlencode({'query': sys.argv[1]}), timeout=20).read().decode())"
        )
        answer = json.loads(self.kube.exec(TOOLBOX, "python", "-c", script, expression))
        return list(answer["data"]["result"])

    def state(self) -> str:
        """What a person would look at if something does not come about."""
        told = [trouble()]
        for kube, arguments in (
            (self.kube, ("get", "pods,sps", "-o", "wide")),
            (self.kube, ("get", "sps", "-o", "yaml")),
            (self.kube, ("get", "events", "--sort-by=.metadata.creationTimestamp")),
            (self.system, ("get", "pods")),
            (self.system, ("logs", "deployment/spatialstream", "--tail=60")),
        ):
            try:
                told.append(kube.kubectl(*arguments)[-6000:])
            except CommandError as error:
                told.append(str(error))
        return "\n".join(told)


@dataclass
class Stream:
    """A SpatialStream, with what has been sent and answered.

    Attributes:
        platform: where it is.
        name: of the resource.
        story: what was sent.
    """

    platform: Platform
    name: str
    story: Story

    @property
    def kube(self) -> Kube:
        """The stream's namespace."""
        return self.platform.kube

    @property
    def id(self) -> str:
        """The stream's name in Kafka and ZooKeeper."""
        return f"{NAMESPACE}.{self.name}"

    def manifest(self, **more: Any) -> dict[str, Any]:
        """The resource: small, and quick to act."""
        spec: dict[str, Any] = {
            "kafka": {"bootstrapServers": "dev-kafka:9092"},
            "zookeeper": {"servers": "dev-zookeeper:2181"},
            "checkpoint": {"claimName": "dev-checkpoints", "subPath": f"e2e/{self.name}"},
            "space": str(self.story.space),
            "properties": {name: str(kind) for name, kind in self.story.rule.properties.types},
            "fields": list(self.story.rule.fields or ()),
            "terms": {"ranking": self.story.rule.ranking, "counts": self.story.rule.counts},
            # answers are then a function of the input alone
            "time": {"idle": "10m"},
            "router": {"resources": _RESOURCES},
            "workers": {"min": 1, "max": 2, "resources": EXECUTOR, "driver": {"resources": _RESOURCES}},
            "restart": {"backoff": "1s", "maxBackoff": "30s"},
        }
        for name, value in more.items():
            spec[name] = {**spec.get(name, {}), **value} if isinstance(value, dict) else value
        return {
            "apiVersion": "spatialstream.dev/v1alpha1",
            "kind": "SpatialStream",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": spec,
        }

    # ------------------------------------------------------------------------------------------------------- status

    @property
    def body(self) -> dict[str, Any]:
        """The resource as it is."""
        found = self.kube.get("sps", self.name)
        assert found is not None
        return found

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        return dict(self.body.get("status", {}))

    def condition(self, name: str) -> str:
        """The status of a condition; "" if it is not there."""
        return next((each["status"] for each in self.status.get("conditions", []) if each["type"] == name), "")

    def wait_ready(self, timeout: float = 300.0) -> None:
        """Wait until it answers queries."""
        wait_for(f"{self.name} to be ready", lambda: self.condition("Ready") == "True", timeout, self.platform.state)

    def patch(self, **spec: Any) -> None:
        """Change the spec."""
        self.kube.kubectl("patch", "sps", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    # --------------------------------------------------------------------------------------------- sending and reading

    def send(self, part: Part, rate: float) -> None:
        """Send a part through Kafka."""
        for kind, content in (("objects", part.objects), ("queries", part.queries)):
            path = f"/tmp/{self.name}-{kind}.jsonl"
            self.kube.exec(TOOLBOX, "sh", "-c", f"cat > {path}", data=content)
        files = [f"/tmp/{self.name}-{kind}.jsonl" for kind in ("objects", "queries")]
        command = ["spatialstream", "load", "--stream", self.id, f"--space={self.story.space}", "--rate", str(rate)]
        options = ["--objects", files[0], "--queries", files[1], "--settle", "0", "--quiet"]
        report = self.kube.exec(TOOLBOX, *command, *options, *self._rule(), timeout=600.0)
        assert "rejected" not in report, report

    def _rule(self) -> list[str]:
        """How the stream reads its objects, as options."""
        rule = self.story.rule
        options = [option for name, kind in rule.properties.types for option in ("--property", f"{name}:{kind}")]
        options += ["--ranking"] if rule.ranking else []
        options += ["--term-counts"] if rule.counts else []
        return options + (["--fields", ",".join(rule.fields)] if rule.fields else [])

    @contextmanager
    def sending(self, part: Part, rate: float) -> Iterator[None]:
        """Send a part while something else is done."""
        failures: list[BaseException] = []

        def send() -> None:
            try:
                self.send(part, rate)
            except (AssertionError, OSError) as error:
                failures.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        yield
        thread.join(600.0)
        assert not thread.is_alive()
        assert not failures, failures

    def read(self) -> int:
        """Read what has been answered since the last time; how many rows there are now."""
        command = ["spatialstream", "results", "--stream", self.id, "--patience", "1s", "--quiet"]
        text = self.kube.exec(TOOLBOX, *command, "--position", f"/tmp/{self.name}-position.json")
        self.story.rows += [json.loads(line) for line in text.splitlines()]
        return len(self.story.rows)

    def assert_exact(self, timeout: float = 300.0) -> None:
        """Wait for all rows, and compare them with the oracle's."""
        expected = len(self.story.expected)
        wait_for(
            f"{expected} rows of {self.name}",
            lambda: self.read() >= expected,
            timeout,
            lambda: f"{len(self.story.rows)} rows have come\n{self.platform.state()}",
        )
        found = self.story.differences()
        assert not found, "\n".join(found)

    def wait(self, what: str, condition: Callable[[dict[str, Any]], Any], timeout: float = 180.0) -> Any:
        """Wait until something holds of the status."""
        return wait_for(f"{self.name}: {what}", lambda: condition(self.status), timeout, self.platform.state)
