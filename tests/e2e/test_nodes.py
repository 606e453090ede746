"""A stream on two nodes that share nothing but the network and an object store: one is lost, found, slow, or cut off.

Settings, by environment variables; without them these tests are skipped:

- ``E2E_LOSE_NODE``: a command after which nothing of the node ``{node}`` works, as if its power had gone;
- ``E2E_FIND_NODE``: a command after which it works again, with its disk, and is Ready;
- ``E2E_SLOW_NODE``: a command after which all pods of ``{node}`` together have a fifth of a core, and
  ``E2E_QUICK_NODE``: one after which they have all that there is;
- ``E2E_CUT_PODS``: a command after which the pods at ``{first}`` and ``{second}`` hear nothing of each other, and
  ``E2E_JOIN_PODS``: one after which they do.

The cluster has a second node for that, on which nothing else is scheduled (``kubectl cordon``) while the platform is
installed: the operator, the broker and ZooKeeper are not what is lost here. The tests uncordon it for themselves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.data import Bounds, Story
from tests.e2e.kube import run, wait_for
from tests.e2e.platform import EXECUTOR, NAMESPACE, SYSTEM, TOOLBOX, Platform, Stream
from tests.e2e.test_platform import assert_nothing_left

SETTINGS = ("LOSE_NODE", "FIND_NODE", "SLOW_NODE", "QUICK_NODE", "CUT_PODS", "JOIN_PODS")
COMMANDS = {name: os.environ.get(f"E2E_{name}", "") for name in SETTINGS}

pytestmark = pytest.mark.skipif(
    not all(COMMANDS.values()),
    reason=f"{', '.join(f'E2E_{name}' for name in SETTINGS)} do not say how a node is lost, found, slow, or cut off",
)

WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)
NAME = "spread"
RATE = 15.0
SOON = 15.0
"""Seconds after a loss from which rows that come are not those that were on their way."""
CUT = 45.0
"""Seconds for which pods do not hear each other: who says nothing for ten is taken for lost."""
WITHOUT_EXECUTOR, WITHOUT_DRIVERS = 90.0, 300.0
"""Seconds that may pass without a row, on a machine that is busy."""


def do(what: str, **where: str) -> None:
    """Have a command of the settings done."""
    command = COMMANDS[what]
    for name, value in where.items():
        command = command.replace(f"{{{name}}}", value)
    run(["bash", "-c", command])


@dataclass
class Nodes:
    """The two nodes.

    Attributes:
        home: where operator, broker, ZooKeeper and object store are.
        other: what is lost.
        lost: whether it is.
    """

    home: str
    other: str
    lost: bool = False

    def lose(self) -> None:
        """The power of the other one goes."""
        self.lost = True
        do("LOSE_NODE", node=self.other)

    def find(self) -> None:
        """It is back."""
        do("FIND_NODE", node=self.other)
        self.lost = False

    @contextmanager
    def slow(self) -> Iterator[None]:
        """The other one has little to give."""
        do("SLOW_NODE", node=self.other)
        try:
            yield
        finally:
            do("QUICK_NODE", node=self.other)


@pytest.fixture(scope="module")
def nodes(platform: Platform) -> Iterator[Nodes]:
    """The nodes; on both of them pods may be scheduled now."""
    broker = platform.kube.get("pod", "dev-kafka-0")
    assert broker is not None
    home = broker["spec"]["nodeName"]
    others = {
        each["metadata"]["name"]: each for each in json.loads(run(["kubectl", "get", "nodes", "-o", "json"]))["items"]
    }
    del others[home]
    if not others:
        pytest.skip("the cluster has one node")
    other, about = min(others.items())
    for namespace in (SYSTEM, NAMESPACE):
        there = run(
            ["kubectl", "-n", namespace, "get", "pods", f"--field-selector=spec.nodeName={other}", "-o", "name"]
        )
        assert not there, f"{other} has to be cordoned while the platform is installed; on it is {there}"
    run(["kubectl", "uncordon", other])
    both = Nodes(home, other)
    yield both
    if both.lost:
        both.find()
    if about["spec"].get("unschedulable"):
        run(["kubectl", "cordon", other])


@pytest.fixture(scope="module")
def stream(platform: Platform, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A stream whose drivers are on the node that is lost, as long as there is one; executors are where they will."""
    made = Stream(platform, NAME, Story(5, tmp_path_factory.mktemp(NAME)))
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [nodes.other]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [there]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    template = {"spec": {"affinity": affinity, "topologySpreadConstraints": []}}
    router = {"podTemplate": template, "min": 2, "max": 2, "partitions": 2, "executor": {"resources": EXECUTOR}}
    manifest = made.manifest(rebalance={"mode": "off"}, router=router)
    manifest["spec"]["workers"] |= {"replicas": 2}
    manifest["spec"]["workers"]["driver"] |= {"podTemplate": template}
    manifest["spec"] |= {
        "checkpoint": {"url": f"s3://streams/e2e/{NAME}"},
        "objectStore": {"endpoint": "http://dev-objects:8333", "credentialsSecret": {"name": "dev-objects"}},
    }
    made.kube.apply(manifest)
    made.wait_ready()
    made.wait("2 workers", lambda status: status["workers"]["ready"] == "2/2")
    made.send(made.story.draw(300, WORLD), 150.0)
    made.assert_exact()
    return made


def pods(stream: Stream, component: str) -> list[dict[str, Any]]:
    """A component's pods that are ready, and stay."""
    labels = f"spatialstream.dev/stream={stream.name},app.kubernetes.io/component={component}"
    return [each for each in stream.kube.list("pods", labels) if stream.kube.ready(each["metadata"]["name"])]


def where(stream: Stream, component: str) -> list[str]:
    """The nodes that they are on."""
    return sorted(each["spec"]["nodeName"] for each in pods(stream, component))


def silence(stream: Stream, act: Callable[[], object], longest: float, least: float = SOON) -> float:
    """Do something while rows come; the longest time, in seconds, that passed without one until they came again.

    Args:
        stream: the stream.
        act: what is done.
        longest: seconds that may pass without a row.
        least: seconds for which rows are looked at.
    """
    known = written(stream)
    part = stream.story.draw(round((3 * SOON + least) * RATE), WORLD, each=3, hot=60)
    with stream.sending(part, RATE):
        wait_for("rows", lambda: written(stream) > known, 60.0, stream.platform.state)
        count, found = written(stream), 0.0
        began = came = time.monotonic()
        with ThreadPoolExecutor(1) as doing:  # rows are looked at meanwhile, for it takes some seconds itself
            done = doing.submit(act)
            while came - began < least:
                rows, now = written(stream), time.monotonic()
                if rows > count:
                    found, count, came = max(found, now - came), rows, now
                assert now - came < longest, f"no row for {now - came:.0f} s\n{stream.platform.state()}"
            done.result()
    return found


def written(stream: Stream) -> int:
    """How many messages there are in the topic of results: it can be asked at any time, and does not wait for rows."""
    script = (
        "import sys; from confluent_kafka import Consumer, TopicPartition; "
        "consumer = Consumer({'bootstrap.servers': 'dev-kafka:9092', 'group.id': 'looking'}); "
        "print(consumer.get_watermark_offsets(TopicPartition(sys.argv[1], 0), timeout=20)[1])"
    )
    return int(stream.kube.exec(TOOLBOX, "python", "-c", script, f"{stream.id}.results"))


def told(what: str, seconds: float) -> None:
    """Say how long something took: the figures of docs/production.md."""
    print(f"\n{what}: {seconds:.0f} s", flush=True)


def test_a_lost_node_with_both_drivers_and_an_executor_costs_no_row(stream: Stream, nodes: Nodes) -> None:
    assert where(stream, "router") == where(stream, "worker") == [nodes.other]
    for component in ("router-executor", "executor"):
        assert where(stream, component) == sorted([nodes.home, nodes.other])

    told("without rows, after the loss of both drivers", silence(stream, nodes.lose, WITHOUT_DRIVERS))
    stream.assert_exact()
    assert where(stream, "router") == where(stream, "worker") == [nodes.home]


def test_a_node_that_is_found_has_none_of_its_old_pods_and_gets_executors_again(stream: Stream, nodes: Nodes) -> None:
    stream.wait("2 workers", lambda status: status["workers"]["ready"] == "2/2")
    nodes.find()

    def old() -> list[dict[str, Any]]:
        pods = stream.kube.list("pods", f"spatialstream.dev/stream={NAME}")
        return [each for each in pods if each["spec"].get("nodeName") == nodes.other]

    wait_for("its old pods to be gone", lambda: not old(), 120.0, stream.platform.state)
    with stream.sending(stream.story.draw(450, WORLD), RATE):
        stream.kube.kubectl("scale", "sps", NAME, "--replicas=1")
        stream.wait("1 worker", lambda status: status["workers"]["ready"] == "1/1")
        stream.kube.kubectl("scale", "sps", NAME, "--replicas=2")
        stream.wait("2 workers", lambda status: status["workers"]["ready"] == "2/2")
        one = pods(stream, "router-executor")[0]  # it has two at any time, so one makes room for another
        stream.kube.kill(one["metadata"]["name"])
        both = sorted([nodes.home, nodes.other])
        wait_for("one of the router's there", lambda: where(stream, "router-executor") == both, 120.0)
    stream.assert_exact()
    assert where(stream, "executor") == both


def test_a_slow_node_makes_rows_late_and_costs_none(stream: Stream, nodes: Nodes) -> None:
    with nodes.slow():
        told("without rows, with a slow node", silence(stream, lambda: None, WITHOUT_EXECUTOR, CUT))
    stream.assert_exact()


@pytest.mark.parametrize(("driver", "executor"), [("worker", "executor"), ("router", "router-executor")])
def test_a_cut_between_a_driver_and_one_of_its_executors_costs_no_row(
    stream: Stream, nodes: Nodes, driver: str, executor: str
) -> None:
    (one,) = pods(stream, driver)
    other = next(each for each in pods(stream, executor) if each["spec"]["nodeName"] != one["spec"]["nodeName"])
    between = {"first": one["status"]["podIP"], "second": other["status"]["podIP"]}
    before = stream.kube.uid(one["metadata"]["name"])
    try:
        cut = silence(stream, lambda: do("CUT_PODS", **between), WITHOUT_EXECUTOR, CUT)
    finally:
        do("JOIN_PODS", **between)
    told(f"without rows, with the {driver} cut off from one of its executors", cut)
    stream.assert_exact()
    assert stream.kube.uid(one["metadata"]["name"]) == before, "the driver goes on"
    wait_for("two executors", lambda: len(pods(stream, executor)) == 2, 180.0, stream.platform.state)


def test_a_lost_node_with_an_executor_costs_no_row_and_it_is_replaced(stream: Stream, nodes: Nodes) -> None:
    drivers = stream.kube.uid(f"{NAME}-router"), stream.kube.uid(f"{NAME}-worker")
    began = time.monotonic()
    told("without rows, after the loss of an executor", silence(stream, nodes.lose, WITHOUT_EXECUTOR))
    wait_for("another executor", lambda: where(stream, "executor") == [nodes.home] * 2, 120.0, stream.platform.state)
    told("until there is another executor, at the latest", time.monotonic() - began)
    stream.assert_exact()
    assert (stream.kube.uid(f"{NAME}-router"), stream.kube.uid(f"{NAME}-worker")) == drivers
    nodes.find()


def test_it_is_deleted_and_leaves_nothing_behind(stream: Stream, platform: Platform) -> None:
    stream.kube.kubectl("delete", "sps", NAME, "--timeout=180s", timeout=200.0)
    assert_nothing_left(platform, NAME)
