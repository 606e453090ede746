"""The pods of a stream: the two drivers, and the templates of executors.

A driver's pod is never changed: if the spec yields another pod, it is recreated. This is detected by the annotation
with the hash of the template. It covers everything that the pod is built from, except for what matters only when the
stream is started for the first time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spatialstream_operator.commands import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    EXECUTOR_CONTAINER,
    KAFKA_SECRETS,
    METRICS_PORT,
    OBJECT_STORE_AUTHORITY,
    OBJECT_STORE_SECRETS,
    WORK,
    checkpoint_place,
    driver_command,
    executor_cores,
    zookeeper_files,
)
from spatialstream_operator.manifests import volumes
from spatialstream_operator.manifests.merge import add_template
from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.manifests.network import METRICS_PATH, METRICS_PORT_NAME
from spatialstream_operator.manifests.placement import placed
from spatialstream_operator.manifests.restricted import restrict
from spatialstream_operator.names import HASH_ANNOTATION, TOPIC_KINDS, StreamNames
from spatialstream_operator.spec import Bucket, Container, Executors, StreamSpec

__all__ = ["DRIVER_CONTAINER", "driver_pod", "executor_template", "executor_trial", "template_hash"]

DRIVER_CONTAINER = "driver"

READY_PATH = "/ready"
"""Returns 200 while the job's streaming query runs."""

_GRACE = 60
"""Termination grace period in seconds, for a driver to finish its micro-batch."""


def driver_pod(job: str, spec: StreamSpec, names: StreamNames, uid: str, executors: int = 1) -> Manifest:
    """The pod of a driver.

    Args:
        job: ``router`` or ``worker``.
        spec: spec of the stream.
        names: names of the stream.
        uid: uid of the SpatialStream, which owns the pod.
        executors: initial number of executors, if the job has any; later it follows the routing store, so it is not in
            the hash.
    """
    return _hashed(_pod(job, spec, names, uid, executors), template_hash(job, spec, names))


def template_hash(component: str, spec: StreamSpec, names: StreamNames) -> str:
    """A hash of what a driver's pod is built from: while it stays the same, the pod is not recreated.

    Args:
        component: ``router`` or ``worker``.
        spec: of the stream.
        names: of the stream.
    """
    spec = _lasting(spec)
    parts: list[Any] = [spec.restart_nonce, list(spec.terms.stop_words)]
    if spec.accounts.driver:
        parts += [dict(spec.accounts.driver)]
    parts += [_pod(component, spec, names, "", 1)]
    if spec.job(component).executors is not None:
        parts += [executor_template(spec, names, component), dict(spec.accounts.executor)]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def executor_template(spec: StreamSpec, names: StreamNames, job: str = "worker") -> Manifest:
    """The pod template from which Spark creates the executors of a job.

    Spark adds name, owner, image, CPU and memory.
    """
    storage = volumes.local(volumes.EXECUTOR_WORK) + volumes.checkpoint(spec, names)
    if job == "worker":
        storage += volumes.archive(spec, names)
    storage += volumes.secrets(spec, zookeeper=False)
    executor = _executors(spec, job).container
    disk = {"requests": _disk(executor.requests), "limits": _disk(executor.limits)}
    container = {
        "name": EXECUTOR_CONTAINER,
        "workingDir": WORK,
        "env": [_variable(name, value) for name, value in _executor_environment(spec).items()],
        "resources": {kind: amounts for kind, amounts in disk.items() if amounts},
        "volumeMounts": list(storage.mounts),
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": names.labels(names.executor(job)), "annotations": {}},
        "spec": {**_common(spec), "containers": [container], "volumes": list(storage.volumes)},
    }
    return placed(
        restrict(add_template(pod, executor.template, volumes.REPLACEABLE)),
        {"matchLabels": names.selected(names.executor(job))},
    )


def executor_trial(spec: StreamSpec, names: StreamNames, job: str = "worker") -> Manifest:
    """An executor's pod roughly as Spark would create it, to test quotas and policies by a dry run."""
    template, executors = executor_template(spec, names, job), _executors(spec, job)
    requested = executors.container
    memory = {"memory": f"{requested.memory}Mi"}
    processor = {"cpu": executor_cores(executors)}
    container, *sidecars = template["spec"]["containers"]
    disk = container["resources"]
    limits = {**disk.get("limits", {}), **{name: value for name, value in requested.limits.items() if name == "cpu"}}
    resources = {"requests": {**disk.get("requests", {}), **memory, **processor}, "limits": {**limits, **memory}}
    container = {
        **container,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "resources": resources,
    }
    return {
        **template,
        "metadata": {**template["metadata"], "name": f"{names.driver(job)}-exec-trial", "namespace": names.namespace},
        "spec": {**template["spec"], "containers": [container, *sidecars]},
    }


def _executors(spec: StreamSpec, job: str) -> Executors:
    executors = spec.job(job).executors
    assert executors is not None, f"the {job} has none"
    return executors


def _lasting(spec: StreamSpec) -> StreamSpec:
    """The spec without what matters only when the stream is first started: the first tree, and created topics."""
    return replace(
        spec, index=replace(spec.index, leaves=1), kafka=replace(spec.kafka, object_partitions=1, replication=1)
    )


def _hashed(pod: Manifest, value: str) -> Manifest:
    annotations = {**pod["metadata"]["annotations"], HASH_ANNOTATION: value}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _pod(job: str, spec: StreamSpec, names: StreamNames, uid: str, executors: int) -> Manifest:
    job_spec, storage = spec.job(job), _driver_storage(spec, names)
    if job == "worker":
        storage += volumes.archive(spec, names)
    container = _driver(spec, names, job_spec.driver, driver_command(spec, names, job, executors), storage)
    pod, ports = _driver_spec(spec, names), {METRICS_PORT_NAME: METRICS_PORT}
    if job_spec.executors is not None:
        ports |= {"driver": DRIVER_PORT, "blockmanager": BLOCK_MANAGER_PORT}
        pod["automountServiceAccountToken"] = True  # it creates executors through the API server
    container["ports"] = [_port(name, number) for name, number in ports.items()]
    base = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(names, names.driver(job), uid, job),
        "spec": {**pod, "containers": [container], "volumes": list(storage.volumes)},
    }
    return placed(restrict(add_template(base, job_spec.driver.template, volumes.REPLACEABLE)), names.selected_drivers)


def _metadata(names: StreamNames, name: str, uid: str, component: str) -> Manifest:
    scrape = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(METRICS_PORT),
        "prometheus.io/path": METRICS_PATH,
    }
    return {**metadata(names, name, uid, component), "annotations": scrape}


def _common(spec: StreamSpec) -> Manifest:
    secrets = [{"name": name} for name in spec.image_pull_secrets]
    common = {"automountServiceAccountToken": False, "enableServiceLinks": False, "restartPolicy": "Never"}
    return {**common, **({"imagePullSecrets": secrets} if secrets else {})}


def _driver_spec(spec: StreamSpec, names: StreamNames) -> Manifest:
    return {**_common(spec), "serviceAccountName": names.account, "terminationGracePeriodSeconds": _GRACE}


def _driver_storage(spec: StreamSpec, names: StreamNames) -> volumes.Storage:
    return (
        volumes.local(volumes.DRIVER_WORK)
        + volumes.config(names)
        + volumes.checkpoint(spec, names)
        + volumes.secrets(spec, zookeeper=True)
    )


def _driver(
    spec: StreamSpec, names: StreamNames, container: Container, command: list[str], storage: volumes.Storage
) -> Manifest:
    return {
        "name": DRIVER_CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": command,
        "workingDir": WORK,
        "env": _environment(spec, names),
        "resources": {"requests": dict(container.requests), "limits": dict(container.limits)},
        "volumeMounts": list(storage.mounts),
        # at first it compiles kernels and creates topics, on a machine that may be busy
        "startupProbe": _probe(METRICS_PATH, period=2, failures=300),
        # a stream whose rows have stopped is not to be called ready for long
        "readinessProbe": _probe(READY_PATH, period=3, failures=2),
        # a driver that does not respond for five minutes will not recover
        "livenessProbe": _probe(METRICS_PATH, period=30, failures=10),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(spec: StreamSpec, names: StreamNames) -> list[Manifest]:
    """The stream's addresses, so that ``spatialstream`` needs no arguments in the pod; POD_IP precedes its uses."""
    topics = names.topics(spec.kafka.topics)
    variables = {
        "SPATIALSTREAM_STREAM": names.stream,
        "SPATIALSTREAM_BOOTSTRAP": spec.kafka.bootstrap,
        "SPATIALSTREAM_TOPICS": ",".join(f"{kind}={topics[kind]}" for kind in TOPIC_KINDS),
        "SPATIALSTREAM_ZOOKEEPER": spec.zookeeper.servers,
        "SPATIALSTREAM_CACHE": f"{WORK}/cache",
        "HOME": WORK,
    }
    if spec.kafka.security is not None:
        variables["SPATIALSTREAM_KAFKA_SECURITY"] = f"{KAFKA_SECRETS}/{spec.kafka.security.key}"
    for name, file in zookeeper_files(spec).items():
        variables[f"SPATIALSTREAM_ZOOKEEPER_{name.upper()}"] = file
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    variables |= _object_store(spec)
    return [address, *(_variable(name, value) for name, value in variables.items())]


def _executor_environment(spec: StreamSpec) -> dict[str, str]:
    variables = {"SPATIALSTREAM_CACHE": f"{WORK}/cache", "HOME": WORK} | _object_store(spec)
    if isinstance(spec.checkpoint, Bucket):
        variables["SPATIALSTREAM_CHECKPOINT"] = checkpoint_place(spec)  # executors read Spark's secret from there
    return variables


def _object_store(spec: StreamSpec) -> dict[str, str]:
    """The environment variables of AWS for access to the object store; empty if there is none."""
    store, variables = spec.object_store, dict[str, str]()
    if not spec.remote:
        return variables
    if store.endpoint:
        variables["AWS_ENDPOINT_URL"] = store.endpoint
    if store.region:
        variables["AWS_REGION"] = store.region
    if store.credentials is not None:
        variables["AWS_SHARED_CREDENTIALS_FILE"] = f"{OBJECT_STORE_SECRETS}/{store.credentials.key}"
    if store.authority is not None:
        variables["AWS_CA_BUNDLE"] = f"{OBJECT_STORE_AUTHORITY}/{store.authority.key}"
    return variables


def _disk(amounts: Mapping[str, str]) -> dict[str, str]:
    """Those resources of an executor that Spark leaves to the template."""
    return {name: value for name, value in amounts.items() if name not in ("cpu", "memory")}


def _variable(name: str, value: str) -> Manifest:
    return {"name": name, "value": value}


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "containerPort": number}


def _probe(path: str, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": METRICS_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 10,
        "failureThreshold": failures,
    }
