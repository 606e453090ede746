"""The operator makes what a stream needs, starts its jobs, and starts them again."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.client import RefusalError, eventually
from tests.api.prometheus import Known
from tests.unit.operator.resource import patch_at

MANAGED = {"app.kubernetes.io/managed-by": "spatialstream-operator"}
DEPENDENTS = {
    "/api/v1/namespaces/{}/serviceaccounts": {"quakes-driver", "quakes-executor"},
    "/api/v1/namespaces/{}/configmaps": {"quakes-config"},
    "/api/v1/namespaces/{}/services": {"quakes-router", "quakes-worker"},
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies": {"quakes-pods"},
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles": {"quakes-driver"},
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings": {"quakes-driver"},
    "/api/v1/namespaces/{}/pods": {"quakes-router", "quakes-worker"},
}


@pytest.mark.gate
def test_all_that_a_stream_needs_is_made_and_belongs_to_it(operator, api, played):
    stream = played().start()
    uid = stream.body["metadata"]["uid"]

    for path, names in DEPENDENTS.items():
        found = api.list(path.format(stream.namespace), **MANAGED)
        assert {each["metadata"]["name"] for each in found} == names, path
        for each in found:
            (owner,) = each["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["uid"]) == ("SpatialStream", "quakes", uid)
            assert owner["controller"] is True
            assert each["metadata"]["labels"]["spatialstream.dev/stream"] == "quakes"
    status = stream.status
    assert status["phase"] == "Running"
    assert status["observedGeneration"] == 1
    assert status["workers"]["ready"] == "1/1"
    assert status["console"] == f"https://streams.example.org/console/#stream={stream.namespace}.quakes"
    (policy,) = api.list(f"/apis/networking.k8s.io/v1/namespaces/{stream.namespace}/networkpolicies", **MANAGED)
    assert {"podSelector": {}} in policy["spec"]["ingress"][0]["from"]
    seen = datetime.fromisoformat(status["lastSeen"])
    assert timedelta(0) <= datetime.now(UTC) - seen < timedelta(minutes=2)
    assert operator.metric("spatialstream_operator_stream_condition", stream="quakes", condition="Ready") == 1.0


@pytest.mark.gate
def test_the_worker_waits_for_the_router(operator, played):
    stream = played()
    stream.runs("router", ready=False)
    stream.says("Ready", "False", "RouterNotReady")
    stream.until(lambda status: status["router"]["state"] == "starting", "the router starts")
    assert stream.pod("worker") is None

    stream.tell_of("router", {"running": {}}, "Running", ready=True)

    stream.made("worker")


@pytest.mark.gate
def test_a_driver_that_fails_comes_again_and_its_failures_are_told(operator, played):
    stream = played(restart={"backoff": "2s", "maxBackoff": "3s", "maxFailures": 2, "healthyAfter": "600s"})
    first = stream.runs("router")
    stream.runs("worker")
    stream.executor(1)

    stream.fails("router", 3, "Kafka has gone.")
    stream.until(lambda status: status["router"].get("nextAttempt"), "a next attempt is planned")
    router = stream.status["router"]
    assert (router["failures"], router["state"]) == (1, "backoff")
    assert router["lastFailure"]["reason"] == "RunFailed"
    assert router["lastFailure"]["message"] == "Kafka has gone."
    assert stream.pod("router")["metadata"]["uid"] == first, "it is not made again before its time"

    second = stream.runs("router", other_than=first)
    assert stream.status["router"]["restarts"] == 1
    assert stream.condition("Degraded")["message"] == "There is no known lasting problem."
    stream.fails("router", 1)
    stream.says("Degraded", "True", "RouterFailing")
    assert stream.status["phase"] == "Degraded"
    stream.runs("router", other_than=second)
    stream.until(lambda status: status["router"]["restarts"] == 2, "it was made again twice")

    stream.tells("DriverFailed", 2)
    stream.tells("Degraded")
    assert (
        operator.metric("spatialstream_operator_driver_restarts_total", namespace=stream.namespace, job="router") == 2
    )


def test_a_driver_that_keeps_running_is_forgiven(operator, played):
    stream = played(restart={"backoff": "1s", "maxBackoff": "1s", "maxFailures": 1, "healthyAfter": "2s"})
    first = stream.runs("router")
    stream.fails("router", 1)
    stream.says("Degraded", "True", "RouterFailing")

    stream.runs("router", other_than=first)

    stream.says("Degraded", "False")
    assert stream.status["router"]["failures"] == 0
    assert stream.status["router"]["restarts"] == 1
    stream.tells("Recovered")


def test_a_pod_that_somebody_deletes_comes_again(operator, played):
    stream = played().start()
    first = stream.pod("worker")["metadata"]["uid"]

    stream.vanishes("worker")

    stream.made("worker", other_than=first)
    assert stream.status["workers"]["lastFailure"]["reason"] == "PodDeleted"
    assert stream.status["router"]["restarts"] == 0


def test_a_driver_on_a_lost_node_comes_again_without_that_nodes_word(operator, played):
    stream = played().start()
    first = stream.pod("worker")["metadata"]["uid"]

    stream.loses_node("worker")

    stream.made("worker", other_than=first)
    workers = stream.status["workers"]
    assert (workers["lastFailure"]["reason"], workers["failures"], workers["restarts"]) == ("NodeLost", 0, 1)
    assert stream.status["router"]["restarts"] == 0
    stream.tells("DriverFailed")


def test_an_executor_on_a_lost_node_makes_room_for_another(operator, played):
    stream = played(workers={"min": 2, "max": 2}).start(executors=2)
    stream.loses_node("worker-exec-2")

    eventually(lambda: stream.pod("worker-exec-2") is None, "the executor's pod is gone", now=lambda: stream.status)
    stream.until(lambda status: status["workers"]["ready"] == "1/2", "one executor is left")
    stream.tells("ExecutorLost")
    assert stream.pod("worker-exec-1") is not None


def test_a_change_of_one_jobs_template_restarts_that_job_alone(operator, played):
    stream = played().start()
    router, worker = (stream.pod(job)["metadata"]["uid"] for job in ("router", "worker"))

    stream.edit(workers={"driver": {"resources": {"limits": {"memory": "3Gi"}}}})
    stream.ends("worker")
    second = stream.runs("worker", other_than=worker)
    stream.says("Ready", "True")
    assert stream.pod("router")["metadata"]["uid"] == router

    stream.edit(router={"podTemplate": {"metadata": {"labels": {"team": "geo"}}}})
    stream.ends("router")
    stream.runs("router", other_than=router)
    stream.says("Ready", "True")
    assert stream.pod("worker")["metadata"]["uid"] == second
    assert stream.pod("router")["metadata"]["labels"]["team"] == "geo"
    status = stream.status
    assert (status["router"]["restarts"], status["workers"]["restarts"]) == (0, 0), "what is wished is no failure"
    assert not stream.events("DriverFailed")


def test_changes_of_what_the_operator_does_itself_restart_nothing(operator, played):
    stream = played().start()
    before = {job: stream.pod(job)["metadata"]["uid"] for job in ("router", "worker")}
    limit, labels = "spatialstream_operator_imbalance_limit", {"namespace": stream.namespace, "stream": "quakes"}
    assert operator.metric(limit, **labels) == 6.0

    stream.edit(
        rebalance={"mode": "off", "interval": "2s", "stabilisation": "2s", "cooldown": "3s"},
        autoscaling={"targetUtilisation": 60},
        workers={"min": 2, "replicas": 3},
        restart={"maxFailures": 7},
        deletion={"topics": "Delete"},
        prometheus={"url": "http://127.0.0.1:1"},
        index={"imbalance": 3, "similarity": 0.4, "maxLeaves": 512},
    )

    stream.until(lambda status: status["observedGeneration"] == 2, "the change was seen")
    stream.until(lambda status: status["workers"]["ready"] == "1/3", "three executors are to be")
    eventually(lambda: operator.metric(limit, **labels) == 3.0, "the alert is told of the other limit")
    pods = {job: stream.pod(job)["metadata"] for job in before}
    assert {job: pod["uid"] for job, pod in pods.items()} == before
    assert not any("deletionTimestamp" in pod for pod in pods.values())


@pytest.mark.gate
def test_suspended_and_resumed(operator, played):
    stream = played().start()

    stream.edit(suspend=True)
    stream.says("Progressing", "True", "Suspending")
    stream.ends("router")
    stream.until(lambda status: status["router"]["state"] == "absent", "the router is gone")
    assert stream.status["phase"] == "Suspending", "the worker is still there"
    stream.ends("worker")
    stream.until(lambda status: status["workers"]["state"] == "absent", "its driver is gone")
    assert stream.status["phase"] == "Suspending", "its executor is still there"
    stream.vanishes("worker-exec-1")
    stream.until(lambda status: status["phase"] == "Suspended", "it is suspended")
    stream.says("Ready", "False", "Suspended")
    stream.says("Progressing", "False", "Suspended")
    assert stream.pod("router") is None
    assert stream.pod("worker") is None

    stream.edit(suspend=False)
    stream.runs("router")
    stream.runs("worker")
    stream.executor(1)
    stream.says("Ready", "True")
    assert not stream.events("DriverFailed")


def test_another_nonce_restarts_both_jobs(operator, played):
    stream = played().start()
    before = {job: stream.pod(job)["metadata"]["uid"] for job in ("router", "worker")}

    stream.edit(restartNonce="again")

    for job, uid in before.items():
        stream.ends(job)
        stream.runs(job, other_than=uid)
    stream.says("Ready", "True")


def test_a_spec_that_only_the_operator_can_refuse_is_told_once(operator, played):
    """Which namespace it is in, the rules of the API server do not know."""
    space = played("first").namespace
    stream = played(kafka={"topics": {"objects": f"{space}.quakes.blocks"}})

    said = stream.says("Degraded", "True", "SpecRefused")

    assert f"{space}.quakes.blocks is already the objects topic; name another one" in said["message"]
    assert stream.status["phase"] == "Degraded"
    assert stream.pod("router") is None
    reconciliations = operator.reconciliations(stream)
    eventually(lambda: operator.reconciliations(stream) >= reconciliations + 3, "it is reconciled again")
    stream.tells("SpecRefused")


def test_a_setting_that_nobody_knows_is_refused_and_what_runs_goes_on(operator, played):
    stream = played()
    router = stream.runs("router")
    for part, name, meant in (
        ("", "retension", "retention"),
        ("rebalance", "retention", ""),
        ("router.podTemplate.metadata", "label", "router.podTemplate.metadata.labels"),
    ):
        path = ".".join(filter(None, (part, name)))
        stream.edit(**patch_at(path, {}))
        said = stream.says("Degraded", "True", "SpecRefused")["message"]
        assert said == f"spec.{path}: is not a field of a SpatialStream; did you mean spec.{meant or name}?"
        stream.edit(**patch_at(path, None))
        stream.says("Degraded", "False")
    assert stream.pod("router")["metadata"]["uid"] == router


def test_a_topic_of_another_stream_is_refused_with_that_streams_name(operator, played):
    first = played("first")
    first.made("router")
    space = first.namespace
    stream = played(kafka={"topics": {"queries": f"{space}.first.objects"}})

    said = stream.says("Degraded", "True", "SpecRefused")["message"]

    topic = f"{space}.first.objects"
    whose = f"{topic} is the objects topic of the stream {space}.first"
    assert said == f"spec.kafka.topics.queries: {whose}; name another one"
    assert stream.pod("router") is None
    both = played("second", kafka={"topics": {"objects": topic}})
    both.made("router")


def test_what_a_stream_may_not_say_is_refused_and_what_runs_goes_on(operator, api, played):
    stream = played()
    router = stream.runs("router")
    stream.edit(router={"podTemplate": {"spec": {"nodeName": "theirs"}}}, image="evil:1")
    said = stream.says("Degraded", "True", "SpecRefused")["message"]
    assert said.startswith("spec.image: evil:1 is not from the repository spark")
    assert "spec.router.podTemplate.spec.nodeName: is allowed only if" in said
    stream.edit(router={"podTemplate": None}, image=None, kafka={"securitySecret": {"name": "user"}})
    secrets = f"/api/v1/namespaces/{stream.namespace}/secrets"
    stream.until(lambda _: "there is no Secret user" in stream.condition("Degraded")["message"], "it is not there")
    api.post(secrets, {"metadata": {"name": "user"}})
    stream.until(
        lambda _: "streams may not use the Secret" in stream.condition("Degraded")["message"], "it has no label"
    )
    assert stream.pod("router")["metadata"]["uid"] == router
    assert "deletionTimestamp" not in stream.pod("router")["metadata"]

    api.patch(f"{secrets}/user", {"metadata": {"labels": {"spatialstream.dev/allowed": "true"}}})

    stream.says("Degraded", "False")
    stream.ends("router")
    stream.made("router", other_than=router)


def test_a_wrong_image_stops_nothing_and_a_right_one_is_taken_once_it_has_begun(operator, played):
    stream = played().start()
    router, worker = (stream.pod(job)["metadata"]["uid"] for job in ("router", "worker"))

    stream.edit(image="spark:wrong")
    stream.placed("image")
    stream.tell_of("image", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "Pending")

    said = stream.says("Degraded", "True", "ImageUnusable")["message"]
    why = "ImagePullBackOff: no such image"
    assert said == f"The image spark:wrong cannot be used: {why}. The running pods keep spark:test."
    assert stream.condition("Ready")["status"] == "True"
    for job, uid in (("router", router), ("worker", worker)):
        assert stream.pod(job)["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in stream.pod(job)["metadata"]
    wrong = stream.pod("image")["metadata"]["uid"]
    stream.edit(image="spark:right")
    stream.ends("image")
    stream.placed("image", other_than=wrong)
    assert stream.pod("image")["spec"]["containers"][0]["image"] == "spark:right"
    stream.says("Degraded", "False")
    stream.says("Progressing", "True", "TryingImage")
    stream.tell_of("image", {"terminated": {"exitCode": 0}}, "Succeeded")
    for job, uid in (("router", router), ("worker", worker)):
        stream.ends(job)
        stream.runs(job, other_than=uid)
        assert stream.pod(job)["spec"]["containers"][0]["image"] == "spark:right"
    stream.ends("image")
    stream.says("Ready", "True")
    assert stream.pod("image") is None


def refusal_of_pods(stream):
    """Why no pod can be made in a stream's namespace; "" if one can."""
    rights = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = [{"name": "a", "image": "a", "securityContext": rights}]
    pod = {"metadata": {"name": "a"}, "spec": {"serviceAccountName": "quakes-driver", "containers": containers}}
    try:
        stream.api.post(f"/api/v1/namespaces/{stream.namespace}/pods?dryRun=All", pod)
    except RefusalError as refusal:
        return refusal.message
    return ""


def test_a_pod_that_the_cluster_refuses_is_told(operator, played):
    stream = played(suspend=True)
    quotas = f"/api/v1/namespaces/{stream.namespace}/resourcequotas"
    stream.until(lambda status: status.get("phase") == "Suspended", "it is suspended")
    stream.api.post(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    known = {"hard": {"pods": "0"}, "used": {"pods": "0"}}  # as its controller would say
    stream.api.patch(f"{quotas}/none/status", {"status": known})
    eventually(lambda: "quota" in refusal_of_pods(stream), "the quota is known")
    stream.edit(suspend=False)

    said = stream.says("Degraded", "True", "PodRefused")

    assert "quota" in said["message"]
    assert stream.condition("Ready")["status"] == "False"
    stream.api.delete(f"{quotas}/none")
    stream.start()
    stream.says("Degraded", "False")
    assert stream.status["router"]["restarts"] == 0


def test_executors_that_find_no_room_are_told_once_until_they_come(operator, played):
    stream = played(workers={"min": 2}).start(executors=1)
    stream.asks_for(2, "0/1 nodes are available: 1 Insufficient memory.")
    since = stream.until(lambda status: status["workers"].get("missing"), "an executor is missing")["since"]
    assert stream.condition("Degraded")["status"] == "False"
    assert stream.says("Progressing", "True", "Scaling")["message"].startswith(
        "Ready executors of the worker: 1; desired: 2"
    )

    said = stream.says("Degraded", "True", "ExecutorsMissing")["message"]

    room = "1 of 2: Unschedulable: 0/1 nodes are available: 1 Insufficient memory."
    assert said == f"Executors of the worker missing since {since[:19]}Z: {room}"
    assert stream.says("Progressing", "False", "Waiting")["message"] == said
    assert stream.condition("Ready")["status"] == "True", "it answers with the one that it has"
    assert stream.status["phase"] == "Degraded"
    operator.kill()
    operator.start()
    eventually(lambda: operator.ready, "it is back")
    eventually(lambda: operator.reconciliations(stream) >= 3, "it is reconciled again")
    assert stream.status["workers"]["missing"] == {"since": since, "most": 1}
    assert stream.condition("Degraded")["message"] == said
    stream.tells("Degraded")

    stream.runs("worker-exec-2")

    stream.says("Degraded", "False")
    stream.says("Progressing", "False", "AsWanted")
    assert "missing" not in stream.status["workers"]
    stream.tells("Recovered")


def test_a_stream_that_rejects_all_its_queries_is_degraded_and_ready(operator, played, prometheus):
    stream = played()
    wrong = {("queries", "type"): 84_000.0}
    prometheus.known[stream.namespace, "quakes"] = known = Known(accepted={"objects": 84_000.0}, rejected=wrong)
    stream.start()

    said = stream.says("Degraded", "True", "RecordsRejected")["message"]

    assert said.startswith("100 % of the queries are rejected, mostly because their field type is missing")
    assert stream.condition("Ready")["status"] == "True"
    assert stream.status["rejected"]["reason"] == "type"
    known.rejected = {}
    stream.says("Degraded", "False")
    stream.until(lambda status: "rejected" not in status, "nothing is rejected any more")


def test_a_volume_that_cannot_be_mounted_is_told_within_half_a_minute(operator, played):
    """Only an event says so: the pod's status has nothing but ContainerCreating."""
    stream = played(kafka={"securitySecret": {"name": "kafka"}})
    secret = {"metadata": {"name": "kafka", "labels": {"spatialstream.dev/allowed": "true"}}}
    stream.api.post(f"/api/v1/namespaces/{stream.namespace}/secrets", secret)
    stream.placed("router")
    stream.tell_of("router", {"waiting": {"reason": "ContainerCreating"}}, "Pending")
    missing = 'MountVolume.SetUp failed for volume "kafka" : references non-existent secret key: kafka.properties'
    stream.kubelet_says("router", "FailedMount", missing)

    said = stream.says("Degraded", "True", "RouterBlocked")

    assert said["message"] == f"The router cannot run: FailedMount: {missing}"
    assert stream.condition("Ready")["message"] == f"The router is not ready: FailedMount: {missing}"
    assert stream.status["router"]["state"] == "stuck"
    stream.tell_of("router", {"running": {}}, "Running", ready=True)
    stream.says("Degraded", "False")


def test_executors_that_a_quota_forbids_are_told_within_half_a_minute(operator, api, played):
    """Spark's driver makes them, and nobody but its log says that they were refused."""
    stream = played()
    stream.runs("router")
    stream.runs("worker")
    api.post(f"/api/v1/namespaces/{stream.namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    space = f"/api/v1/namespaces/{stream.namespace}/resourcequotas"
    hard = {"pods": "2"}
    api.post(space, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    api.patch(f"{space}/small/status", {"status": {"hard": hard, "used": hard}})

    said = stream.says("Degraded", "True", "ExecutorsMissing")["message"]

    assert "exceeded quota: small" in said
    assert "exceeded quota: small" in stream.says("Ready", "False", "NoExecutors")["message"]
    api.delete(f"{space}/small")

    def asked_for():
        """The admission of pods hears of the end of a quota a moment later."""
        try:
            stream.asks_for(1)
        except RefusalError as refusal:
            if "exceeded quota" not in str(refusal):
                raise
            return False
        return True

    eventually(asked_for, "a driver can make the pod of an executor")
    stream.runs("worker-exec-1")
    stream.says("Ready", "True")
    stream.says("Degraded", "False")


def test_a_driver_that_a_quota_forbids_is_told(operator, api, namespace, played):
    space = f"/api/v1/namespaces/{namespace('quota')}/resourcequotas"
    hard = {"pods": "0"}
    api.post(space, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    api.patch(f"{space}/none/status", {"status": {"hard": hard, "used": hard}})

    stream = played(within="quota")

    assert "exceeded quota: none" in stream.says("Degraded", "True", "PodRefused")["message"]
    api.delete(f"{space}/none")
    stream.made("router")
    stream.says("Degraded", "False")


def test_executors_are_not_missing_while_the_driver_comes_again(operator, played):
    stream = played(workers={"min": 2}).start(executors=1)
    stream.until(lambda status: status["workers"].get("missing"), "an executor is missing")

    stream.vanishes("worker")

    stream.until(lambda status: "missing" not in status["workers"], "that is forgotten")
    stream.made("worker")
    assert not stream.events("Degraded")


def test_a_pod_of_somebody_else_is_left_alone(operator, api, played):
    first = played()
    first.made("router")
    made = first.pod("router")
    driver = made["spec"]["containers"][0]
    container = {"name": "theirs", "image": "somebody:else", "securityContext": driver["securityContext"]}
    spec = {"securityContext": made["spec"]["securityContext"], "containers": [container]}
    spec["serviceAccountName"] = made["spec"]["serviceAccountName"]
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other-router"}, "spec": spec}
    uid = api.post(f"/api/v1/namespaces/{first.namespace}/pods", theirs)["metadata"]["uid"]

    stream = played("other")

    said = stream.says("Degraded", "True", "NameTaken")
    assert "other-router" in said["message"]
    found = stream.pod("router")["metadata"]
    assert found["uid"] == uid
    assert "deletionTimestamp" not in found
    stream.vanishes("router")
    stream.made("router", other_than=uid)
    stream.says("Degraded", "False")


@pytest.mark.parametrize("code", [0, 2, 137])
def test_what_a_driver_says_at_its_end_is_told(operator, played, code):
    stream = played()
    stream.runs("router")

    stream.fails("router", code, "the last words")

    stream.until(lambda status: status["router"].get("lastFailure"), "its failure is told")
    assert stream.status["router"]["lastFailure"]["message"] == "the last words"
    if code == 2:  # a setting is wrong: that does not end by itself
        stream.says("Degraded", "True", "RouterBlocked")
    eventually(lambda: stream.events("DriverFailed"), "there is an event")


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"router": {"podTemplate": {"spec": {"affinity": {"nodeafinity": {}}}}}}, "spec.router"),
        ({"workers": {"podTemplate": {"spec": {"nodeSelector": {"not a label": "x"}}}}}, "spec.workers"),
        ({"workers": {"driver": {"podTemplate": {"spec": {"tolerations": [{"keey": "a"}]}}}}}, "spec.workers.driver"),
    ],
)
def test_what_is_no_pod_is_refused_and_what_runs_goes_on(operator, played, part, field):
    stream = played()
    router = stream.runs("router")

    stream.edit(**part)

    said = stream.says("Degraded", "True", "SpecRefused")
    assert said["message"].startswith(f"{field}: makes a pod that the API server refuses: ")
    assert stream.pod("router")["metadata"]["uid"] == router
    assert "deletionTimestamp" not in stream.pod("router")["metadata"]
    stream.edit(router={"podTemplate": None}, workers={"podTemplate": None, "driver": {"podTemplate": None}})
    stream.says("Degraded", "False")
