"""Every pod and every object of the charts, in every configuration."""

import configparser
import json
import re

import pytest
import yaml

from spatialstream.cli import parser
from spatialstream.cli.gateway import check_options
from spatialstream_operator.config import OperatorConfig
from tests.charts.configurations import CONFIGURATIONS, EVERYTHING
from tests.charts.render import OPERATOR, SERVICES, helm, named, of_kind, pods, render

pytestmark = pytest.mark.gate

CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PersistentVolume"}
VOLUMES = {
    "configMap",
    "emptyDir",
    "persistentVolumeClaim",
    "projected",
    "secret",
}  # what the restricted profile allows
GATEWAY_PODS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "spatialstream-system"}},
    "podSelector": {
        "matchLabels": {
            "app.kubernetes.io/instance": "spatialstream",
            "app.kubernetes.io/name": "spatialstream-gateway",
        }
    },
}


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def objects(request):
    chart, values = CONFIGURATIONS[request.param]
    return render(chart, values)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_lint_finds_nothing(configuration):
    chart, values = CONFIGURATIONS[configuration]

    assert "0 chart(s) failed" in helm("lint", "--strict", chart, values=values)


def test_pods_are_within_the_restricted_profile(objects):
    for name, pod in pods(objects):
        spec = pod["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == security["fsGroup"] == 10001, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"} & spec.keys(), name
        assert all(volume.keys() - {"name"} <= VOLUMES for volume in spec.get("volumes", [])), name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert not any("hostPort" in port for port in container.get("ports", [])), name


def test_containers_say_what_they_need(objects):
    for name, pod in pods(objects):
        for container in pod["spec"]["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


def test_images_are_pinned(objects):
    for name, pod in pods(objects):
        for container in pod["spec"]["containers"]:
            assert re.fullmatch(r"[^:@]+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})", container["image"]), name
            assert container["imagePullPolicy"], name


def test_lasting_pods_have_probes_of_ports_that_they_have(objects):
    for each in of_kind(objects, "Deployment", "StatefulSet"):
        for container in each["spec"]["template"]["spec"]["containers"]:
            ports = {port["name"] for port in container.get("ports", [])}
            if not ports:  # serves nobody
                continue
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                (how,) = [container[probe][key] for key in ("httpGet", "tcpSocket") if key in container[probe]]
                assert how["port"] in ports, (each["metadata"]["name"], probe)


def test_tokens_are_mounted_only_where_they_are_used(objects):
    with_token = {name for name, pod in pods(objects) if pod["spec"]["automountServiceAccountToken"]}
    everyone = {name for name, _ in pods(objects)}

    assert with_token == everyone & {
        "spatialstream",
        "spatialstream-gateway",
        "spatialstream-test",
        "spatialstream-prometheus",
    }
    assert all(account["automountServiceAccountToken"] is False for account in of_kind(objects, "ServiceAccount"))


def test_objects_have_the_usual_labels_and_a_namespace(objects):
    for each in objects:
        if each["kind"] != "CustomResourceDefinition":
            labels = each["metadata"]["labels"]
            usual = {f"app.kubernetes.io/{label}" for label in ("name", "instance", "managed-by")}
            assert usual <= labels.keys(), each["metadata"]["name"]
        assert ("namespace" in each["metadata"]) is (each["kind"] not in CLUSTER_WIDE), each["metadata"]["name"]


def test_no_object_is_there_twice(objects):
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]

    assert len(keys) == len(set(keys))


def test_services_and_budgets_and_policies_select_the_pods_that_they_are_for(objects):
    for each in of_kind(objects, "Deployment", "StatefulSet"):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert (
            each["spec"]["selector"]["matchLabels"].items()
            <= named(objects, "Service", each["metadata"]["name"])["spec"]["selector"].items()
        )
    for each in of_kind(objects, "PodDisruptionBudget", "PodMonitor"):
        assert each["spec"]["selector"] == named(objects, "Deployment", each["metadata"]["name"])["spec"]["selector"]
    for each in of_kind(objects, "HorizontalPodAutoscaler"):
        assert named(objects, "Deployment", each["spec"]["scaleTargetRef"]["name"])


def test_roles_are_bound_to_accounts_of_the_release(objects):
    for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        assert each["roleRef"]["name"] == "system:auth-delegator" or named(  # which every cluster has
            [role for role in objects if role["metadata"].get("namespace") == each["metadata"].get("namespace")],
            each["roleRef"]["kind"],
            each["roleRef"]["name"],
        )
        (subject,) = each["subjects"]
        assert subject["namespace"] == "spatialstream-system"
        assert named(objects, "ServiceAccount", subject["name"])


def test_values_reach_the_operator():
    objects = render(OPERATOR, EVERYTHING)
    spec = named(objects, "Deployment", "spatialstream")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}

    assert environment == {
        "POD_NAME": None,
        "POD_NAMESPACE": None,
        "SPATIALSTREAM_OPERATOR_NAMESPACES": "geo,weather",
        "SPATIALSTREAM_OPERATOR_IMAGE": "registry.example/geo/spark:9.9.9",
        "SPATIALSTREAM_OPERATOR_IMAGE_PULL_POLICY": "IfNotPresent",
        "SPATIALSTREAM_OPERATOR_PROMETHEUS_URL": "https://prometheus.monitoring:9090",
        "SPATIALSTREAM_OPERATOR_PROMETHEUS_ACCESS": "/etc/spatialstream/prometheus",
        "SPATIALSTREAM_OPERATOR_MONITORS": "true",
        "SPATIALSTREAM_OPERATOR_MONITOR_LABELS": "release=prometheus,",
        "SPATIALSTREAM_OPERATOR_NETWORK_POLICIES": "true",
        "SPATIALSTREAM_OPERATOR_METRICS_FROM": '[{"namespaceSelector":{}}]',
        "SPATIALSTREAM_OPERATOR_CLIENTS_FROM": json.dumps(
            [{"podSelector": {}}, GATEWAY_PODS], separators=(",", ":"), sort_keys=True
        ),
        "SPATIALSTREAM_OPERATOR_GATEWAY_URL": "https://streams.example.org",
        "SPATIALSTREAM_OPERATOR_GATEWAY_SERVICE": "https://spatialstream-gateway.spatialstream-system.svc",
        "SPATIALSTREAM_OPERATOR_GATEWAY_TOKEN": "/var/run/secrets/spatialstream/token",
        "SPATIALSTREAM_OPERATOR_GATEWAY_AUTHORITY": "/var/run/secrets/spatialstream/ca.crt",
        "SPATIALSTREAM_OPERATOR_TEMPLATE_ALLOW": "nodeName,volumes.secret",
        "SPATIALSTREAM_OPERATOR_OPTIONS": "any",
        "SPATIALSTREAM_OPERATOR_IMAGES": "registry.example/geo/*",
        "SPATIALSTREAM_OPERATOR_SECRETS": "kafka,zookeeper",
        "SPATIALSTREAM_OPERATOR_EXECUTOR_GRACE": "600",
        "SPATIALSTREAM_OPERATOR_LOG_LEVEL": "debug",
        "SPATIALSTREAM_OPERATOR_LOG_FORMAT": "text",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    for field in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[field] == EVERYTHING[field]
    assert spec["serviceAccountName"] == "operator"


def arguments(values):
    """How the gateway is started."""
    spec = named(render(OPERATOR, values), "Deployment", "spatialstream-gateway")["spec"]["template"]["spec"]
    return spec["containers"][0]["args"]


def test_values_reach_the_gateway():
    objects = render(OPERATOR, EVERYTHING)
    deployment = named(objects, "Deployment", "spatialstream-gateway")
    spec = deployment["spec"]["template"]["spec"]

    assert "replicas" not in deployment["spec"]  # which are the autoscaler's
    assert arguments(EVERYTHING) == [
        "spatialstream",
        "gateway",
        "--namespaces=geo,weather",
        "--host=0.0.0.0",
        "--port=8080",
        "--metrics-address=0.0.0.0",
        "--metrics-port=9090",
        "--rate=2.5",
        "--connections=70",
        "--largest-body=1048576",
        "--largest-answer=2097152",
        "--memory=33554432",
        "--stream-secret=kafka",
        "--stream-secret=zookeeper",
        "--token-review",
        "--registrar=system:serviceaccount:spatialstream-system:operator",
        "--audience=https://streams.example.org",
        "--tokens=/etc/spatialstream/tokens/tokens",
        "--certificate=/etc/spatialstream/tls/tls.crt",
        "--key=/etc/spatialstream/tls/tls.key",
        "--allow-origin=https://maps.example.org",
        "--trusted-proxy=10.0.0.0/8",
        "--trusted-proxy=fd00::1",
    ]
    assert spec["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert spec["containers"][0]["image"].startswith(EVERYTHING["image"]["repository"])
    for field in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[field] == EVERYTHING["gateway"][field]
    assert spec["imagePullSecrets"] == EVERYTHING["imagePullSecrets"]
    assert spec["serviceAccountName"] == "gateway"
    assert {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume} == {
        "tokens",
        "streams-tls",
    }


@pytest.mark.parametrize("configuration", [name for name, (chart, _) in CONFIGURATIONS.items() if chart == OPERATOR])
def test_the_command_line_takes_the_arguments_of_the_gateway(configuration):
    values = CONFIGURATIONS[configuration][1]
    if values.get("gateway", {}).get("enabled") is not False:
        check_options(parser().parse_args(arguments(values)[1:]))


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        ({}, ["--audience=spatialstream-gateway", "--api-server-audience"]),
        ({"audiences": ["a", "b"]}, ["--audience=a", "--audience=b"]),
        ({"tokenReview": False, "tokensSecret": "tokens"}, []),
    ],
)
def test_any_token_of_an_account_will_do_unless_audiences_are_named(access, expected):
    assert [each for each in arguments({"gateway": {"access": access}}) if "audience" in each] == expected


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "http://spatialstream-gateway.spatialstream-system.svc"),
        ({"service": {"port": 8080}}, "http://spatialstream-gateway.spatialstream-system.svc:8080"),
        ({"tls": {"secretName": "t"}}, "https://spatialstream-gateway.spatialstream-system.svc:80"),
        ({"ingress": {"enabled": True, "host": "a.example"}}, "http://a.example"),
        ({"ingress": {"enabled": True, "host": "a.example", "tlsSecretName": "t"}}, "https://a.example"),
        (
            {"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["b.example"]}},
            "https://b.example",
        ),
        ({"url": "https://c.example/streams/", "ingress": {"enabled": True, "host": "a"}}, "https://c.example/streams"),
        ({"enabled": False}, None),
    ],
)
def test_the_operator_is_told_where_the_gateway_is(values, url):
    spec = named(render(OPERATOR, {"gateway": values}), "Deployment", "spatialstream")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}

    assert environment.get("SPATIALSTREAM_OPERATOR_GATEWAY_URL") == url
    peers = json.loads(environment["SPATIALSTREAM_OPERATOR_CLIENTS_FROM"])
    assert peers == ([GATEWAY_PODS] if url else [])


@pytest.mark.parametrize(
    ("values", "service", "audience"),
    [
        ({}, "http://spatialstream-gateway.spatialstream-system.svc", "spatialstream-gateway"),
        (
            {"url": "https://c.example"},
            "http://spatialstream-gateway.spatialstream-system.svc",
            "spatialstream-gateway",
        ),
        (
            {"tls": {"secretName": "tls"}, "access": {"audiences": ["a", "b"]}, "service": {"port": 8443}},
            "https://spatialstream-gateway.spatialstream-system.svc:8443",
            "a",
        ),
        ({"access": {"tokenReview": False, "tokensSecret": "tokens"}}, None, None),
        ({"enabled": False}, None, None),
    ],
)
def test_the_operator_registers_queries_by_the_gateway_with_a_token_that_it_takes(values, service, audience):
    spec = named(render(OPERATOR, {"gateway": values}), "Deployment", "spatialstream")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}

    assert environment.get("SPATIALSTREAM_OPERATOR_GATEWAY_SERVICE") == service
    assert ("gateway" in mounts) == ("gateway" in volumes) == (service is not None)
    if service is None:
        return
    token, *authority = volumes["gateway"]["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == audience  # without one it would be for the API server
    assert f"--audience={audience}" in arguments({"gateway": values})
    assert environment["SPATIALSTREAM_OPERATOR_GATEWAY_TOKEN"] == f"{mounts['gateway']}/token"
    assert environment["SPATIALSTREAM_OPERATOR_GATEWAY_AUTHORITY"] == f"{mounts['gateway']}/ca.crt"
    assert [each["secret"]["name"] for each in authority] == (["tls"] if "tls" in values else [])


def test_names_follow_the_release():
    def names(release, **values):
        return named_deployments(render(OPERATOR, {"crds": {"install": False}, **values}, release))

    def named_deployments(objects):
        return sorted(each["metadata"]["name"] for each in of_kind(objects, "Deployment"))

    assert names("spatialstream") == ["spatialstream", "spatialstream-gateway"]
    assert names("geo") == ["geo-spatialstream", "geo-spatialstream-gateway"]
    assert names("geo", nameOverride="operator") == ["geo-operator", "geo-operator-gateway"]
    assert names("geo", fullnameOverride="sps") == ["sps", "sps-gateway"]
    assert all(len(name) <= 63 for name in names("g" * 53))


def called(word):
    """Values with a word for whatever has a name, of each chart."""
    names, labels = [word], {"a": word}
    gateway = {
        "access": {"audiences": names, "tokensSecret": word},
        "secrets": names,
        "tls": {"secretName": word, "issuer": {"name": word, "dnsNames": names}},
        "ingress": {"enabled": True, "className": word, "host": word, "tlsSecretName": word},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": word}], "hostnames": names},
        "serviceAccount": {"name": word},
        "autoscaling": {"enabled": True},
        "podLabels": labels,
        "priorityClassName": word,
    }
    operator = {
        "fullnameOverride": word,
        "imagePullSecrets": [{"name": word}],
        "watch": {"namespaces": names},
        "prometheus": {"url": "https://prometheus", "secretName": word},
        "rbac": {"secrets": {"names": names}},
        "serviceAccount": {"name": word, "annotations": labels},
        "podLabels": labels,
        "podAnnotations": labels,
        "nodeSelector": labels,
        "priorityClassName": word,
        "monitoring": {"prometheusOperator": True, "labels": labels},
        "dashboards": {"labels": labels, "annotations": labels},
        "networkPolicy": {"restrictEgress": True, "streamNamespaces": names},
        "gateway": gateway,
    }
    everywhere = {"watch": {"all": True}, "serviceAccount": {"create": False, "name": word}}
    services = {"imagePullSecrets": [{"name": word}], "prometheus": {"namespaces": names}, "objects": {"enabled": True}}
    folder = {"storage": {"hostPath": f"/{word}", "services": True}}
    return [
        (OPERATOR, operator),
        (OPERATOR, everywhere),
        (SERVICES, services | folder),
        (SERVICES, {"storage": {"storageClass": word}}),
    ]


@pytest.mark.parametrize("word", ["123", "on", "null", "2026-01-01"])
@pytest.mark.parametrize("number", range(4))
def test_a_name_is_a_name_though_yaml_might_read_it_as_something_else(number, word):
    def written(name):
        chart, values = called(name)[number]
        return sorted(json.dumps(each, sort_keys=True) for each in render(chart, values, name, name))

    assert written(word) == sorted(each.replace("itsname", word) for each in written("itsname"))


def test_an_audience_may_be_any_text():
    values = {"gateway": {"access": {"audiences": ["a: b #c", "'d' {\"e\"}"]}}}
    assert {"--audience=a: b #c", "--audience='d' {\"e\"}"} <= set(arguments(values))


def test_scrape_annotations_stand_in_for_the_prometheus_operator():
    def annotations(values):
        return named(render(OPERATOR, values), "Deployment", "spatialstream")["spec"]["template"]["metadata"][
            "annotations"
        ]

    assert annotations({}) == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    assert not annotations({"monitoring": {"prometheusOperator": True}})


def test_custom_resources_are_the_files_and_stay_if_told_to():
    def resources(values):
        return of_kind(render(OPERATOR, values), "CustomResourceDefinition")

    files = [
        yaml.safe_load((OPERATOR / "files" / f"{name}.yaml").read_text()) for name in ("crd", "query-crd", "area-crd")
    ]
    kept = resources({})
    for each in kept:
        assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}

    def names(definitions):
        return sorted(each["metadata"]["name"] for each in definitions)

    assert sorted(kept, key=str) == sorted(files, key=str)
    assert sorted(resources({"crds": {"keep": False}}), key=str) == sorted(files, key=str)
    assert names(kept) == [f"spatial{each}.spatialstream.dev" for each in ("areas", "queries", "streams")]


def test_services_keep_their_data_only_when_told_to():
    def volumes(values):
        objects = render(SERVICES, values)
        return {
            name: next(each for each in pod["spec"]["volumes"] if each["name"] == "data").keys() - {"name"}
            for name, pod in pods(objects)
        }

    everyone = ["spatialstream-kafka", "spatialstream-prometheus", "spatialstream-zookeeper"]
    assert volumes({}) == {name: {"emptyDir"} for name in everyone}
    assert volumes({"storage": {"services": True}, "objects": {"enabled": True}}) == {
        "spatialstream-kafka": {"persistentVolumeClaim"},
        "spatialstream-objects": {"persistentVolumeClaim"},
        "spatialstream-prometheus": {"emptyDir"},
        "spatialstream-zookeeper": {"persistentVolumeClaim"},
    }


def test_a_folder_of_the_node_is_bound_to_the_claim_and_to_nothing_else():
    objects = render(SERVICES, {"storage": {"hostPath": "/var/tmp"}}, "dev", "geo")
    (volume,) = of_kind(objects, "PersistentVolume")
    claim = named(objects, "PersistentVolumeClaim", "dev-checkpoints")

    assert volume["spec"]["hostPath"] == {"path": "/var/tmp", "type": "Directory"}
    assert volume["spec"]["claimRef"] == {"namespace": "geo", "name": "dev-checkpoints"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == volume["spec"]["storageClassName"] == ""
    assert claim["spec"]["accessModes"] == volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_the_object_store_and_the_streams_are_told_the_same_keys():
    values = {"objects": {"enabled": True, "accessKey": "abc", "secretKey": "d/e+f="}}
    objects = render(SERVICES, values, "dev", "geo")
    told = named(objects, "Secret", "dev-objects")["stringData"]
    keys = configparser.ConfigParser()
    keys.read_string(told["credentials"])
    (identity,) = json.loads(told["s3.json"])["identities"]
    (container,) = named(objects, "StatefulSet", "dev-objects")["spec"]["template"]["spec"]["containers"]
    (config,) = [each["value"] for each in container["env"] if each["name"] == "OBJECTS_CONFIG"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "keys"]

    assert dict(keys["default"]) == {"aws_access_key_id": "abc", "aws_secret_access_key": "d/e+f="}
    assert identity["credentials"] == [{"accessKey": "abc", "secretKey": "d/e+f="}]
    assert config == f"{mount['mountPath']}/s3.json"
    assert not [each for each in render(SERVICES, {}) if each["metadata"]["name"].endswith("-objects")]


def test_kafka_tells_an_address_that_resolves_in_every_namespace():
    (container,) = named(render(SERVICES, {}, "dev", "geo"), "StatefulSet", "dev-kafka")["spec"]["template"]["spec"][
        "containers"
    ]

    assert {"name": "KAFKA_ADVERTISED", "value": "dev-kafka.geo.svc:9092"} in container["env"]


WHERE = ("apiServer", "prometheus", "zookeeper", "kafka", "objectStore", "others")
"""Lists of networkPolicy.egress; the test gives the n-th of them the port n."""


@pytest.mark.parametrize(
    ("policy", "reached"),
    [
        ("spatialstream", {"apiServer", "prometheus", "zookeeper", "others"}),
        ("spatialstream-gateway", {"apiServer", "zookeeper", "kafka", "others"}),
        ("spatialstream-streams", {"kafka", "objectStore", "others"}),
        ("spatialstream-drivers", {"apiServer", "zookeeper"}),
    ],
)
def test_each_connects_only_to_what_it_needs(policy, reached):
    egress = {name: [{"ports": [{"port": port, "protocol": "TCP"}]}] for port, name in enumerate(WHERE, 1)}
    values = {"networkPolicy": {"restrictEgress": True, "streamNamespaces": ["geo"], "egress": egress}}

    spec = named(render(OPERATOR, values), "NetworkPolicy", policy)["spec"]

    ports = {port["port"] for rule in spec["egress"] for port in rule.get("ports", ())}
    assert ports == {53} | {WHERE.index(name) + 1 for name in reached}
    assert all("ports" in rule or rule["to"] for rule in spec["egress"]), "no rule leads everywhere"
    assert "Egress" in spec["policyTypes"]
    selected = spec["podSelector"].get("matchExpressions", [])
    assert [each["values"] for each in selected] == ([["router", "worker", "remover"]] if "drivers" in policy else [])


def test_what_streams_may_say_is_told_to_operator_and_gateway():
    values = {
        "streams": {
            "podTemplate": {"allow": ["nodeName", "volumes.secret"]},
            "options": "any",
            "images": ["registry.example/*"],
            "secrets": ["kafka", "zk-*"],
        }
    }
    objects = render(OPERATOR, values)
    container = named(objects, "Deployment", "spatialstream")["spec"]["template"]["spec"]["containers"][0]
    said = {each["name"]: each.get("value") for each in container["env"]}

    config = OperatorConfig.from_environment({name: value for name, value in said.items() if value is not None})
    assert config.template_allow == {"nodeName", "volumes.secret"}
    assert (config.options_any, config.images, config.secrets) == (True, ("registry.example/*",), ("kafka", "zk-*"))
    assert {"--stream-secret=kafka", "--stream-secret=zk-*"} <= set(arguments(values))
    plain = named(render(OPERATOR, {}), "Deployment", "spatialstream")["spec"]["template"]["spec"]["containers"][0]
    least = OperatorConfig.from_environment({each["name"]: each.get("value", "") for each in plain["env"]})
    assert (least.template_allow, least.options_any, least.images, least.secrets) == (frozenset(), False, (), ())
