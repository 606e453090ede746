"""A stream that is deleted goes, with what it has left behind or, if that cannot be, without."""

import pytest

from tests.api.client import RefusalError, eventually

FINALIZER = "spatialstream.dev/cleanup"


def let_go(stream):
    """Delete a stream, and let its jobs end."""
    assert FINALIZER in stream.body["metadata"]["finalizers"]
    stream.api.delete(stream.path)
    stream.until(lambda status: status["phase"] == "Deleting", "it is being deleted")
    for job in ("router", "worker"):
        stream.ends(job)


@pytest.mark.gate
def test_a_pod_removes_what_it_has_left_behind(operator, api, played):
    stream = played(deletion={"topics": "Delete"}).start()
    let_go(stream)

    stream.placed("remover")
    pod = stream.pod("remover")
    (container,) = pod["spec"]["containers"]
    assert container["args"][:3] == ["spatialstream", "remove", "--yes"]
    assert container["args"][-2:] == ["--topics", "all"]
    assert api.find(stream.path) is not None, "it waits for the pod"
    stream.tell_of("remover", {"terminated": {"exitCode": 0}}, "Succeeded")

    stream.gone()
    series = {"namespace": stream.namespace, "stream": stream.name}
    eventually(
        lambda: operator.metric("spatialstream_operator_desired_workers", **series) is None, "its series are gone"
    )
    assert not stream.events("CleanupFailed")


@pytest.mark.gate
def test_it_waits_for_the_jobs_before_it_removes_what_they_write_to(operator, played):
    stream = played().start()
    stream.api.delete(stream.path)
    stream.ends("router")

    eventually(lambda: "deletionTimestamp" in stream.pod("worker")["metadata"], "the worker is told to end")
    assert stream.pod("remover") is None
    stream.ends("worker")
    stream.made("remover")


def test_it_goes_after_three_tries(operator, played):
    stream = played().start()
    let_go(stream)

    last = ""
    for number in range(1, 4):
        last = stream.runs("remover", other_than=last)
        stream.fails("remover", 1, "Kafka cannot be reached")
        if number < 3:
            stream.until(
                lambda status, n=number: status.get("removal", {}).get("failures") == n, f"failure {number} is counted"
            )

    stream.gone()
    said = [each["note"] for each in stream.events("CleanupFailed")]
    assert len(said) == 3
    assert "cleanup has failed 3 times and is given up: Error: Kafka cannot be reached" in said


def test_it_goes_with_its_namespace(operator, api, played):
    stream = played().start()
    api.delete(f"/api/v1/namespaces/{stream.namespace}")
    with pytest.raises(RefusalError, match="being terminated"):
        api.post(f"/api/v1/namespaces/{stream.namespace}/configmaps", {"metadata": {"name": "late"}})
    # what the namespace's controller would do
    stream.api.delete(stream.path)
    for job in ("router", "worker"):
        stream.ends(job)

    stream.gone()


def test_it_goes_at_once_if_a_person_says_so(operator, played):
    stream = played().start()
    stream.annotate(skip_cleanup="true")
    stream.api.delete(stream.path)

    stream.gone()

    assert stream.pod("remover") is None
    for job in ("router", "worker"):
        stream.ends(job)


def test_what_is_to_be_kept_is_not_removed(operator, played):
    stream = played(deletion={"state": "Keep"}).start()
    let_go(stream)

    stream.gone()

    assert stream.pod("remover") is None


def test_what_never_began_leaves_nothing_behind(operator, played):
    stream = played(suspend=True)
    stream.until(lambda status: status.get("phase") == "Suspended", "it is suspended")
    stream.api.delete(stream.path)

    stream.gone()


def test_what_could_not_begin_goes_at_once(operator, played):
    """A claim, an image or a secret is missing: what would remove something would wait for the same."""
    stream = played()
    stream.placed("router")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    stream.tell_of("router", waiting, "Pending")
    stream.says("Degraded", "True", "RouterBlocked")
    stream.edit(restartNonce="again")
    stream.ends("router")
    stream.placed("router")
    stream.tell_of("router", waiting, "Pending")
    stream.until(lambda status: status["router"]["state"] == "stuck" and status["router"]["podUid"], "it is seen")
    stream.api.delete(stream.path)
    stream.ends("router")

    stream.gone(10)

    assert stream.pod("remover") is None
    assert stream.events("NothingToRemove")


def test_a_stream_of_the_same_name_begins_anew(operator, played):
    stream = played(deletion={"state": "Keep"}).start()
    before = {job: stream.pod(job)["metadata"]["uid"] for job in ("router", "worker")}
    let_go(stream)
    stream.gone()
    for path in (
        "services/quakes-router",
        "services/quakes-worker",
        "serviceaccounts/quakes-driver",
        "serviceaccounts/quakes-executor",
        "configmaps/quakes-config",
    ):
        stream.api.delete(f"/api/v1/namespaces/{stream.namespace}/{path}")  # as the garbage collector does
    policies = f"/apis/networking.k8s.io/v1/namespaces/{stream.namespace}/networkpolicies"
    stream.api.delete(f"{policies}/quakes-pods")

    again = played(deletion={"state": "Keep"})

    said = again.says("Progressing", "False", "LeftoverFound")
    assert "Role quakes-driver" in said["message"]
    assert again.condition("Degraded")["status"] == "False"
    for kind in ("roles", "rolebindings"):
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stream.namespace}/{kind}/quakes-driver"
        stream.api.delete(path)
    assert again.runs("router") != before["router"]
