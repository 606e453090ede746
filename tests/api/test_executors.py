"""A worker's driver and the pods of its executors: who gets in, and what the pods show.

The driver is Spark's own, with the properties that the operator gives it. An executor is started as the kubelet would
start it: the image's entry point, with the environment that is in the pod.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spatialstream.spark.session import embedded_session, new_secret
from spatialstream_operator import manifests
from spatialstream_operator.commands import spark_properties
from spatialstream_operator.names import StreamNames
from tests.api.client import eventually
from tests.api.servers import ADMIN
from tests.lengths import AT_LENGTH
from tests.unit.operator.resource import parse

ROOT = Path(__file__).parents[2]
NAMESPACE = "executors"
SECRET = "worker.secret"


@pytest.fixture
def driver(api, server, namespace, tmp_path):
    """The worker's driver, beside the API server; it asks for two executors."""
    names = StreamNames(namespace(NAMESPACE), "quakes")
    account = {"name": names.executor_account, "namespace": NAMESPACE}
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    spec = parse()
    template, token = tmp_path / "executor.yaml", tmp_path / "token"
    template.write_text(json.dumps(manifests.executor_template(spec, names)))
    token.write_text(ADMIN)
    conf = spark_properties(spec, names, "worker", 2) | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(tmp_path),
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.authenticate.caCertFile": str(server.certificate),
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.sql.shuffle.partitions": "4",
        # two executors on one machine would read each other's files
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "0s",
    }
    del conf["spark.kubernetes.driver.pod.name"]  # there is no such pod: the driver is this process
    new_secret(tmp_path / SECRET)
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


@pytest.mark.skipif(
    not AT_LENGTH, reason="at length: with every change tests/e2e has a pod that does not know the secret"
)
@pytest.mark.timeout(300)
def test_only_executors_of_the_driver_get_in(api, driver, tmp_path):
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    eventually(lambda: len(api.list(pods)) == 2, "the driver makes its pods")
    pod, another = api.list(pods)
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
        assert stranger.wait(120) != 0
        assert guesser.wait(120) != 0
    for each in others:
        assert "Registered executor" not in (each / "executor.log").read_text()
    assert registered(driver) == 0

    folders = [tmp_path / name for name in ("own", "other")]
    for each in folders:
        each.mkdir()
    # one has the checkpoint's folder, the other brings the secret from there
    brought = tmp_path / "tmp" / SECRET
    bringing = {
        "SPATIALSTREAM_CHECKPOINT": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        files[0]: f"-Dspark.authenticate.secret.file={brought}",
    }
    with executor(pod, folders[0]) as own, executor(another, folders[1], **bringing) as other:
        eventually(
            lambda: registered(driver) == 2 or any(each.poll() is not None for each in (own, other)),
            "the driver has its executors",
            120,
        )
        assert registered(driver) == 2, [(each / "executor.log").read_text() for each in folders]
        command = Path(f"/proc/{own.pid}/cmdline").read_bytes()
        assert b"KubernetesExecutorBackend" in command
        assert secret.encode() not in command
        # some megabytes from each to the other
        assert driver.range(0, 300_000, 1, 4).repartition(4).distinct().count() == 300_000
    assert not any(secret in (each / "executor.log").read_text() for each in folders)
    assert brought.read_text() == secret
