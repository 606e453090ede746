import copy
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream_operator import manifests
from spatialstream_operator.commands import spark_properties
from spatialstream_operator.manifests.remover import remover_pod
from spatialstream_operator.names import HASH_ANNOTATION, STREAM_LABEL, StreamNames
from spatialstream_operator.spec import StreamSpec
from tests.unit.operator.resource import DEFAULTS, NAMES, ROOT, UID, defaulted, leaves, merge, parse, patch_at

SECURE = {
    "kafka": {"securitySecret": {"name": "kafka-user"}},
    "zookeeper": {"credentialsSecret": {"name": "zk-user"}, "tlsSecret": {"name": "zk-tls"}},
}
ARCHIVING = {"retention": "1d", "archive": {"claimName": "archive"}}
REMOTE = {
    "retention": "1d",
    "checkpoint": {"claimName": None, "url": "s3://streams/geo/quakes"},
    "archive": {"url": "s3://old/geo"},
    "objectStore": {
        "endpoint": "https://objects:9000",
        "region": "eu",
        "credentialsSecret": {"name": "keys"},
        "caSecret": {"name": "authority"},
    },
}
JOBS = ("router", "worker")
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"
}  # fmt: skip


def pods(spec):
    """All three kinds of pod."""
    return {
        "router": manifests.driver_pod("router", spec, NAMES, UID),
        "worker": manifests.driver_pod("worker", spec, NAMES, UID, 2),
        "executor": manifests.executor_template(spec, NAMES),
    }


def hashes(spec):
    return {job: manifests.template_hash(job, spec, NAMES) for job in ("router", "worker")}


def container(pod):
    return pod["spec"]["containers"][0]


def violations(pod):
    """What the restricted profile of the pod security standards forbids, written down once more from its table."""
    spec = pod["spec"]
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC", "ephemeralContainers") if spec.get(name)]
    context = spec["securityContext"]
    found += ["sysctls"] * bool(context.get("sysctls")) + ["windows"] * bool(context.get("windowsOptions"))
    found += ["pod user"] * (context.get("runAsUser") == 0 or context.get("runAsNonRoot") is not True)
    found += ["pod seccomp"] * (context.get("seccompProfile", {}).get("type") != "RuntimeDefault")
    found += ["selinux"] * bool(context.get("seLinuxOptions"))
    found += ["volume"] * any(not set(each) - {"name"} <= RESTRICTED_VOLUMES for each in spec["volumes"])
    found += ["apparmor"] * any("apparmor" in name for name in pod["metadata"]["annotations"])
    for each in [*spec["containers"], *spec.get("initContainers", [])]:
        rights = each["securityContext"]
        found += ["escalation"] * (rights.get("allowPrivilegeEscalation") is not False)
        found += ["privileged"] * bool(rights.get("privileged"))
        found += ["capabilities"] * (rights.get("capabilities") != {"drop": ["ALL"]})
        found += ["user"] * (rights.get("runAsNonRoot") is not True or rights.get("runAsUser") == 0)
        found += ["seccomp"] * (rights.get("seccompProfile") != {"type": "RuntimeDefault"})
        found += [
            name for name in ("seLinuxOptions", "procMount", "windowsOptions", "appArmorProfile") if name in rights
        ]
        found += ["hostPort"] * any("hostPort" in port for port in each.get("ports", []))
        handlers = [each.get(name, {}) for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        handlers += list(each.get("lifecycle", {}).values())
        found += ["host"] * any(
            "host" in action for handler in handlers for action in handler.values() if isinstance(action, dict)
        )
    return found


# ------------------------------------------------------------------------------------------------------------ templates

wishes = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "allowPrivilegeEscalation": st.booleans(),
        "runAsUser": st.sampled_from([0, 1000]),
        "runAsNonRoot": st.booleans(),
        "capabilities": st.sampled_from([{"add": ["SYS_ADMIN"]}, {"drop": []}]),
        "seccompProfile": st.just({"type": "Unconfined"}),
        "seLinuxOptions": st.just({"type": "spc_t"}),
        "procMount": st.just("Unmasked"),
        "readOnlyRootFilesystem": st.booleans(),
        "sysctls": st.just([{"name": "kernel.msgmax", "value": "1"}]),
        "fsGroup": st.integers(1, 5000),
    },
)
junk = st.sampled_from([None, 7, "text", [], ["text"], {}, [{}]])
probe = st.sampled_from([{"httpGet": {"path": "/", "port": 1, "host": "10.0.0.1"}}, {"exec": {"command": ["true"]}}])
extra_containers = st.fixed_dictionaries(
    {"name": st.sampled_from(["driver", "executor", "log"])},
    optional={
        "image": st.just("mine"),
        "command": st.just(["sh"]),
        "securityContext": wishes | junk,
        "env": st.just([{"name": "TZ", "value": "UTC"}, {"name": "SPATIALSTREAM_CACHE", "value": "/x"}]) | junk,
        "ports": st.just([{"containerPort": 1, "hostPort": 1}]) | junk,
        "volumeMounts": st.just([{"name": "host", "mountPath": "/host"}, {"name": "x", "mountPath": "/checkpoint"}]),
        "livenessProbe": probe,
        "lifecycle": probe.map(lambda handler: {"preStop": handler}),
    },
)
templates = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(st.sampled_from(["team", "app.kubernetes.io/name"]), st.just("mine")),
                "annotations": st.just({"container.apparmor.security.beta.kubernetes.io/log": "unconfined"}),
                "name": st.just("other"),
            },
        )
        | junk,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "hostNetwork": st.booleans(),
                "hostPID": st.booleans(),
                "hostIPC": st.booleans(),
                "serviceAccountName": st.just("admin"),
                "automountServiceAccountToken": st.booleans(),
                "restartPolicy": st.just("Always"),
                "nodeSelector": st.just({"disk": "fast"}),
                "securityContext": wishes | junk,
                "containers": st.lists(extra_containers, max_size=3) | junk,
                "initContainers": st.lists(extra_containers, max_size=2) | junk,
                "ephemeralContainers": st.just([{"name": "debug"}]),
                "volumes": st.lists(
                    st.sampled_from(
                        [
                            {"name": "host", "hostPath": {"path": "/"}},
                            {"name": "tmp", "hostPath": {"path": "/tmp"}},
                            {"name": "tmp", "emptyDir": {"medium": "Memory"}},
                            {"name": "checkpoint", "emptyDir": {}},
                            {"name": "none"},
                        ]
                    ),
                    max_size=3,
                )
                | junk,
            },
        )
        | junk,
    },
)


@given(templates)
def test_no_template_leads_out_of_the_restricted_profile(template):
    patch = {
        "router": {"podTemplate": template},
        "workers": {"podTemplate": template, "driver": {"podTemplate": template}},
    }

    for pod in pods(parse(patch)).values():
        assert violations(pod) == []


@given(templates)
def test_no_template_changes_what_is_the_operators(template):
    patch = {
        "router": {"podTemplate": template},
        "workers": {"podTemplate": template, "driver": {"podTemplate": template}},
    }
    plain, changed = pods(parse()), pods(parse(patch))

    for kind, base in plain.items():
        pod = changed[kind]
        for name in ("restartPolicy", "serviceAccountName", "automountServiceAccountToken"):
            assert pod["spec"].get(name) == base["spec"].get(name)
        for name in (
            "name",
            "image",
            "args",
            "command",
            "workingDir",
            "resources",
            "securityContext",
            "livenessProbe",
            "ports",
        ):
            assert container(pod).get(name) == container(base).get(name)
        assert all(each in container(pod)["env"] for each in container(base)["env"])
        assert all(each in container(pod)["volumeMounts"] for each in container(base)["volumeMounts"])
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        kept = [each for each in base["spec"]["volumes"] if each["name"] != "tmp"]
        assert [volumes[each["name"]] for each in kept] == kept
        assert pod["metadata"]["labels"].items() >= base["metadata"]["labels"].items()
        assert pod["metadata"].get("name") == base["metadata"].get("name")


@given(templates)
def test_building_pods_changes_nothing_that_it_was_given(template):
    before = copy.deepcopy(template)
    pods(parse({"router": {"podTemplate": template}, "workers": {"podTemplate": template}}))

    assert template == before


@pytest.mark.parametrize("env", [7, "TZ", ["TZ"], [{}], [{"value": "UTC"}], {"TZ": "UTC"}])
def test_what_is_no_list_of_named_things_is_left_out(env):
    template = {"spec": {"containers": [{"name": "driver", "env": env}]}}
    pod = manifests.driver_pod("router", parse({"router": {"podTemplate": template}}), NAMES, UID)

    assert container(pod)["env"] == container(pods(parse())["router"])["env"]


def test_what_a_template_may_add():
    template = {
        "metadata": {"labels": {"team": "geo"}, "annotations": {"example.org/a": "b"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "streams", "operator": "Exists"}],
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 120,
            "securityContext": {"fsGroup": 2000},
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "5Gi"}}, {"name": "more", "emptyDir": {}}],
            "containers": [
                {
                    "name": "driver",
                    "env": [{"name": "TZ", "value": "UTC"}],
                    "volumeMounts": [{"name": "more", "mountPath": "/more"}],
                },
                {"name": "log", "image": "example.org/log:1"},
            ],
        },
    }
    pod = manifests.driver_pod("router", parse({"router": {"podTemplate": template}}), NAMES, UID)

    assert pod["metadata"]["labels"]["team"] == "geo"
    assert pod["metadata"]["annotations"]["example.org/a"] == "b"
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert pod["spec"]["tolerations"][0] == template["spec"]["tolerations"][0]
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    assert pod["spec"]["securityContext"]["fsGroup"] == 2000
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "5Gi"}} in pod["spec"]["volumes"]
    assert [each["name"] for each in pod["spec"]["volumes"]].count("scratch") == 1
    assert {"name": "TZ", "value": "UTC"} in container(pod)["env"]
    assert {"name": "more", "mountPath": "/more"} in container(pod)["volumeMounts"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["driver", "log"]


# ----------------------------------------------------------------------------------------------------------------- pods


@pytest.mark.parametrize("kind", ["router", "worker", "executor"])
def test_pods_of_a_plain_spec(kind):
    pod = pods(parse(merge(SECURE, ARCHIVING)))[kind]

    assert violations(pod) == []
    assert container(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsUser"] == pod["spec"]["securityContext"]["fsGroup"] == 10001
    assert pod["metadata"]["labels"] == NAMES.labels(kind)
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    assert {each["name"] for each in container(pod)["volumeMounts"]} == volumes
    assert {"/tmp", "/var/spatialstream", "/checkpoint"} <= {
        each["mountPath"] for each in container(pod)["volumeMounts"]
    }
    assert json.loads(json.dumps(pod)) == pod


@pytest.mark.parametrize("kind", ["router", "worker", "executor"])
def test_pods_are_spread_over_nodes_and_leave_one_that_is_lost(kind):
    pod = pods(parse())[kind]

    (spread,) = pod["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    for each in spread["labelSelector"].get("matchExpressions", []):
        assert (each["operator"], pod["metadata"]["labels"][each["key"]] in each["values"]) == ("In", True)
    assert {(each["key"], each["effect"], each["tolerationSeconds"]) for each in pod["spec"]["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 20),
        ("node.kubernetes.io/unreachable", "NoExecute", 20),
    }


def test_executors_of_router_and_worker_are_spread_each_for_themselves():
    spec = parse({"router": {"max": 2}})
    spreads = [manifests.executor_template(spec, NAMES, job)["spec"]["topologySpreadConstraints"] for job in JOBS]

    assert [each["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] for (each,) in spreads] == [
        "router-executor",
        "executor",
    ]


def test_what_a_template_says_of_nodes_holds():
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
    other = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}

    def made(**given):
        return pods(parse({"workers": {"podTemplate": {"spec": given}}}))["executor"]["spec"]

    spec = made(tolerations=[unreachable, other], topologySpreadConstraints=[spread])
    everything = made(tolerations=[{"operator": "Exists"}])

    assert spec["topologySpreadConstraints"] == [spread]
    assert spec["tolerations"][:2] == [unreachable, other]
    assert [each["key"] for each in spec["tolerations"][2:]] == ["node.kubernetes.io/not-ready"]
    assert everything["tolerations"] == [{"operator": "Exists"}]


def test_only_the_workers_driver_has_a_token():
    tokens = {kind: pod["spec"]["automountServiceAccountToken"] for kind, pod in pods(parse()).items()}

    assert tokens == {"router": False, "worker": True, "executor": False}


def test_drivers_belong_to_the_stream():
    for kind in ("router", "worker"):
        (owner,) = pods(parse())[kind]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
            "SpatialStream",
            "quakes",
            UID,
            True,
        )


def test_secrets_are_mounted_where_they_are_needed_and_are_read_only():
    mounted = {
        kind: {each["mountPath"] for each in container(pod)["volumeMounts"] if each.get("readOnly")}
        for kind, pod in pods(parse(SECURE)).items()
    }
    folder = "/etc/spatialstream"

    drivers = {f"{folder}/{name}" for name in ("config", "kafka", "zookeeper", "zookeeper-tls")}
    assert mounted["router"] == mounted["worker"] == drivers
    assert mounted["executor"] == {f"{folder}/kafka"}


def test_folders_of_claims():
    both = {"claimName": "storage"}
    plain = pods(parse({"retention": "1d", "checkpoint": both, "archive": both}))
    named = pods(parse(merge(ARCHIVING, {"checkpoint": {"subPath": "state"}, "archive": {"subPath": "old"}})))

    def paths(pod):
        return {each["mountPath"]: each["subPath"] for each in container(pod)["volumeMounts"] if "subPath" in each}

    assert paths(plain["worker"]) == {"/checkpoint": "geo/quakes", "/archive": "geo/quakes.archive"}
    assert paths(plain["router"]) == {"/checkpoint": "geo/quakes"}
    assert paths(named["executor"]) == {"/checkpoint": "state", "/archive": "old"}


def test_a_stream_in_an_object_store_mounts_no_folder_and_is_told_how_to_reach_it():
    spec = parse(SECURE | REMOTE)
    made = pods(spec)
    folder = "/etc/spatialstream"
    variables = {
        "AWS_ENDPOINT_URL": "https://objects:9000",
        "AWS_REGION": "eu",
        "AWS_SHARED_CREDENTIALS_FILE": f"{folder}/object-store/credentials",
        "AWS_CA_BUNDLE": f"{folder}/object-store-ca/ca.crt",
    }

    for kind, pod in [*made.items(), ("remover", remover_pod(spec, NAMES, UID))]:
        mounts = {each["mountPath"]: each for each in container(pod)["volumeMounts"]}
        environment = {each["name"]: each.get("value") for each in container(pod)["env"]}
        assert not {"/checkpoint", "/archive"} & set(mounts), kind
        assert mounts[f"{folder}/object-store"]["readOnly"], kind
        assert environment.items() >= variables.items(), kind
        place = "s3://streams/geo/quakes" if kind == "executor" else None  # drivers are told by their arguments
        assert environment.get("SPATIALSTREAM_CHECKPOINT") == place
        secrets = {each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each}
        assert secrets >= {"keys", "authority"}, kind
        assert violations(pod) == []
    arguments = container(remover_pod(spec, NAMES, UID))["args"]
    assert arguments[arguments.index("--checkpoint") + 1] == "s3://streams/geo/quakes"


def test_what_is_not_needed_to_reach_a_store_is_not_said():
    worker = container(pods(parse({"checkpoint": {"claimName": None, "url": "s3://streams"}}))["worker"])
    names = {each["name"] for each in worker["env"]}
    folders = {each["mountPath"] for each in worker["volumeMounts"]}

    assert not [name for name in names if name.startswith("AWS")]
    assert folders == {"/etc/spatialstream/config", "/tmp", "/var/spatialstream"}


def test_the_environment_says_where_the_stream_is():
    spec = parse(merge(SECURE, {"kafka": {"topics": {"results": "answers"}}}))
    environment = {each["name"]: each.get("value") for each in container(pods(spec)["router"])["env"]}

    assert environment["SPATIALSTREAM_STREAM"] == "geo.quakes"
    assert environment["SPATIALSTREAM_BOOTSTRAP"] == "kafka:9092"
    assert environment["SPATIALSTREAM_KAFKA_SECURITY"] == "/etc/spatialstream/kafka/kafka.properties"
    assert environment["SPATIALSTREAM_ZOOKEEPER_CREDENTIALS"] == "/etc/spatialstream/zookeeper/credentials"
    assert environment["SPATIALSTREAM_ZOOKEEPER_CA"] == "/etc/spatialstream/zookeeper-tls/ca.crt"
    assert environment["SPATIALSTREAM_ZOOKEEPER_CERTIFICATE"] == "/etc/spatialstream/zookeeper-tls/tls.crt"
    assert environment["SPATIALSTREAM_ZOOKEEPER_KEY"] == "/etc/spatialstream/zookeeper-tls/tls.key"
    assert environment["SPATIALSTREAM_TOPICS"] == (
        "objects=geo.quakes.objects,queries=geo.quakes.queries,results=answers,rejected=geo.quakes.rejected,"
        "areas=geo.quakes.areas"
    )
    assert "POD_IP" in environment


def test_executors_have_no_more_than_spark_leaves_to_the_template():
    resources = {
        "requests": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        "limits": {"ephemeral-storage": "5Gi"},
    }
    pod = manifests.executor_template(parse({"workers": {"resources": resources}}), NAMES)

    assert container(pod)["resources"] == {
        "requests": {"ephemeral-storage": "1Gi"},
        "limits": {"ephemeral-storage": "5Gi"},
    }
    assert "image" not in container(pod)
    # by this name Spark knows the volume as its local folder, and adds none of its own
    assert {"name": "spark-local-dir-1", "mountPath": "/var/spatialstream"} in container(pod)["volumeMounts"]


# --------------------------------------------------------------------------------------------------- what restarts what

BASE = merge(merge(SECURE, ARCHIVING), {"router": {"max": 2}})
CHANGES = {
    "image": "other:2",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccounts.driver.annotations": {"example.org/role": "streams"},
    "serviceAccounts.executor.annotations": {"example.org/role": "executors"},
    "kafka.bootstrapServers": "other:9092",
    "kafka.securitySecret.name": "other",
    "kafka.securitySecret.key": "other",
    "kafka.objectPartitions": 5,
    "kafka.replicationFactor": 3,
    "zookeeper.servers": "other:2181",
    "zookeeper.credentialsSecret.name": "other",
    "zookeeper.credentialsSecret.key": "other",
    "zookeeper.tlsSecret.name": "other",
    "zookeeper.tlsSecret.clientCertificate": False,
    "prometheus.url": "http://other:9090",
    "index.imbalance": 3.0,
    "index.kind": "auto",
    "index.nearest": "everywhere",
    "index.similarity": 0.25,
    "index.similarityForm": "printed",
    "index.maxLeaves": 2048,
    "time.idle": "1s",
    "time.disorder": "1s",
    "time.ahead": "2h",
    "router.min": 2,
    "router.max": 1,
    "router.cores": 2,
    "router.executor.jvmHeap": "768m",
    "router.jvmHeap": "768m",
    "router.options": {"spark.a": "b"},
    "workers.min": 2,
    "workers.replicas": 3,
    "workers.cores": 2,
    "workers.jvmHeap": "768m",
    "workers.options": {"spark.a": "b"},
    "workers.driver.jvmHeap": "768m",
    "maxRecordBytes": 4096,
    "maxRowBytes": 4096,
    "archive.claimName": "other",
    "archive.subPath": "other",
    "archive.url": "s3://other/place",
    "objectStore.endpoint": "http://other:9000",
    "objectStore.region": "other",
    "objectStore.credentialsSecret.name": "other",
    "objectStore.credentialsSecret.key": "other",
    "objectStore.caSecret.name": "other",
    "objectStore.caSecret.key": "other",
    "rebalance.mode": "off",
    "rebalance.interval": "10s",
    "rebalance.stabilisation": "3m",
    "rebalance.cooldown": "20m",
    "rebalance.timeout": "6m",
    "rebalance.rebuildAfter": 5_000,
    "rejects.share": 50,
    "autoscaling.enabled": True,
    "autoscaling.targetUtilisation": 50,
    "autoscaling.targetDelay": "20s",
    "autoscaling.scaleUpStabilisation": "1m",
    "autoscaling.scaleDownStabilisation": "20m",
    "restart.backoff": "6s",
    "restart.maxBackoff": "6m",
    "restart.maxFailures": 3,
    "restart.healthyAfter": "1m",
    "deletion.topics": "Delete",
    "deletion.state": "Keep",
} | {
    f"{path}.{name}": value
    for path in ("router", "router.executor", "workers", "workers.driver")
    for name, value in {
        "resources.requests.cpu": "750m",
        "resources.requests.memory": "3Gi",
        "resources.requests.ephemeral-storage": "1Gi",
        "resources.limits.cpu": "2",
        "resources.limits.memory": "3Gi",
        "resources.limits.ephemeral-storage": "9Gi",
        "podTemplate": {"spec": {"nodeSelector": {"a": "b"}}},
    }.items()
}  # fmt: skip
RESTARTS = {
    "Changing it restarts the router.": {"router"},
    "Changing it restarts the worker.": {"worker"},
    "Changing it restarts the worker, and the router if it has executors.": {"router", "worker"},
    "Changing it restarts router and worker.": {"router", "worker"},
    "Changing it restarts nothing.": set(),
}
DOCUMENTED = {
    path: next(jobs for sentence, jobs in RESTARTS.items() if sentence in each["description"])
    for path, each in leaves()
    if "Changing it restarts" in each["description"]
}


def test_every_field_that_can_be_changed_is_tried():
    assert set(CHANGES) == set(DOCUMENTED)


@pytest.mark.parametrize("path", sorted(DOCUMENTED))
def test_the_hash_changes_for_the_jobs_that_the_description_names(path):
    base = REMOTE if path.startswith(("archive.url", "objectStore.")) else {}
    place = {"checkpoint": base["checkpoint"]} if base else {}
    before = hashes(parse(BASE | base))
    after = hashes(parse(merge(BASE | base, patch_at(path, CHANGES[path])) | place))

    assert {job for job in before if before[job] != after[job]} == DOCUMENTED[path]


def test_another_nonce_restarts_both_and_suspending_is_no_change_of_the_pods():
    before = hashes(parse())

    assert all(before[job] != value for job, value in hashes(parse({"restartNonce": "again"})).items())
    assert hashes(parse({"suspend": True})) == before


def test_the_routers_executors_are_like_the_workers():
    spec = parse(merge(BASE, {"router": {"executor": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}}))
    router = manifests.driver_pod("router", spec, NAMES, UID)
    template, of_worker = (manifests.executor_template(spec, NAMES, job) for job in ("router", "worker"))
    plain = manifests.driver_pod("router", parse(SECURE), NAMES, UID)

    assert router["spec"]["automountServiceAccountToken"] is True
    assert plain["spec"]["automountServiceAccountToken"] is False
    assert remover_pod(spec, NAMES, UID)["spec"]["automountServiceAccountToken"] is False
    assert [each["name"] for each in container(router)["ports"]] == ["metrics", "driver", "blockmanager"]
    assert [each["name"] for each in container(plain)["ports"]] == ["metrics"]
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "router-executor"
    assert template["spec"]["nodeSelector"] == {"a": "b"}
    assert "nodeSelector" not in of_worker["spec"] | router["spec"]
    mounts = {each["mountPath"] for each in container(template)["volumeMounts"]}
    assert mounts == {"/checkpoint", "/etc/spatialstream/kafka", "/var/spatialstream", "/tmp"}
    assert violations(template) == []
    data = manifests.config_map(spec, NAMES, UID)["data"]
    assert yaml.safe_load(data["router-executor.yaml"]) == template
    assert set(manifests.config_map(parse(), NAMES, UID)["data"]) == {"executor.yaml", "stop-words"}
    trial = manifests.executor_trial(spec, NAMES, "router")
    assert trial["metadata"]["name"] == "quakes-router-exec-trial"


def test_having_executors_or_none_restarts_the_router_alone():
    none, some = hashes(parse()), hashes(parse({"router": {"max": 2}}))

    assert {job for job in none if none[job] != some[job]} == {"router"}


def test_the_number_of_executors_is_in_the_command_but_not_in_the_hash():
    one, two = (manifests.driver_pod("worker", parse(), NAMES, UID, number) for number in (1, 2))

    assert container(one)["args"] != container(two)["args"]
    assert one["metadata"]["annotations"][HASH_ANNOTATION] == two["metadata"]["annotations"][HASH_ANNOTATION]


@given(st.sampled_from(["60m", "3600s", "1h", "3600000ms"]))
def test_the_hash_is_of_what_is_meant_not_of_how_it_is_written(text):
    assert hashes(parse({"time": {"ahead": text}})) == hashes(parse({"time": {"ahead": "1h"}}))


def test_pods_carry_the_hash():
    for job, pod in (("router", pods(parse())["router"]), ("worker", pods(parse())["worker"])):
        assert pod["metadata"]["annotations"][HASH_ANNOTATION] == hashes(parse())[job]


# ------------------------------------------------------------------------------------------------------------- the rest


def test_drivers_may_have_executors_and_nothing_else():
    role, binding = manifests.role(NAMES, UID), manifests.role_binding(NAMES, UID)

    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert set(rule["verbs"]) == {"get", "list", "watch", "create", "delete", "deletecollection"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "quakes-driver"
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("quakes-driver", "geo")
    assert manifests.service_account(NAMES, UID, {})["automountServiceAccountToken"] is False


def test_executors_have_an_account_of_their_own_without_rights_or_token():
    account = manifests.executor_account(NAMES, UID, {"example.org/role": "executors"})
    role, binding = manifests.role(NAMES, UID), manifests.role_binding(NAMES, UID)

    assert account["metadata"]["name"] == "quakes-executor"
    assert account["metadata"]["annotations"] == {"example.org/role": "executors"}
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["name"] not in (role["metadata"]["name"], binding["subjects"][0]["name"])
    properties = spark_properties(parse(), NAMES, "worker", 1)
    assert properties["spark.kubernetes.authenticate.executor.serviceAccountName"] == "quakes-executor"
    assert manifests.executor_template(parse(), NAMES)["spec"]["automountServiceAccountToken"] is False


def test_the_config_map_has_the_executors_template_and_the_stop_words():
    spec = parse(
        {"terms": {"stopWords": ["the", "über"]}, "workers": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}
    )
    data = manifests.config_map(spec, NAMES, UID)["data"]

    assert data["stop-words"] == "the\nüber\n"
    assert yaml.safe_load(data["executor.yaml"]) == manifests.executor_template(spec, NAMES)
    assert "&id" not in data["executor.yaml"]


@pytest.mark.parametrize("component", ["router", "worker"])
def test_services_and_monitor_find_the_drivers(component):
    labels = pods(parse())[component]["metadata"]["labels"]
    service = manifests.service(NAMES, component, UID)
    selector = manifests.pod_monitor(NAMES, UID, {})["spec"]["selector"]

    assert service["metadata"]["name"] == f"quakes-{component}"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()
    assert selector["matchLabels"].items() <= labels.items()
    (expression,) = selector["matchExpressions"]
    assert labels[expression["key"]] in expression["values"]
    ports = {each["name"]: each["containerPort"] for each in container(pods(parse())[component])["ports"]}
    assert ports["metrics"] == service["spec"]["ports"][0]["port"] == 9090


def test_a_monitor_has_the_labels_by_which_it_is_selected_and_its_own():
    own = manifests.pod_monitor(NAMES, UID, {})["metadata"]["labels"]
    labels = manifests.pod_monitor(NAMES, UID, {"release": "prometheus", STREAM_LABEL: "mine"})["metadata"]["labels"]

    assert labels == {"release": "prometheus", **own}
    assert own[STREAM_LABEL] == "quakes"


def test_the_pods_of_a_stream_take_connections_from_each_other_and_for_metrics():
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    policy = manifests.network_policy(NAMES, UID, peers)["spec"]
    among, metrics = policy["ingress"]

    assert policy["policyTypes"] == ["Ingress"]
    assert among == {"from": [{"podSelector": policy["podSelector"]}]}
    assert metrics == {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": peers}
    assert "from" not in manifests.network_policy(NAMES, UID, [])["spec"]["ingress"][1]
    with_gateway = manifests.network_policy(NAMES, UID, peers, [{"podSelector": {}}])["spec"]["ingress"]
    assert with_gateway == [{"from": [{"podSelector": policy["podSelector"]}, {"podSelector": {}}]}, metrics]
    drawn = [pod["metadata"]["labels"] for pod in pods(parse()).values()]
    for labels in (*drawn, manifests.executor_template(parse(), NAMES)["metadata"]["labels"]):
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    other = StreamNames("geo", "other").labels("worker")
    assert not policy["podSelector"]["matchLabels"].items() <= other.items()


def test_another_stream_is_not_selected():
    other = StreamNames("geo", "other").labels("router")

    assert not manifests.service(NAMES, "router", UID)["spec"]["selector"].items() <= other.items()


def cores(quantity):
    """Thousandths of a core."""
    return int(quantity.removesuffix("m")) if quantity.endswith("m") else round(1000 * float(quantity))


def requested(pod):
    return sum(
        cores(each.get("resources", {}).get("requests", {}).get("cpu", "0")) for each in pod["spec"]["containers"]
    )


def test_the_smallest_example_finds_room_on_two_cores_beside_its_services():
    """Of 2,000 m a small node keeps a quarter for what a cluster runs by itself: its DNS, its network, its proxy."""
    spec = StreamSpec.parse(defaulted(yaml.safe_load((ROOT / "examples/minimal.yaml").read_text())["spec"]), DEFAULTS)
    stream = requested(manifests.driver_pod("router", spec, NAMES, UID)) + requested(
        manifests.driver_pod("worker", spec, NAMES, UID)
    )
    stream += requested(manifests.executor_trial(spec, NAMES))
    values, dev = (
        yaml.safe_load((ROOT / f"charts/{name}/values.yaml").read_text())
        for name in ("spatialstream", "spatialstream-dev")
    )
    parts = [values, *(dev[name] for name in ("zookeeper", "kafka", "prometheus"))]
    services = sum(cores(each["resources"]["requests"]["cpu"]) for each in parts)

    assert stream == 750
    assert stream + services <= 1_500


@pytest.mark.parametrize("url", ["s3://ab", "s3://ab/prefix", f"s3://{'a' * 64}/prefix"])
def test_a_bucket_whose_name_is_too_short_or_too_long_is_said_to_be(url):
    with pytest.raises(SettingError, match=r"spec\.checkpoint\.url: .*: bucket names have 3 to 63 characters"):
        parse({"checkpoint": {"claimName": None, "url": url}})


def test_the_pod_that_removes_has_no_container_that_keeps_it_from_ending():
    """It ends when all of its containers have; those that are known as sidecars are ended with the others."""
    proxy, real, before = {"name": "proxy"}, {"name": "real", "restartPolicy": "Always"}, {"name": "before"}
    template = {"spec": {"containers": [{"name": "driver", "env": [{"name": "A", "value": "b"}]}, proxy]}}
    template["spec"]["initContainers"] = [real, before]
    spec = parse({"router": {"podTemplate": template}})
    assert [each["name"] for each in pods(spec)["router"]["spec"]["containers"]] == ["driver", "proxy"]

    pod = remover_pod(spec, NAMES, UID)
    assert [each["name"] for each in pod["spec"]["containers"]] == ["driver"]
    assert {"name": "A", "value": "b"} in container(pod)["env"]
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["real", "before"]
