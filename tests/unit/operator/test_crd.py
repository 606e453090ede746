import importlib.util
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.settings import NEAREST, SETTLE
from spatialstream.index.kinds import CHOICES, DEFAULT
from spatialstream.model.times import TIME_LIMIT, parse_duration
from spatialstream_operator.commands import spark_properties
from spatialstream_operator.manifests.merge import OWNED_BY_OPERATOR, OWNED_IN_CONTAINER
from spatialstream_operator.manifests.restricted import VOLUME_KINDS
from spatialstream_operator.names import GROUP, KIND, PLURAL
from spatialstream_operator.names import VERSION as VERSION_NAME
from tests.unit.operator.resource import CRD, NAMES, ROOT, SCHEMA, SPEC_SCHEMA, VERSION, leaves, nodes, parse

RULES = [(path, rule) for path, each in nodes(SCHEMA, "self") for rule in each.get("x-kubernetes-validations", ())]
DURATION = re.search(r"matches\('([^']*ms[^']*)'\)", str(SPEC_SCHEMA["properties"]["interval"])).group(1)
WRONG = yaml.safe_load((ROOT / "tests/api/wrong_specs.yaml").read_text())
LIMITED = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
UPDATES = yaml.safe_load((ROOT / "tests/api/update_refusals.yaml").read_text())


def spec_field(path):
    schema = SPEC_SCHEMA
    for name in path.split("."):
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def test_it_is_plain_yaml_that_helm_takes_as_it_is():
    text = (ROOT / "charts/spatialstream/files/crd.yaml").read_text()

    assert "{{" not in text
    assert not re.search(r"[&*]id\d", text)


def test_it_is_called_as_the_operator_calls_it():
    spec = CRD["spec"]

    assert CRD["metadata"]["name"] == f"{PLURAL}.{GROUP}"
    assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (GROUP, KIND, PLURAL)
    assert spec["names"]["shortNames"] == ["sps"]
    assert spec["scope"] == "Namespaced"
    assert VERSION["name"] == VERSION_NAME


def test_every_field_is_described():
    bare = [path for path, each in nodes(SCHEMA, "self") if not path.endswith("[]") and "description" not in each]

    # metadata is the API server's own
    assert set(bare) == {"self", "self.metadata"} - {"self"}


def test_everything_in_the_spec_is_bounded():
    """Without bounds the API server takes rules for too expensive, and etcd takes what it should not."""
    bound = {"string": ("maxLength", "enum"), "array": ("maxItems",), "integer": ("maximum", "format")}
    unbounded = [
        path
        for path, each in nodes(SPEC_SCHEMA, "spec")
        if each.get("type") in bound and not any(name in each for name in bound[each["type"]])
    ]
    maps = [path for path, each in nodes(SPEC_SCHEMA, "spec") if "additionalProperties" in each]

    assert unbounded == []
    assert [path for path in maps if "maxProperties" not in dict(nodes(SPEC_SCHEMA, "spec"))[path]] == []


def test_every_field_says_what_a_change_of_it_does():
    sentences = ("Changing it restarts ", "Immutable.")
    silent = {path for path, each in leaves() if not any(sentence in each["description"] for sentence in sentences)}

    # these say in their own words what they do
    assert silent == {"suspend", "restartNonce"}


@pytest.mark.parametrize(("path", "rule"), RULES, ids=[f"{path}-{rule['rule'][:30]}" for path, rule in RULES])
def test_every_rule_says_what_would_be_right(path, rule):
    assert len(rule["message"]) >= 12
    assert not rule["message"].endswith(".")


def test_fields_that_cannot_be_changed_have_a_rule_for_it():
    fixed = {path for path, each in leaves() if "Immutable." in each["description"]}
    guarded = {path.removeprefix("self.spec.") for path, rule in RULES if rule["rule"] == "self == oldSelf"}
    by_parent = {"retention", "kafka.topics"}

    assert {
        path for path in fixed if not any(f"{path}.".startswith(f"{each}.") for each in guarded | by_parent)
    } == set()
    transitions = [
        (path, rule["fieldPath"]) for path, rule in RULES if "oldSelf" in rule["rule"] and "fieldPath" in rule
    ]
    assert transitions == [("self.spec", ".retention"), ("self.spec.kafka", ".topics")]


def test_the_kinds_of_index_are_those_that_there_are():
    kind = spec_field("index.kind")

    assert tuple(kind["enum"]) == CHOICES
    assert kind["default"] == parse({}).index.kind == DEFAULT


def test_the_placements_of_ckqs_are_those_that_there_are():
    nearest = spec_field("index.nearest")

    assert tuple(nearest["enum"]) == NEAREST
    assert nearest["default"] == parse({}).index.nearest == SETTLE


@given(st.from_regex(DURATION, fullmatch=True))
def test_every_duration_that_is_accepted_can_be_read(text):
    assert 0 <= parse_duration(text) <= TIME_LIMIT


@pytest.mark.parametrize("text", ["5", "5 m", "1.5h", "-3s", "2w", "1h30m", "", "10000d", "s"])
def test_other_durations_are_not_accepted(text):
    assert not re.fullmatch(DURATION, text)


def test_properties_that_the_operator_sets_are_refused():
    spec = {
        "retention": "1d",
        "archive": {"claimName": "archive"},
        "router": {"max": 2, "executor": {"resources": LIMITED}},
        "workers": {"resources": LIMITED},
    }

    def properties_of(job, part, **options):
        given = parse(spec | {part: spec[part] | {"options": options}})
        return spark_properties(given, NAMES, job, 2)

    for path, job, part in (("router.options", "router", "router"), ("workers.options", "worker", "workers")):
        names = properties_of(job, part)
        tried = properties_of(job, part, **dict.fromkeys(names, "mine"))
        properties = [name for name in names if tried[name] != "mine"]  # the others are defaults
        assert {"spark.network.timeout", "spark.network.timeoutInterval"} == names.keys() - properties
        rule = spec_field(path)["x-kubernetes-validations"][1]["rule"]
        exact = set(re.findall(r"'(spark\.[A-Za-z.]*[A-Za-z])'", rule))
        prefixes = tuple(
            re.findall(r"\|\| each\.startsWith\('(spark\.[A-Za-z.]*\.)'\)|\(each\.startsWith\('([^']*)'\)", rule)
        )
        starts = tuple(name for pair in prefixes for name in pair if name)

        assert starts
        assert [name for name in properties if name not in exact and not name.startswith(starts)] == []


@pytest.mark.parametrize(
    ("path", "container"),
    [
        ("router.podTemplate", "driver"),
        ("router.executor.podTemplate", "executor"),
        ("workers.driver.podTemplate", "driver"),
        ("workers.podTemplate", "executor"),
    ],
)
def test_pod_templates_refuse_what_the_operator_leaves_out_of_them(path, container):
    spec = spec_field(f"{path}.spec")
    containers = spec_field(f"{path}.spec.containers.[]")
    volumes = spec_field(f"{path}.spec.volumes.[]")

    assert set(re.findall(r"has\(self\.(\w+)\)", spec["x-kubernetes-validations"][0]["rule"])) == OWNED_BY_OPERATOR
    rule = containers["x-kubernetes-validations"][0]["rule"]
    assert set(re.findall(r"has\(self\.(\w+)\)", rule)) == OWNED_IN_CONTAINER
    assert f"self.name != '{container}'" in rule
    assert set(re.findall(r"has\(self\.(\w+)\)", volumes["x-kubernetes-validations"][0]["rule"])) == VOLUME_KINDS


def test_columns_and_scale_look_at_fields_that_exist():
    scale = VERSION["subresources"]["scale"]
    paths = [column["jsonPath"] for column in VERSION["additionalPrinterColumns"]] + list(scale.values())
    known = {path.removeprefix("self") for path, _ in nodes(SCHEMA, "self")} | {".metadata.creationTimestamp"}

    plain = [re.sub(r"\[\?\(.*?\)\]", "[]", path) for path in paths]
    assert [path for path in plain if path not in known] == []


def test_wrong_specs_are_distinct_and_many():
    refused, changes = WRONG["refused"], UPDATES["refused"]

    assert len(refused) >= 30
    assert len({case["name"] for case in refused}) == len(refused)
    assert len({case["name"] for case in changes}) == len(changes)
    assert all(case["message"] for case in [*refused, *changes])


def test_the_reference_is_made_from_it():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)

    for source, target in reference.PAGES.items():
        definition = yaml.safe_load((ROOT / source).read_text())
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        page = (ROOT / target).read_text()
        assert page == reference.render(definition, source), "run python scripts/reference.py"
        assert [path for path, _ in leaves(schema) if f"`{path}`" not in page] == []
