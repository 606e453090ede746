"""The operator scales and rebalances a stream, with a real routing store; the test plays its jobs and Prometheus."""

import pytest

from spatialstream.balance.settings import BalanceSettings
from spatialstream.store.reports import asked_executors, read_balance
from tests.api.client import eventually
from tests.api.play import SLOTS, first_version, report_skew
from tests.api.prometheus import Known

SKEW = (350.0, 1.0, 2.0, 1.0)
LEVEL = (4.0, 4.0, 2.0, 4.0)


@pytest.fixture
def known(prometheus):
    """Says what Prometheus knows of a stream."""

    def set_to(stream, **metrics):
        prometheus.known[stream.namespace, stream.name] = Known(**metrics)

    yield set_to
    prometheus.away = False


def adopted(store):
    """The jobs adopt the pending version."""
    pending = store.state().pending
    for stage in ("exported", "loaded"):
        store.acknowledge(pending.number, stage, range(SLOTS))
    store.activate(pending.number, store.state().active.epoch + 1)


def begun(stream, store, skewed=True):
    """The jobs run, under the first version."""
    store.create(first_version())
    if skewed:
        report_skew(store, first_version())
    return stream.start()


def test_the_number_of_executors_follows_the_scale_subresource(operator, api, played):
    stream = played()
    with stream.store() as store:
        begun(stream, store)
        eventually(lambda: asked_executors(store, "worker") == 1, "one executor is asked for")

        api.patch(f"{stream.path}/scale", {"spec": {"replicas": 3}})

        eventually(lambda: asked_executors(store, "worker") == 3, "three executors are asked for")
        stream.until(lambda status: status["workers"]["desired"] == 3, "the status says three")
        stream.says("Progressing", "True", "Scaling")
        scale = api.get(f"{stream.path}/scale")
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 1)
        assert scale["status"]["selector"] == "spatialstream.dev/stream=quakes,app.kubernetes.io/component=executor"
        for number in (2, 3):
            stream.executor(number)
        stream.until(lambda status: status["workers"]["ready"] == "3/3", "all three are there")
        api.patch(f"{stream.path}/scale", {"spec": {"replicas": 99}})
        eventually(lambda: asked_executors(store, "worker") == SLOTS, "no more than there are slots are asked for")
        # "0" is within no bounds either
        api.patch(f"{stream.path}/scale", {"spec": {"replicas": 0}})
        eventually(lambda: asked_executors(store, "worker") == 1, "no fewer than the minimum are asked for")
    stream.tells("Scaled", 3)


def test_a_router_with_executors_is_scaled_by_its_own_figures(operator, api, played, known):
    quick = {"enabled": True, "scaleUpStabilisation": "1s", "scaleDownStabilisation": "1s"}
    stream = played(autoscaling=quick, router={"max": 2}, workers={"max": 2})
    known(stream)
    with stream.store() as store:
        store.create(first_version(2))
        stream.runs("router")
        stream.runs("worker")
        stream.executor(1)
        stream.says("Ready", "False", "NoExecutors")
        assert "router has no executor" in stream.condition("Ready")["message"]
        stream.executor(1, "router")
        stream.says("Ready", "True")
        eventually(lambda: asked_executors(store, "router") == 1, "one executor is asked for")

        known(stream, waiting=60_000.0)

        eventually(
            lambda: asked_executors(store, "router") == 2, "two executors are asked for", now=lambda: stream.status
        )
        stream.until(lambda status: status["router"]["ready"] == "1/2", "the status says two")
        assert stream.says("Progressing", "True", "Scaling")["message"].startswith("Ready executors of the router: 1;")
        (event,) = stream.events("Scaled")
        assert event["note"].startswith("1 -> 2 executors of the router: ")
        stream.executor(2, "router")
        stream.says("Progressing", "False", "AsWanted")
        assert (stream.status["workers"]["ready"], asked_executors(store, "worker")) == ("1/1", 1)

        stream.edit(router={"max": None})

        stream.ends("router")
        stream.runs("router")
        stream.until(lambda status: "ready" not in status["router"], "a router of one pod has no executors")
        assert "autoscaling" not in stream.status["router"]


def test_who_rebalances_by_hand_finds_lambda_of_the_spec(operator, api, played):
    stream = played(index={"imbalance": 3.0, "similarity": 0.25, "similarityForm": "printed", "maxLeaves": 100})
    with stream.store() as store:
        begun(stream, store)
        eventually(lambda: read_balance(store) == BalanceSettings(3.0, 0.25, 100, printed=True), "it is kept")

        api.patch(stream.path, {"spec": {"index": {"imbalance": 8.0}}})

        eventually(lambda: read_balance(store) == BalanceSettings(8.0, 0.25, 100, printed=True), "the change is kept")


@pytest.mark.gate
def test_the_number_of_executors_follows_the_figures(operator, played, known):
    quick = {"enabled": True, "targetUtilisation": 1, "scaleUpStabilisation": "1s", "scaleDownStabilisation": "1s"}
    stream = played(autoscaling=quick, workers={"max": 2})
    known(stream, busy=0.0)
    with stream.store() as store:
        store.create(first_version(2))
        stream.start()
        stream.until(lambda status: status["autoscaling"]["reason"] == "Idle", "there is nothing to do")
        eventually(lambda: asked_executors(store, "worker") == 1, "one executor is asked for")

        known(stream, busy=0.05)

        eventually(
            lambda: asked_executors(store, "worker") == 2, "two executors are asked for", now=lambda: stream.status
        )
        stream.until(lambda status: status["workers"]["ready"] == "1/2", "the status says two")
        (event,) = stream.events("Scaled")
        assert event["note"].startswith("1 -> 2 executors: ")
        stream.executor(2)
        stream.until(lambda status: status["workers"]["ready"] == "2/2", "both are there")
        stream.until(lambda status: status["autoscaling"]["utilisation"] == "5%", "the status says how much is used")


@pytest.mark.gate
def test_skewed_load_is_rebalanced(operator, played, known):
    stream = played()
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)
        stream.says("Balanced", "False")

        pending = eventually(lambda: store.state().pending, "a version is published", now=lambda: stream.status)
        stream.rebalances("Adopting")
        assert (pending.number, pending.base) == (1, 0)
        proposal = stream.status["rebalance"]["proposal"]
        assert proposal["id"] == pending.proposal == pending.record["id"]
        assert stream.says("Balanced", "False", "Rebalancing")
        assert stream.status["phase"] == "Rebalancing"
        stream.until(lambda status: status["routing"].get("pendingVersion") == 1, "the status shows what is pending")
        adopted(store)
        known(stream, loads=LEVEL, version=1)

        stream.says("Balanced", "True")
        done = stream.until(lambda status: status["rebalance"].get("last"), "its end is written down")
        assert (done["outcome"], done["version"], done["id"]) == ("balanced", 1, pending.proposal)
        stream.until(lambda status: status["routing"].get("version") == 1, "the status shows what is active")
        assert "pendingVersion" not in stream.status["routing"]
        assert store.state().last == 1
    for reason in ("Published", "Activated", "Rebalanced", "Balanced"):
        stream.tells(reason)
    counted = {"namespace": stream.namespace, "outcome": "balanced", "strategy": proposal["strategy"]}
    assert operator.metric("spatialstream_operator_rebalances_total", **counted) == 1.0


def test_a_tree_that_was_adjusted_is_built_anew_once_enough_has_been_seen(operator, played, known):
    stream = played(rebalance={"rebuildAfter": 2_000})
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)
        eventually(lambda: store.state().pending, "load is out of balance", now=lambda: stream.status)
        adopted(store)
        known(stream, loads=LEVEL, version=1)
        stream.until(lambda status: status["rebalance"].get("last"), "it is in balance again")
        assert "rebuiltVersion" not in stream.status["routing"]

        report_skew(store, store.load(1), 2_000)

        pending = eventually(lambda: store.state().pending, "the tree is built anew", now=lambda: stream.status)
        assert (pending.number, pending.record["strategy"]) == (2, "rebuild")
        operator.kill()
        adopted(store)
        known(stream, loads=LEVEL, version=2)
        operator.start()
        stream.until(lambda status: status["routing"].get("rebuiltVersion") == 2, "the status says so")
        reconciliations = operator.reconciliations(stream)
        eventually(
            lambda: operator.reconciliations(stream) >= reconciliations + 8,
            "it is reconciled for longer than the cooldown",
        )
        assert store.state().last == 2


def test_a_planned_index_is_a_qt_tree_until_enough_has_been_seen(operator, played, known):
    stream = played(index={"kind": "auto"}, rebalance={"rebuildAfter": 2_000})
    known(stream, loads=LEVEL)
    with stream.store() as store:
        begun(stream, store)
        stream.until(lambda status: status["routing"].get("kind") == "qt-tree", "it begins with a QT-tree")
        assert "reason" not in stream.status["routing"]

        report_skew(store, store.load(0), 2_000)

        pending = eventually(lambda: store.state().pending, "it is planned", now=lambda: stream.status)
        assert (pending.record["strategy"], pending.record["kind"]) == ("rebuild", store.load(1).index.kind)
        adopted(store)
        known(stream, loads=LEVEL, version=1)
        routing = stream.until(lambda status: status["routing"].get("reason"), "the status says why")
        assert "the slowest slot of" in routing
        assert stream.status["routing"]["kind"] == pending.record["kind"]
        stream.tells("IndexPlanned")
        reconciliations = operator.reconciliations(stream)
        eventually(lambda: operator.reconciliations(stream) >= reconciliations + 3, "it is reconciled again")
        assert len(stream.events("IndexPlanned")) == 1


def test_a_proposal_waits_for_its_approval(operator, played, known):
    stream = played(rebalance={"mode": "approve"})
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)
        waiting = stream.rebalances("AwaitingApproval")["proposal"]
        assert "Lmax/Lmin" in waiting["text"]
        assert stream.says("Balanced", "False", "AwaitingApproval")

        stream.annotate(approve="another-id")
        eventually(lambda: stream.events("ApprovalIgnored"), "the wrong approval is told of")
        reconciliations = operator.reconciliations(stream)
        eventually(lambda: operator.reconciliations(stream) >= reconciliations + 3, "it is reconciled again")
        assert store.state().pending is None
        stream.tells("ApprovalIgnored")

        stream.annotate(approve=waiting["id"])
        pending = eventually(lambda: store.state().pending, "the approved version is published")
        assert pending.proposal == waiting["id"]
    stream.tells("ProposalReady")


@pytest.mark.parametrize("how", ["away", "stale", "nothing"])
def test_without_figures_nothing_is_changed(operator, prometheus, played, known, how):
    stream = played()
    if how != "nothing":
        known(stream, loads=SKEW, age=600.0 if how == "stale" else 0.0)
    prometheus.away = how == "away"
    with stream.store() as store:
        begun(stream, store)

        said = stream.says("Balanced", "Unknown", "MetricsStale" if how == "stale" else "MetricsMissing")

        assert ("cannot be reached" in said["message"] or "unexpected response" in said["message"]) == (how == "away")
        reconciliations = operator.reconciliations(stream)
        eventually(
            lambda: operator.reconciliations(stream) >= reconciliations + 8,
            "it is reconciled for longer than imbalance has to last",
        )
        assert store.state().pending is None
        assert stream.status["rebalance"]["phase"] == "Watching"


def test_what_nobody_adopts_is_withdrawn(operator, played, known):
    stream = played(rebalance={"timeout": "1s", "cooldown": "60s"})
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)

        stream.rebalances("Cooldown")

        last = stream.status["rebalance"]["last"]
        assert (last["outcome"], last["version"]) == ("withdrawn", 1)
        assert store.state().pending is None
        assert store.versions() == (0,)
    stream.tells("AdoptionTimedOut")


def test_a_rebalance_survives_the_operators_death_at_any_moment(operator, played, known):
    """The operator is killed in each phase, or between a phase and what follows; one version is published in all."""
    stream = played()
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store, skewed=False)  # there are no counts to make a proposal from yet
        stream.rebalances("Proposing")
        operator.kill()
        report_skew(store, first_version())
        operator.start()
        stream.rebalances("Adopting")
        pending = store.state().pending
        operator.kill()
        # as if it had died after the version was published, and before it could say so
        stream.api.patch(f"{stream.path}/status", {"status": {"rebalance": {"phase": "Publishing", "version": 0}}})
        operator.start()
        stream.rebalances("Adopting")
        assert store.state().pending == pending
        operator.kill()
        adopted(store)
        known(stream, loads=LEVEL, version=1)
        operator.start()
        stream.until(lambda status: status["rebalance"]["phase"] in ("Verifying", "Cooldown", "Watching"), "it goes on")
        operator.kill()
        operator.start()
        stream.says("Balanced", "True")
        done = stream.until(lambda status: status["rebalance"].get("last"), "its end is written down")
        assert (done["outcome"], done["version"]) == ("balanced", 1)
        assert store.state().last == 1
        assert store.state().active.number == 1
    status = stream.status
    assert (status["router"]["restarts"], status["workers"]["restarts"]) == (0, 0)


def test_the_operator_dies_before_it_publishes(operator, played, known):
    stream = played(rebalance={"mode": "approve"})
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)
        waiting = stream.rebalances("AwaitingApproval")["proposal"]
        operator.kill()
        stream.annotate(approve=waiting["id"])
        stream.api.patch(f"{stream.path}/status", {"status": {"rebalance": {"phase": "Publishing"}}})

        operator.start()

        pending = eventually(lambda: store.state().pending, "the version is published", now=lambda: stream.status)
        assert pending.proposal == waiting["id"]
        assert store.state().last == 1


def test_a_withdrawal_is_finished_by_the_next_operator(operator, played, known):
    stream = played(rebalance={"cooldown": "60s"})
    known(stream, loads=SKEW)
    with stream.store() as store:
        begun(stream, store)
        stream.rebalances("Adopting")
        operator.kill()
        stream.api.patch(f"{stream.path}/status", {"status": {"rebalance": {"phase": "Withdrawing"}}})

        operator.start()

        stream.rebalances("Cooldown")
        assert stream.status["rebalance"]["last"]["outcome"] == "withdrawn"
        assert store.state().pending is None


def test_the_secret_of_zookeeper_has_to_be_right(operator, api, played):
    secret = {"credentialsSecret": {"name": "zk", "key": "credentials"}}
    stream = played(zookeeper=secret | {"servers": "127.0.0.1:1"})
    secrets = f"/api/v1/namespaces/{stream.namespace}/secrets"
    said = stream.says("Degraded", "True")
    assert "there is no Secret zk in the namespace" in said["message"]

    labels = {"spatialstream.dev/allowed": "true"}
    api.post(secrets, {"metadata": {"name": "zk", "labels": labels}, "stringData": {"other": "x"}})
    stream.until(lambda _: "has no key credentials" in stream.condition("Degraded")["message"], "the key is missing")
    for content in ("dXNlcg==", "/////w=="):  # no password; no text
        api.patch(f"{secrets}/zk", {"data": {"credentials": content}})
        stream.until(
            lambda _: "has to hold user:password" in stream.condition("Degraded")["message"], "there is no password"
        )
    api.patch(f"{secrets}/zk", {"stringData": {"credentials": "user:secret"}})
    stream.says("Degraded", "False")
    assert stream.condition("Balanced")["reason"] in ("RoutingUnknown", "MetricsMissing")
