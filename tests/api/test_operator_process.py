"""The operator as a process: quiet when nothing happens, alone, replaced when it dies, content with few rights."""

import json
import os
import signal

import pytest

from tests.api.client import eventually
from tests.api.installation import install
from tests.api.operators import OperatorProcess
from tests.api.play import first_version
from tests.api.prometheus import Known

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/spatialstream-operator"


@pytest.fixture
def second(tmp_path_factory, server, api, installation, prometheus):
    """Another operator of the same installation, not started yet."""
    other = OperatorProcess(
        tmp_path_factory.mktemp("second"),
        server,
        installation.token(api),
        installation.namespace,
        "operator-1",
        PROMETHEUS_URL=prometheus.url,
    )
    yield other
    other.kill()


def holder(api, namespace):
    return api.get(LEASES.format(namespace))["spec"].get("holderIdentity", "")


def changes(server, user, namespace):
    """How many requests to change something a user has made about a namespace."""
    records = [json.loads(line) for line in server.audit.read_text().splitlines()]
    return [
        (each["verb"], each["requestURI"])
        for each in records
        if each["user"]["username"] == user and each.get("objectRef", {}).get("namespace") == namespace
    ]


def test_nothing_is_written_while_nothing_happens(operator, server, installation, played, prometheus):
    stream = played(rebalance={"interval": "1s"})
    prometheus.known[stream.namespace, stream.name] = Known()
    with stream.store() as store:
        store.create(first_version())
        stream.start()
        stream.says("Balanced", "True")
        reconciliations = operator.reconciliations(stream)
        eventually(
            lambda: operator.reconciliations(stream) >= reconciliations + 4, "all that was to be said has been said"
        )
        before, said = changes(server, installation.user, stream.namespace), len(stream.events())
        version = stream.body["metadata"]["resourceVersion"]
        reconciliations = operator.reconciliations(stream)

        eventually(
            lambda: operator.reconciliations(stream) >= reconciliations + 12, "it has been reconciled for a while"
        )

        assert changes(server, installation.user, stream.namespace)[len(before) :] == []
    assert before, "the log of changes works"
    assert stream.body["metadata"]["resourceVersion"] == version
    assert len(stream.events()) == said


@pytest.mark.gate
def test_only_one_works_and_another_takes_over_when_it_dies(operator, second, api, installation, played):
    space = installation.namespace
    second.start()
    assert not second.ready
    assert holder(api, space) == "operator-0"
    stream = played()
    stream.runs("router")
    assert second.reconciliations(stream) == 0

    operator.kill()

    eventually(lambda: second.ready, "the other one has taken over")
    assert holder(api, space) == "operator-1"
    stream.runs("worker")
    lease = api.get(LEASES.format(space))["spec"]
    assert lease["leaseDurationSeconds"] == 10
    transitions = lease["leaseTransitions"]
    operator.start()
    assert not operator.ready
    assert second.stop(), "told to end it ends in order"
    assert holder(api, space) != "operator-1", "the lease is given back"
    eventually(lambda: operator.ready, "who waits for it has it")
    assert api.get(LEASES.format(space))["spec"]["leaseTransitions"] == transitions + 1


def test_one_that_cannot_renew_its_lease_ends(operator, server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        eventually(lambda: not operator.running, "it has ended")
    finally:
        os.kill(server.pid, signal.SIGCONT)

    assert "lost the lease" in operator.log.read_text()


def test_it_needs_no_rights_in_the_cluster_for_some_namespaces(
    operator, tmp_path_factory, server, api, namespace, played
):
    operator.kill()
    rbac = {"aggregate": False, "namespaceDeletion": False}
    values = {"watch": {"namespaces": ["bounded-geo"]}, "crds": {"install": False}, "rbac": rbac}
    bounded = install(api, namespace, "bounded", "bounded-system", values)
    elsewhere = played()
    stream = played("quakes", within="bounded-geo")
    folder = tmp_path_factory.mktemp("bounded")
    with OperatorProcess(folder, server, bounded.token(api), bounded.namespace, NAMESPACES="bounded-geo") as other:
        stream.runs("router")
        stream.runs("worker")
        stream.executor(1)
        stream.says("Ready", "True")
        assert elsewhere.status == {}
        stream.edit(suspend=True)
        stream.ends("worker")
        stream.ends("router")
        stream.vanishes("worker-exec-1")  # with its driver, which the garbage collector of a cluster sees to
        stream.until(lambda status: status["phase"] == "Suspended", "it is suspended")
        stream.annotate(skip_cleanup="true")
        api.delete(stream.path)
        stream.gone()
        log = other.log.read_text()
    assert "Forbidden" not in log
    assert "Traceback" not in log


def test_messages_of_any_length_and_language_become_events(operator, played):
    stream = played()
    stream.runs("router")

    stream.fails("router", 1, "Ошибка " * 300)

    (event,) = eventually(lambda: stream.events("DriverFailed"), "there is an event")
    assert 900 < len(event["note"].encode()) <= 1024
    assert "Ошибка" in event["note"]


@pytest.mark.gate
def test_what_it_has_logged_shows_no_mistake_of_its_own(process):
    """Runs last: all that the operator has said in all tests of this session."""
    log = process.log.read_text()

    assert "Traceback" not in log
    assert "never retrieved" not in log
