"""What a stream may say of its pods, and what needs an administrator's opt-in."""

from pathlib import Path

import pytest
import yaml

from spatialstream.model.errors import SettingError
from spatialstream.model.secret_rule import SecretRule
from spatialstream_operator import manifests
from spatialstream_operator.manifests.merge import OWNED_BY_OPERATOR
from spatialstream_operator.manifests.remover import remover_pod
from spatialstream_operator.names import StreamNames
from spatialstream_operator.permissions import Permissions, named_secrets, narrowed, refusals, refuse
from spatialstream_operator.spec import OperatorDefaults, StreamSpec

ROOT = Path(__file__).parents[3]
IMAGE = "registry.example/geo/spark:1"
BASE = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "zookeeper": {"servers": "zk:2181"},
    "checkpoint": {"claimName": "checkpoints"},
}
PLACES = {
    "spec.router.podTemplate": ("driver", lambda template: {"router": {"podTemplate": template}}),
    "spec.workers.podTemplate": ("executor", lambda template: {"workers": {"podTemplate": template}}),
    "spec.workers.driver.podTemplate": ("driver", lambda template: {"workers": {"driver": {"podTemplate": template}}}),
    "spec.router.executor.podTemplate": (
        "executor",
        lambda template: {"router": {"max": 2, "executor": {"podTemplate": template}}},
    ),
}


def parse(spec):
    return StreamSpec.parse({**BASE, **spec}, OperatorDefaults(IMAGE))


def refused(spec, **permissions):
    return refusals(parse(spec), IMAGE, Permissions(**permissions))


HARMLESS = {
    "metadata": {"labels": {"team": "geo"}, "annotations": {"example.org/owner": "geo"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "priorityClassName": "streams",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"fsGroup": 2000},
        "imagePullSecrets": [{"name": "pull"}],
        "runtimeClassName": None,
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
            {"name": "more", "emptyDir": {}},
            {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
        ],
    },
}
VARIABLES = [
    {"name": "TZ", "value": "Europe/Berlin"},
    {"name": "https_proxy", "value": "http://proxy:3128"},
    {"name": "MALLOC_ARENA_MAX", "value": "2"},
    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    {"name": "EMPTY"},
]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_harmless_needs_nobodys_leave(place):
    own, spec = PLACES[place]
    container = {"name": own, "env": VARIABLES, "volumeMounts": [{"name": "more", "mountPath": "/more"}]}
    template = {**HARMLESS, "spec": {**HARMLESS["spec"], "containers": [container]}}

    assert refused(spec(template)) == []


CASES = [
    ({"nodeName": "node-1"}, "nodeName", "nodeName"),
    ({"schedulerName": "mine"}, "schedulerName", "schedulerName"),
    ({"runtimeClassName": "kata"}, "runtimeClassName", "runtimeClassName"),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName", "priorityClassName"),
    ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["kafka"]}]}, "hostAliases", "hostAliases"),
    ({"dnsConfig": {"nameservers": ["10.0.0.1"]}}, "dnsConfig", "dnsConfig"),
    ({"shareProcessNamespace": True}, "shareProcessNamespace", "shareProcessNamespace"),
    ({"initContainers": [{"name": "a", "image": "a"}]}, "initContainers", "initContainers"),
    ({"fieldOfTomorrow": 1}, "fieldOfTomorrow", "fieldOfTomorrow"),
    ({"containers": [{"name": "beside", "image": "a"}]}, "containers[beside]", "containers"),
    ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "volumes[v].secret", "volumes.secret"),
    ({"volumes": [{"name": "v", "projected": {"sources": []}}]}, "volumes[v].projected", "volumes.projected"),
    ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "volumes[v].configMap", "volumes.configMap"),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[v].hostPath", "volumes.hostPath"),
    ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "volumes[v].csi", "volumes.csi"),
    # mounted among a program's own files, an annotation is code
    ({"volumes": [{"name": "v", "downwardAPI": {"items": []}}]}, "volumes[v].downwardAPI", "volumes.downwardAPI"),
    (
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"a": "b"}}}}}]},
        "volumes[v].ephemeral.volumeClaimTemplate.metadata",
        "volumes.ephemeral",
    ),
    (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "volumes[v].persistentVolumeClaim",
        "volumes.persistentVolumeClaim",
    ),
    (
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"name": "c"}}}}}]},
        "volumes[v].ephemeral.volumeClaimTemplate.spec.dataSource",
        "volumes.ephemeral",
    ),
]
OWN_CASES = [
    ({"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}, "lifecycle", "containers.lifecycle"),
    ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom", "containers.envFrom"),
    ({"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-javaagent:/a"}]}, "env[JAVA_TOOL_OPTIONS]", "containers.env"),
    ({"env": [{"name": "LD_PRELOAD", "value": "/checkpoint/a.so"}]}, "env[LD_PRELOAD]", "containers.env"),
    (
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        "env[A].valueFrom",
        "containers.env",
    ),
    (
        {"env": [{"name": "LD_PRELOAD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}}]},
        "env[LD_PRELOAD].valueFrom.fieldRef",
        "containers.env",
    ),
    (
        {"volumeMounts": [{"name": "checkpoint", "mountPath": "/opt/spark/jars", "subPath": "a"}]},
        "volumeMounts[checkpoint]",
        "containers.volumeMounts",
    ),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("pod", "field", "part"), CASES)
def test_what_could_be_anybodys_is_refused_and_says_who_may_allow_it(place, pod, field, part):
    _, spec = PLACES[place]

    (found,) = refused(spec({"spec": pod}))

    assert found.field == f"{place}.spec.{field}"
    assert f"streams.podTemplate.allow: [{part}]" in found.problem
    assert refused(spec({"spec": pod}), template=frozenset({part})) == []
    assert refused(spec({"spec": pod}), template=frozenset({"*"})) == []
    assert len(refused(spec({"spec": pod}), template=frozenset({"other", f"{part}x"}))) == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("container", "field", "part"), OWN_CASES)
def test_so_it_is_with_the_operators_own_container(place, container, field, part):
    own, spec = PLACES[place]
    template = {"spec": {"containers": [{"name": own, **container}]}}

    (found,) = refused(spec(template))

    assert found.field == f"{place}.spec.containers[{own}].{field}"
    assert f"streams.podTemplate.allow: [{part}]" in found.problem
    assert refused(spec(template), template=frozenset({part})) == []
    assert refused(spec(template), template=frozenset({"containers"})) == [], "what is above it allows it too"


@pytest.mark.parametrize("field", sorted(OWNED_BY_OPERATOR))
def test_what_the_operator_owns_comes_into_no_pod_whatever_is_allowed(field):
    spec = parse({"router": {"podTemplate": {"spec": {field: "theirs"}}}})
    pod = manifests.driver_pod("router", spec, StreamNames("geo", "quakes"), "u")

    assert pod["spec"].get(field) != "theirs"


@pytest.mark.parametrize(
    ("given", "meant"), [("nodeselector", "nodeSelector"), ("toleration", "tolerations"), ("afinity", "affinity")]
)
def test_a_misspelt_field_is_told_with_the_one_that_was_meant(given, meant):
    (found,) = refused({"router": {"podTemplate": {"spec": {given: {}}}}})

    assert found.problem.startswith(f"did you mean {meant}? Otherwise it is allowed only if")


def test_all_that_is_refused_is_told_at_once():
    spec = {"image": "evil:1", "router": {"podTemplate": {"spec": {"nodeName": "a", "hostAliases": []}}}}

    with pytest.raises(SettingError) as caught:
        refuse(refused(spec))

    assert caught.value.setting == "spec.image"
    for said in ("spec.router.podTemplate.spec.nodeName: ", "spec.router.podTemplate.spec.hostAliases: "):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("image", "images", "allowed"),
    [
        (IMAGE, (), True),
        ("registry.example/geo/spark:2", (), True),
        ("registry.example/geo/spark", (), True),
        (f"registry.example/geo/spark@sha256:{'0' * 64}", (), True),
        (f"registry.example/geo/spark:2@sha256:{'0' * 64}", (), True),
        ("registry.example/geo/sparks:1", (), False),
        ("spark:1", (), False),
        ("registry.example:5000/geo/spark:1", (), False),
        ("registry.example:5000/geo/spark", ("registry.example:5000/geo/spark",), True),
        ("registry.example/other/spark:1", ("registry.example/geo/*",), False),
        ("registry.example/other/spark:1", ("registry.example/other/*",), True),
        ("anything", ("*",), True),
    ],
)
def test_an_image_is_of_a_repository_that_is_trusted(image, images, allowed):
    found = refused({"image": image}, images=images)

    assert [each.field for each in found] == ([] if allowed else ["spec.image"])


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("spark.network.timeout", "300s", True),
        ("spark.kubernetes.allocation.batch.size", "2", True),
        ("spark.memory.fraction", "0.5", True),
        ("spark.speculation", "true", True),
        ("spark.driver.maxResultSize", "2g", True),
        ("spark.driver.extraJavaOptions", "-XX:OnError=sh", False),
        ("spark.pyspark.python", "/checkpoint/python", False),
        ("spark.executorEnv.LD_PRELOAD", "/checkpoint/a.so", False),
        ("spark.jars.packages", "org.example:evil:1", False),
        ("spark.serializer", "org.example.Evil", False),
        ("spark.ui.enabled", "true", False),
    ],
)
@pytest.mark.parametrize("job", ["router", "workers"])
def test_an_option_is_a_plain_value(job, name, value, allowed):
    spec = {job: {"options": {name: value}}}

    assert [each.field for each in refused(spec)] == ([] if allowed else [f"spec.{job}.options[{name}]"])
    assert refused(spec, options=True) == []


def test_secrets_are_found_wherever_a_spec_names_them():
    pod = {
        "imagePullSecrets": [{"name": "s1"}],
        "volumes": [
            {"name": "a", "secret": {"secretName": "s2"}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s3"}}, {"configMap": {"name": "no"}}]}},
            {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s4"}}},
        ],
        "containers": [{"name": "beside", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s5"}}}]}],
        "initContainers": [{"name": "first", "envFrom": [{"secretRef": {"name": "s6"}}]}],
        "nodeSelector": {"secretName": "no"},
    }
    spec = parse(
        {
            "imagePullSecrets": [{"name": "s7"}],
            "kafka": {"bootstrapServers": "k:9092", "securitySecret": {"name": "s8"}},
            "zookeeper": {"servers": "z:1", "credentialsSecret": {"name": "s9"}, "tlsSecret": {"name": "s10"}},
            "objectStore": {"credentialsSecret": {"name": "s11"}, "caSecret": {"name": "s12"}},
            "workers": {"podTemplate": {"spec": pod}},
        }
    )

    assert {name for _, name in named_secrets(spec)} == {f"s{number}" for number in range(1, 13)}


def test_a_secret_is_for_streams_by_its_label_or_by_its_name():
    assert SecretRule().problem("a", {"spatialstream.dev/allowed": "true"}) is None
    assert SecretRule(["a"]).problem("a", None) is None
    assert SecretRule(["geo-*"]).problem("geo-kafka", {}) is None
    assert SecretRule(["*"]).problem("a", {}) is None
    for rule, labels in ((SecretRule(), None), (SecretRule(["b"]), {"spatialstream.dev/allowed": "false"})):
        said = rule.problem("a", labels)
        assert said is not None
        assert "spatialstream.dev/allowed=true" in said
        assert "streams.secrets" in said


def test_a_stream_is_removed_without_what_it_may_not_say():
    template = {"spec": {"nodeName": "theirs", "nodeSelector": {"disk": "ssd"}}}
    spec = parse({"image": "evil:1", "router": {"podTemplate": template}})

    def removing(permissions):
        return remover_pod(narrowed(spec, IMAGE, permissions), StreamNames("geo", "quakes"), "u")["spec"]

    pod = removing(Permissions())
    assert (pod["containers"][0]["image"], pod.get("nodeName")) == (IMAGE, None)
    pod = removing(Permissions(template=frozenset({"nodeName"}), images=("evil",)))
    assert (pod["containers"][0]["image"], pod.get("nodeName")) == ("evil:1", "theirs")


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_need_no_opt_in(example):
    for body in yaml.safe_load_all(example.read_text()):
        if body and body["kind"] == "SpatialStream":
            assert refusals(StreamSpec.parse(body["spec"], OperatorDefaults(IMAGE)), IMAGE, Permissions()) == []
