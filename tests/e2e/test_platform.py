"""The platform's whole life on a real cluster, told in the order of these tests."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from spatialstream.balance.attribution import OBJECT
from spatialstream.cli.demo import RULE
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import Space
from tests.e2e.data import Bounds, Story
from tests.e2e.kube import Kube, run, wait_for
from tests.e2e.platform import EXECUTOR, GOING, NAMESPACE, SYSTEM, TOOLBOX, Platform, Stream
from tests.known_listeners import TABLE, named_where
from tests.lengths import AT_LENGTH

WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)
# each within one leaf of the first tree, of which neither PM nor FM can give a slot a part
EUROPE: Bounds = (5.0, 46.0, 30.0, 60.0)
BRAZIL: Bounds = (-60.0, -25.0, -40.0, -5.0)

PLANE: Bounds = (0.0, 0.0, 100.0, 100.0)

RATE = 150.0

# Results take tenths of a second here: all load makes them later than the least that may be asked for, whatever the
# machine, and none makes them later than a minute. So two workers are wanted seconds after load has come, and one when
# a minute is early enough. tests/unit/operator plays this through with figures as Prometheus makes them.
SCALING: dict[str, Any] = {"enabled": True, "scaleUpStabilisation": "5s", "scaleDownStabilisation": "5s"}
STRICT, LENIENT = SCALING | {"targetDelay": "10ms"}, SCALING | {"targetDelay": "1m", "targetUtilisation": 95}

# with every change the operator dies in the middle of a rebalance, and servers do in tests/cluster
VICTIMS = [
    *("executor", pytest.param("worker", marks=pytest.mark.gate), "router"),
    *(("operator", "zookeeper", "kafka") if AT_LENGTH else ()),
]

QUICK = {"interval": "3s", "stabilisation": "6s", "cooldown": "10s", "timeout": "2m"}
"""Times of rebalancing that a test can wait for."""


@pytest.fixture(scope="module")
def quakes(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """The stream that the story is about."""
    return Stream(platform, "quakes", Story(1, tmp_path_factory.mktemp("quakes"), rule=RULE))


@pytest.fixture(scope="module")
def plane(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A stream of another space beside it."""
    return Stream(platform, "plane", Story(2, tmp_path_factory.mktemp("plane"), Space.planar(*PLANE)))


def rebalanced(stream: Stream, bounds: Bounds, before: int, kill: str = "") -> None:
    """Send objects and queries of one region until the operator has moved load, and says that balance is back.

    Args:
        stream: the stream.
        bounds: the region.
        before: the version that is active before.
        kill: phase of rebalancing in which the operator is killed.
    """
    killed = not kill

    def done() -> bool:
        status = stream.status
        return int(status["routing"].get("version", -1)) > before and stream.condition("Balanced") == "True"

    for number in range(16):
        part = stream.story.draw(1500, bounds, hot=150 if number == 0 else 0)
        with stream.sending(part, RATE):
            if not killed:
                killed = _killed_in(stream, kill)
        if killed and done():
            return
    raise AssertionError(f"load was not balanced\n{stream.platform.state()}")


def _killed_in(stream: Stream, phase: str) -> bool:
    """Kill the operator if rebalancing gets as far as a phase while the part is being sent."""
    try:
        stream.wait(f"rebalancing to be {phase}", lambda status: status["rebalance"]["phase"] == phase, 8.0)
    except AssertionError:
        return False
    stream.platform.system.kill(stream.platform.operator)
    return True


# --------------------------------------------------------------------------------------------------------- beginning


@pytest.mark.gate
def test_the_chart_tests_itself(platform: Platform) -> None:
    output = platform.system.helm("test", "spatialstream")
    assert "Phase:          Succeeded" in output


@pytest.mark.gate
def test_a_stream_is_applied_and_runs(quakes: Stream) -> None:
    quakes.kube.apply(
        quakes.manifest(
            index={"leaves": 16, "imbalance": 2.0},
            rebalance=QUICK | {"rebuildAfter": 0},
        )
    )
    quakes.wait_ready()
    line = quakes.kube.kubectl("get", "sps", "quakes", "--no-headers").split()
    assert [*line[:3], line[4]] == ["quakes", "Running", "True", "1/1"]
    assert line[3].endswith("s"), "the operator has looked lately"
    events = quakes.kube.kubectl("events", "--for", "spatialstream/quakes")
    assert "Ready" in events


@pytest.mark.gate
def test_real_earthquakes_and_all_kinds_of_query_are_exact(quakes: Stream) -> None:
    quakes.send(quakes.story.earthquakes(), 300.0)
    quakes.assert_exact()
    quakes.send(quakes.story.draw(1500, WORLD, each=4), 300.0)
    quakes.assert_exact()
    assert {row["type"] for row in quakes.story.rows} == set(TYPES)


@pytest.mark.gate
def test_skew_is_noticed_and_balanced(quakes: Stream, platform: Platform) -> None:
    """With every change by an operator that is killed in the middle of it; at length that is another rebalance."""
    rebalanced(quakes, EUROPE, 0, kill="" if AT_LENGTH else "Verifying")
    quakes.assert_exact()
    fired = platform.prometheus('max_over_time(ALERTS{alertname="SpatialStreamImbalanced",alertstate="firing"}[15m])')
    assert "quakes" in {each["metric"]["stream"] for each in fired}
    limits = platform.prometheus('spatialstream_operator_imbalance_limit{stream="quakes"}')
    assert [float(each["value"][1]) for each in limits] == [2.0]
    assert quakes.status["rebalance"]["last"]["outcome"] == "balanced"


@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change it is killed in the rebalance before")
def test_an_operator_killed_in_the_middle_of_a_rebalance_goes_on(quakes: Stream) -> None:
    rebalanced(quakes, BRAZIL, int(quakes.status["routing"]["version"]), kill="Verifying")
    quakes.assert_exact()


# ------------------------------------------------------------------------------------------------------------ scaling


@pytest.mark.skipif(not AT_LENGTH, reason="at length: executors also come and go by what Prometheus says")
def test_scaled_out_and_in(quakes: Stream) -> None:
    with quakes.sending(quakes.story.draw(1500, WORLD), RATE / 5):
        quakes.kube.kubectl("scale", "sps", "quakes", "--replicas=2")
        quakes.wait("2 workers", lambda status: status["workers"]["ready"] == "2/2")
        quakes.kube.kubectl("scale", "sps", "quakes", "--replicas=1")
        quakes.wait("1 worker", lambda status: status["workers"]["ready"] == "1/1")
    quakes.assert_exact()


# ------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("victim", VICTIMS)
def test_killed(quakes: Stream, platform: Platform, victim: str) -> None:
    names = {
        "zookeeper": "dev-zookeeper-0",
        "kafka": "dev-kafka-0",
        "router": "quakes-router",
        "worker": "quakes-worker",
    }
    with quakes.sending(quakes.story.draw(1000, WORLD), RATE):
        if victim == "operator":
            pod, kube = platform.operator, platform.system
            kube.kill(pod)
            wait_for("another operator", lambda: platform.operator != pod, 120.0, platform.state)
            wait_for("it to be ready", lambda: kube.ready(platform.operator), 120.0, platform.state)
        elif victim == "executor":
            executors = quakes.kube.list("pods", "spatialstream.dev/stream=quakes,app.kubernetes.io/component=executor")
            quakes.kube.kill(executors[0]["metadata"]["name"])
        else:
            pod = names[victim]
            uid = quakes.kube.uid(pod)
            quakes.kube.kill(pod)
            wait_for(f"another {pod}", lambda: quakes.kube.ready(pod, uid), 240.0, platform.state)
    quakes.assert_exact()
    quakes.wait_ready()


# --------------------------------------------------------------------------------------------------------- day to day


def test_a_change_restarts_only_the_job_that_it_concerns(quakes: Stream, platform: Platform) -> None:
    router, worker = quakes.kube.uid("quakes-router"), quakes.kube.uid("quakes-worker")
    quakes.patch(rebalance={"cooldown": "1m"})
    generation = quakes.body["metadata"]["generation"]
    quakes.wait("the change to be seen", lambda status: status["observedGeneration"] == generation)
    assert (quakes.kube.uid("quakes-router"), quakes.kube.uid("quakes-worker")) == (router, worker)
    with quakes.sending(quakes.story.draw(600, WORLD), RATE / 3):
        quakes.patch(maxRecordBytes=65536)
        wait_for("another router", lambda: quakes.kube.ready("quakes-router", router), 180.0, platform.state)
    assert quakes.kube.uid("quakes-worker") == worker
    quakes.assert_exact()


def test_suspended_and_resumed(quakes: Stream) -> None:
    quakes.patch(suspend=True)
    quakes.wait("the stream to be suspended", lambda status: status["phase"] == "Suspended")
    wait_for("its pods to end", lambda: not quakes.kube.list("pods", "spatialstream.dev/stream=quakes"), 180.0)
    quakes.send(quakes.story.draw(600, WORLD), 0.0)
    quakes.patch(suspend=False)
    quakes.wait_ready()
    quakes.assert_exact()


def test_two_streams_side_by_side(quakes: Stream, plane: Stream) -> None:
    router = {"max": 2, "executor": {"resources": EXECUTOR}}
    plane.kube.apply(plane.manifest(rebalance={"mode": "off", "interval": "3s"}, router=router))
    plane.wait_ready()
    assert plane.status["router"]["ready"] == "1/1"
    with quakes.sending(quakes.story.draw(600, WORLD), RATE / 2):
        plane.send(plane.story.draw(800, PLANE, each=3), RATE)
    quakes.assert_exact()
    plane.assert_exact()


def test_a_skewed_stream_without_history_gets_a_tree_of_its_own(plane: Stream, platform: Platform) -> None:
    """All objects come to a hundredth of the plane; the tree that it began with knows nothing of that.

    What a few thousand objects tell is not all of it: how even their tree is for those that follow differs from time to
    time. What is promised is the stream's own limit, beyond which a strategy more follows.
    """
    west, south, east, north = PLANE
    corner = west, south, west + (east - west) / 10, south + (north - south) / 10

    def value(query: str) -> float:
        (found,) = platform.prometheus(query)
        return float(found["value"][1])

    def unevenness() -> float:
        """Lmax/Lmin of what slots were counted to do lately, in candidates that CRQs checked."""
        rates = (f'rate(spatialstream_slot_{what}_total{{pod="plane-worker"}}[20s])' for what in ("objects", "checked"))
        work = "({} * {} + {})".format(OBJECT, *rates)
        return value(f"max{work} / min{work}")

    for _ in range(3):  # the router says every ten seconds what it has seen: by the end that is enough
        with plane.sending(plane.story.draw(1500, corner), RATE):
            pass
    limit = value('spatialstream_operator_imbalance_limit{stream="plane"}')
    assert unevenness() > limit
    plane.patch(rebalance=QUICK | {"mode": "auto", "rebuildAfter": 2_000})

    def rebuilt() -> bool:
        last = plane.status["rebalance"].get("last") or {}
        adopted = "(rebuild)" in plane.kube.kubectl("events", "--for", "spatialstream/plane")
        return adopted and last.get("outcome") == "balanced"

    for _ in range(16):
        with plane.sending(plane.story.draw(1500, corner), RATE):
            pass
        done = rebuilt() and unevenness() <= limit
        if done:
            break
    assert done, f"{unevenness()}\n{platform.state()}"
    plane.assert_exact()
    plane.patch(rebalance={"mode": "off"})


def test_executors_follow_the_load_by_what_prometheus_says(plane: Stream, platform: Platform) -> None:
    plane.patch(autoscaling=LENIENT)
    plane.wait("one worker to be enough", lambda status: status["autoscaling"]["reason"] == "Idle", 60.0)
    plane.wait("one router to be enough", lambda status: status["router"]["autoscaling"]["reason"] == "Idle", 60.0)
    plane.patch(autoscaling=STRICT)
    with plane.sending(plane.story.draw(3000, PLANE), RATE):
        plane.wait("2 workers to be wanted", lambda status: status["workers"]["desired"] == 2, 60.0)
        plane.wait("2 executors of the router to be wanted", lambda status: status["router"]["desired"] == 2, 60.0)
    plane.wait("2 workers", lambda status: status["workers"]["ready"] == "2/2", 120.0)
    plane.wait("2 executors of the router", lambda status: status["router"]["ready"] == "2/2", 120.0)
    for told in ("desired_workers", "desired_routers"):
        found = platform.prometheus(f'max(spatialstream_operator_{told}{{stream="plane"}})')
        assert [float(each["value"][1]) for each in found] == [2.0]
    with plane.sending(plane.story.draw(1500, PLANE), RATE):
        plane.patch(autoscaling=LENIENT)
    plane.wait("1 worker", lambda status: status["workers"]["ready"] == "1/1", 120.0)
    plane.wait("1 executor of the router", lambda status: status["router"]["ready"] == "1/1", 120.0)
    plane.assert_exact()
    events = plane.kube.kubectl("events", "--for", "spatialstream/plane")
    for change in ("1 -> 2", "2 -> 1"):
        assert f"{change} executors: " in events
        assert f"{change} executors of the router: " in events


def test_a_stream_is_looked_at_from_outside_and_deleted(plane: Stream, platform: Platform) -> None:
    router = plane.kube.uid("plane-router")
    plane.patch(time={"idle": "2s"})  # a query asked at the end would wait for silent partitions
    wait_for("another router", lambda: plane.kube.ready("plane-router", router), 180.0, platform.state)
    plane.wait("it to be said", lambda status: status["phase"] == "Running")
    look_at_from_outside(plane)
    plane.kube.kubectl("delete", "sps", "plane", "--timeout=180s", timeout=200.0)
    assert_nothing_left(platform, "plane")


def look_at_from_outside(stream: Stream) -> None:
    """Commands on this machine, which has no way to Kafka and ZooKeeper but through the cluster."""

    def command(*arguments: str) -> str:
        return run([sys.executable, "-m", "spatialstream", *arguments, "--namespace", NAMESPACE])

    assert "Running" in command("status", stream.name)
    results = command("results", "--stream", stream.name, "--patience", "2s", "--type", "CTQ")
    expected = [row for row in stream.story.rows if row["type"] == "CTQ"]
    assert sorted(results.splitlines()) == sorted(json.dumps(row, ensure_ascii=False) for row in expected)
    command("rebalance", "--stream", stream.name, "--dry-run", "--strategy", "FM")
    asked = ("--type", "SRQ", "--box", "0", "0", "100", "100", "--duration", "3650d")
    row = json.loads(command("query", "--stream", stream.name, *asked))
    assert {each["id"] for each in row["objects"]} == {each.id for each in stream.story.objects}


def test_a_stream_whose_state_is_in_an_object_store_shares_no_folder(
    platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream = Stream(platform, "stored", Story(4, tmp_path_factory.mktemp("stored")))
    manifest = stream.manifest(rebalance={"mode": "off"})
    manifest["spec"] |= {
        "checkpoint": {"url": "s3://streams/e2e/stored"},
        "objectStore": {"endpoint": "http://dev-objects:8333", "credentialsSecret": {"name": "dev-objects"}},
    }
    stream.kube.apply(manifest)
    stream.wait_ready()
    stream.send(stream.story.draw(600, WORLD, each=3), RATE)
    stream.assert_exact()
    assert stored(platform, "e2e/stored")
    for victim in ("worker", *(["executor", "dev-objects-0"] if AT_LENGTH else [])):
        with stream.sending(stream.story.draw(400, WORLD), RATE):
            pods = stream.kube.list("pods", f"spatialstream.dev/stream=stored,app.kubernetes.io/component={victim}")
            stream.kube.kill(pods[0]["metadata"]["name"] if pods else victim)
        stream.assert_exact()
    stream.kube.kubectl("delete", "sps", "stored", "--timeout=180s", timeout=200.0)
    assert_nothing_left(platform, "stored")
    assert stored(platform, "e2e/stored") == []


def stored(platform: Platform, prefix: str) -> list[str]:
    """Names of what is in the bucket of the streams, below a prefix."""
    secret = platform.kube.get("secret", "dev-objects")
    assert secret is not None
    platform.kube.exec(TOOLBOX, "sh", "-c", "cat > /tmp/keys", data=base64.b64decode(secret["data"]["credentials"]))
    script = (
        "import sys; from spatialstream.connectors.places import storage_at; "
        "print(*storage_at(sys.argv[1], 'url').list(''), sep='\\n')"
    )
    told = ("AWS_ENDPOINT_URL=http://dev-objects:8333", "AWS_SHARED_CREDENTIALS_FILE=/tmp/keys")
    return platform.kube.exec(TOOLBOX, "env", *told, "python", "-c", script, f"s3://streams/{prefix}").split()


def test_the_chart_is_upgraded(quakes: Stream, platform: Platform) -> None:
    pod = platform.operator
    drivers = quakes.kube.uid("quakes-router"), quakes.kube.uid("quakes-worker")
    platform.upgrade(log={"level": "debug"}, podLabels={"upgraded": "yes"})
    wait_for("another operator", lambda: platform.operator != pod, 120.0, platform.state)
    quakes.send(quakes.story.draw(300, WORLD), RATE)
    quakes.assert_exact()
    assert (quakes.kube.uid("quakes-router"), quakes.kube.uid("quakes-worker")) == drivers


def test_accounts_can_do_what_they_need_and_nothing_else(platform: Platform) -> None:
    operator, driver = f"{SYSTEM}:spatialstream", f"{NAMESPACE}:quakes-driver"
    can = platform.kube.can
    assert can(operator, "create", "pods", NAMESPACE)
    assert can(operator, "patch", "spatialstreams/status", NAMESPACE)
    for verb, resource in (
        ("list", "secrets"),
        ("create", "secrets"),
        ("create", "pods/exec"),
        ("patch", "pods"),
        ("create", "clusterroles"),
        ("create", "clusterrolebindings"),
        ("delete", "namespaces"),
        ("list", "nodes"),
        ("create", "deployments.apps"),
        ("delete", "persistentvolumeclaims"),
        ("create", "spatialstreams"),
        ("delete", "spatialstreams"),
    ):
        assert not can(operator, verb, resource, NAMESPACE), (verb, resource)
    assert can(driver, "create", "pods", NAMESPACE)
    for verb, resource, namespace in (
        ("create", "pods", SYSTEM),
        ("get", "pods", None),
        ("get", "secrets", NAMESPACE),
        ("get", "configmaps", NAMESPACE),
        ("create", "pods/exec", NAMESPACE),
        ("patch", "spatialstreams", NAMESPACE),
        ("create", "rolebindings", NAMESPACE),
        ("delete", "persistentvolumeclaims", NAMESPACE),
    ):
        assert not can(driver, verb, resource, namespace), (verb, resource, namespace)


def test_a_pod_that_does_not_know_the_secret_is_no_executor(quakes: Stream) -> None:
    worker = quakes.kube.get("pod", "quakes-worker")
    assert worker is not None
    # one that is let in stays until it is stopped: status 124
    script = (
        'timeout 60 $JAVA_HOME/bin/java -Xmx256m -cp "$SPARK_HOME/jars/*" '
        "org.apache.spark.executor.CoarseGrainedExecutorBackend --executor-id 99 --cores 1 --app-id intruder "
        "--hostname 127.0.0.1 --resourceProfileId 0 --driver-url spark://CoarseGrainedScheduler@$0:7078 "
        ">/dev/null 2>&1; echo status $?"
    )
    assert quakes.kube.exec(TOOLBOX, "sh", "-c", script, worker["status"]["podIP"]).strip() == "status 1"
    quakes.wait("its executors to be its own", lambda status: status["workers"]["ready"] == "1/1")


def test_nothing_listens_in_a_pod_that_the_guide_does_not_tell_and_strangers_are_refused(
    quakes: Stream, platform: Platform
) -> None:
    """Everything that listens is tried from within its pod, where no policy keeps anybody out."""
    found = set[tuple[str, str]]()
    for kube, selector in ((quakes.kube, "spatialstream.dev/stream=quakes"), (platform.system, "")):
        pods = [each for each in kube.list("pods", selector) if each["status"]["phase"] == "Running"]
        for pod in [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]:
            found |= {(row.process, row.what) for _, row in named_where(run_in(kube, pod))}
    assert {(each.process, each.what) for each in TABLE} - found == set()


def run_in(kube: Kube, pod: str) -> Callable[[str, object], Any]:
    """Runs a script of Python in a pod, with JSON as its input and its output."""

    def run_script(script: str, given: object) -> Any:
        return json.loads(kube.exec(pod, "python", "-c", script, data=json.dumps(given).encode()))

    return run_script


# ---------------------------------------------------------------------------------------------------------------- end


@pytest.mark.gate
def test_deletion_leaves_nothing_behind(quakes: Stream, platform: Platform) -> None:
    quakes.kube.kubectl("delete", "sps", "quakes", "--timeout=240s", timeout=260.0)
    assert_nothing_left(platform, "quakes")


def test_a_namespace_goes_with_its_stream_and_the_operator_stays(
    platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream = Stream(platform, "going", Story(3, tmp_path_factory.mktemp("going")))
    manifest = stream.manifest(
        kafka={"bootstrapServers": f"dev-kafka.{NAMESPACE}.svc:9092"},
        zookeeper={"servers": f"dev-zookeeper.{NAMESPACE}.svc:2181"},
        checkpoint={"claimName": "checkpoints"},
    )
    manifest["metadata"]["namespace"] = GOING
    kube = Kube(GOING)
    kube.apply(*platform.claim("checkpoints"), manifest)

    def started() -> bool:
        found = kube.get("sps", "going") or {}
        return bool(found.get("status", {}).get("router", {}).get("ran") == "yes")

    wait_for("the router to be started", started, 120.0, lambda: kube.kubectl("describe", "pods"))
    operator = platform.system.uid(platform.operator)

    run(["kubectl", "delete", "namespace", GOING, "--timeout=90s"], timeout=100.0)

    assert platform.system.uid(platform.operator) == operator
    assert platform.system.ready(platform.operator)
    log = platform.system.kubectl("logs", "deployment/spatialstream")
    assert f"{GOING}/going: no pod can remove the stream's external state" in log


def assert_nothing_left(platform: Platform, name: str) -> None:
    """Neither in Kubernetes nor in ZooKeeper, nor internal topics, nor in the volume."""
    kube = platform.kube
    kinds = "pods,services,configmaps,serviceaccounts,roles,rolebindings"
    wait_for(
        f"all of {name} to be gone",
        lambda: not kube.list(kinds, f"spatialstream.dev/stream={name}"),
        120.0,
        platform.state,
    )
    script = (
        "import sys; from kazoo.client import KazooClient; from confluent_kafka.admin import AdminClient; "
        "z = KazooClient('dev-zookeeper:2181'); z.start(); print(z.get_children('/spatialstream')); "
        "print(sorted(AdminClient({'bootstrap.servers': 'dev-kafka:9092'}).list_topics(timeout=30).topics))"
    )
    paths, topics = kube.exec(TOOLBOX, "python", "-c", script).splitlines()
    stream = f"{NAMESPACE}.{name}"
    assert f"'{stream}'" not in paths
    kept = [kind for kind in ("blocks", "epochs") if f"'{stream}.{kind}'" in topics]
    assert kept == []
    assert f"'{stream}.results'" in topics
    assert kube.exec(TOOLBOX, "sh", "-c", f"ls /checkpoints/{name} 2>/dev/null || true").split() == []
