"""A worker's driver and the pods of its executors: who gets in, and what the pods show.

The driver is Spark's own, with the properties that the operator gives it. An executor is started as the kubelet would
start it: the image's entry point, with the environment that is in the pod.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spatialstream.pipeline.session import embedded_session
from spatialstream_operator import manifests
from spatialstream_operator.commands import worker_properties
from spatialstream_operator.names import StreamNames
from tests.api.client import eventually
from tests.api.servers import ADMIN
from tests.unit.operator.resource import parse

ROOT = Path(__file__).parents[2]
NAMESPACE = "executors"
SECRET = "worker.secret"


@pytest.fixture
def driver(api, server, namespace, tmp_path):
    """The worker's driver, beside the API server; it asks for one executor."""
    names = StreamNames(namespace(NAMESPACE), "quakes")
    # a controller's work, and there is none
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}})
    spec = parse()
    template, token = tmp_path / "executor.yaml", tmp_path / "token"
    template.write_text(json.dumps(manifests.executor_template(spec, names)))
    token.write_text(ADMIN)
    conf = worker_properties(spec, names, 1) | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(tmp_path),
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.authenticate.caCertFile": str(server.certificate),
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "0s",
    }
    del conf["spark.kubernetes.driver.pod.name"]  # there is no such pod: the driver is this process
    session = embedded_session("worker", master=f"k8s://{server.url}", conf=conf, secret=tmp_path / SECRET)
    yield session
    session.stop()


@contextmanager
def executor(pod: dict, folder: Path, **more: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """The process of an executor's pod; ``more`` takes the place of variables, None removes one."""
    (folder / "cache" / "spatialstream").mkdir(parents=True, exist_ok=True)
    container = pod["spec"]["containers"][0]
    environment = {each["name"]: each.get("value", "127.0.0.1") for each in container["env"]}
    environment |= {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "JAVA_HOME": os.environ["JAVA_HOME"],
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPATIALSTREAM_CACHE": str(folder / "cache"),
        "SPARK_EXECUTOR_POD_NAME": pod["metadata"]["name"],
    } | more
    with (folder / "executor.log").open("wb") as log:
        process = subprocess.Popen(
            [ROOT / "images/spark/entrypoint", *container["args"]],
            env={name: value for name, value in environment.items() if value is not None},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def registered(driver) -> int:
    return driver.sparkContext._jsc.sc().getExecutorIds().size()


@pytest.mark.timeout(180)
def test_only_executors_of_the_driver_get_in(api, driver, tmp_path):
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = eventually(lambda: api.list(pods), "the driver makes a pod")[0]
    variables = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
    files = [name for name, value in variables.items() if "spark.authenticate.secret.file" in value]
    guards = {name: None for name, value in variables.items() if "spark.authenticate" in value or ".crypto." in value}
    secret = (tmp_path / SECRET).read_text()

    assert len(files) == 1
    assert secret not in json.dumps(pod)

    wrong = tmp_path / "wrong.secret"
    wrong.write_text("0" * len(secret))
    others = [tmp_path / name for name in ("stranger", "guesser")]
    for each in others:
        each.mkdir()
    with (
        executor(pod, others[0], **guards) as stranger,
        executor(pod, others[1], **{files[0]: f"-Dspark.authenticate.secret.file={wrong}"}) as guesser,
    ):
        assert stranger.wait(60) != 0
        assert guesser.wait(60) != 0
    for each in others:
        assert "Registered executor" not in (each / "executor.log").read_text()
    assert registered(driver) == 0

    with executor(pod, tmp_path) as own:
        eventually(lambda: registered(driver) == 1 or own.poll() is not None, "the driver has its executor", 60)
        assert registered(driver) == 1, (tmp_path / "executor.log").read_text()
        command = Path(f"/proc/{own.pid}/cmdline").read_bytes()
        assert b"KubernetesExecutorBackend" in command
        assert secret.encode() not in command
        assert driver.range(0, 300_000, 1, 3).repartition(2).distinct().count() == 300_000
    assert secret not in (tmp_path / "executor.log").read_text()
