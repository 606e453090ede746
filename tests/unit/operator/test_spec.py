import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream_operator.names import StreamNames
from spatialstream_operator.quantity import parse_heap, parse_quantity
from spatialstream_operator.spec import OperatorDefaults, StreamSpec
from tests.unit.operator.resource import DEFAULTS, MINIMAL, ROOT, defaulted, merge, parse, patch_at

WRONG = yaml.safe_load((ROOT / "tests/api/wrong_specs.yaml").read_text())

durations = st.builds("{}{}".format, st.integers(1_000, 99_999), st.sampled_from(["ms", "s", "m", "h"])) | st.integers(
    1, 9999
).map("{}d".format)
amounts = st.builds("{}{}".format, st.integers(1024, 99_999), st.sampled_from(["Mi", "M"])).filter(
    lambda text: parse_quantity(text, "") >= 1 << 30
)
resources = amounts.flatmap(
    lambda memory: st.sampled_from([{"limits": {"memory": memory}}, {"requests": {"memory": memory, "cpu": 2}}])
)
containers = st.fixed_dictionaries({}, optional={"resources": resources, "jvmHeap": st.sampled_from(["512m", "768m"])})


@st.composite
def specs(draw):
    """Specs that the schema and its rules allow."""
    most = draw(st.integers(1, 1024))
    leaves = draw(st.integers(1, 65536))
    interval = draw(durations)
    jobs = st.fixed_dictionaries({}, optional={"cores": st.integers(1, 256), "options": st.just({"spark.a": "b"})})
    optional = {
        "image": st.just("other:2"),
        "imagePullSecrets": st.lists(st.just({"name": "pull"}), max_size=2),
        "space": st.sampled_from(["wgs84", "planar:0,0,1,1", "planar:-1e3,-2.5,7,3E1"]),
        "terms": st.fixed_dictionaries(
            {}, optional={"stopWords": st.lists(st.text(min_size=1, max_size=8), max_size=3)}
        ),
        "properties": st.just({"country": "keyword", "at": "time"}),
        "time": st.fixed_dictionaries({}, optional={"idle": durations, "ahead": durations}),
        "mergers": st.integers(1, 64),
        "maxRecordBytes": st.integers(1024, 8 << 20),
        "maxRowBytes": st.integers(1024, 1 << 30),
        "archive": st.sampled_from([{"claimName": "archive", "subPath": "a/b"}, {"url": "s3://old/b"}]),
        "rebalance": st.fixed_dictionaries({}, optional={"mode": st.sampled_from(["auto", "approve", "off"])}),
        "deletion": st.just({"topics": "Delete", "state": "Keep"}),
        "suspend": st.booleans(),
    }
    spec = draw(st.fixed_dictionaries({}, optional=optional))
    spec |= {"interval": interval, "retention": interval}
    spec["index"] = {
        "kind": draw(st.sampled_from(["qt-tree", "a-grid", "kd-t", "grid"])),
        "leaves": leaves,
        "maxLeaves": draw(st.integers(leaves, 65536)),
        "imbalance": draw(st.integers(2, 100) | st.floats(1.001, 100)),
        "similarity": draw(st.sampled_from([0, 1]) | st.floats(0, 1)),
        "similarityForm": draw(st.sampled_from(["weighted", "printed"])),
    }
    spec["router"] = draw(jobs) | draw(containers)
    workers = {"max": most, "min": draw(st.integers(1, most)), "driver": draw(containers)}
    spec["workers"] = (
        workers
        | draw(jobs)
        | draw(containers)
        | draw(st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 1024)}))
    )
    return merge(MINIMAL, spec)


@given(specs(), st.booleans())
def test_every_spec_that_the_schema_allows_can_be_read(spec, by_server):
    read = StreamSpec.parse(defaulted(spec) if by_server else spec, DEFAULTS)

    assert read.workers.executors.min <= read.workers.executors.wanted <= read.workers.executors.max
    for container in (read.router.driver, read.workers.executors.container, read.workers.driver):
        assert 512 <= container.heap <= container.memory - 256
    assert read.retention == read.interval


@given(specs())
def test_defaults_are_those_of_the_schema(spec):
    assert StreamSpec.parse(spec, DEFAULTS) == StreamSpec.parse(defaulted(spec), DEFAULTS)


@pytest.mark.parametrize("case", WRONG["accepted"], ids=lambda case: case["name"])
def test_specs_that_the_api_server_accepts_can_be_read(case):
    spec = merge(WRONG["valid"]["spec"], case["spec"])

    assert StreamSpec.parse(defaulted(spec), DEFAULTS).kafka.bootstrap == spec["kafka"]["bootstrapServers"]


def test_a_minimal_spec():
    spec = parse()
    workers = spec.workers.executors

    assert spec.image == "spark:1"
    assert spec.prometheus_url == "http://prometheus:9090"
    assert (workers.min, workers.max, workers.wanted) == (1, 4, 1)
    assert (spec.mergers, spec.interval, spec.retention) == (1, 300_000, None)
    assert (spec.time.idle, spec.time.disorder, spec.time.ahead) == (500, 0, 3_600_000)
    assert (spec.rebalance.mode, spec.rebalance.cooldown) == ("auto", 600_000)
    assert (spec.router.driver.memory, spec.router.driver.heap, spec.router.executors) == (2048, 1024, None)
    assert (spec.deletion.topics, spec.deletion.state) == (False, True)


@pytest.mark.parametrize(("name", "value"), [("retention", "1h"), ("archive", {"claimName": "archive"})])
def test_a_stream_of_subscriptions_stores_nothing(name, value):
    assert parse({"serves": "subscriptions"}).serves == "subscriptions"
    told = f"^spec.{name}: a stream that serves subscriptions stores no objects; leave it out, or serve everything"
    with pytest.raises(SettingError, match=told):
        parse({"serves": "subscriptions", name: value})


def test_the_stream_says_otherwise_than_the_operator():
    spec = parse({"image": "mine:2", "imagePullPolicy": "Always", "prometheus": {"url": "http://p:1"}})

    assert (spec.image, spec.image_pull_policy, spec.prometheus_url) == ("mine:2", "Always", "http://p:1")


def test_without_any_prometheus():
    assert StreamSpec.parse(MINIMAL, OperatorDefaults("spark:1")).prometheus_url == ""


@pytest.mark.parametrize(("replicas", "wanted"), [(None, 2), (0, 2), (2, 2), (3, 3), (9, 4)])
def test_replicas_count_within_the_bounds(replicas, wanted):
    assert parse({"workers": {"min": 2, "replicas": replicas}}).workers.executors.wanted == wanted


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("kafka", None, "spec.kafka"),
        ("kafka.bootstrapServers", None, "spec.kafka.bootstrapServers"),
        ("kafka.bootstrapServers", 9092, "spec.kafka.bootstrapServers"),
        ("kafka.securitySecret", {}, "spec.kafka.securitySecret.name"),
        ("checkpoint", None, "spec.checkpoint"),
        ("checkpoint.url", "s3://streams", "spec.checkpoint.url"),
        ("checkpoint", {"claimName": None, "url": "s3://Streams/a"}, "spec.checkpoint.url"),
        ("checkpoint", {"claimName": None, "url": "/checkpoints"}, "spec.checkpoint.url"),
        ("archive", {"url": "s3://old", "subPath": "a"}, "spec.archive.url"),
        ("objectStore", {"credentialsSecret": {}}, "spec.objectStore.credentialsSecret.name"),
        ("zookeeper", "zookeeper:2181", "spec.zookeeper"),
        ("interval", "5 minutes", "spec.interval"),
        ("retention", "1m", "spec.retention"),
        ("space", "planar:1,1,0,0", "spec.space"),
        ("index.kind", "r-tree", "spec.index.kind"),
        ("index.nearest", "near", "spec.index.nearest"),
        ("index.imbalance", 1, "spec.index.imbalance"),
        ("index.imbalance", "6", "spec.index.imbalance"),
        ("index.maxLeaves", 0, "spec.index.maxLeaves"),
        ("workers.min", 5, "spec.workers.min"),
        ("workers.max", 2.5, "spec.workers.max"),
        ("workers.cores", True, "spec.workers.cores"),
        ("workers.options", {"spark.a": 1}, "spec.workers.options.spark.a"),
        ("workers.driver.resources", {"limits": {"memory": "lots"}}, "spec.workers.driver.resources.limits.memory"),
        ("router.jvmHeap", "2g", "spec.router.jvmHeap"),
        ("router.min", 1, "spec.router.min"),
        ("router.max", 3, "spec.router.max"),
        ("router.max", 0, "spec.router.max"),
        ("router", {"min": 2, "max": 1}, "spec.router.min"),
        ("router.executor", {"jvmHeap": "1g"}, "spec.router.executor"),
        ("router", {"max": 1, "executor": {"jvmHeap": "2g"}}, "spec.router.executor.jvmHeap"),
        ("router.resources", {"limits": {"memory": "600Mi"}}, "spec.router.jvmHeap"),
        ("terms.stopWords", "the", "spec.terms.stopWords"),
        ("terms.stopWords", [1], "spec.terms.stopWords[0]"),
        ("terms.counts", True, "spec.terms.counts"),
        ("properties.country", "text", "spec.properties"),
        ("fields", ["txt"], "spec.fields"),
        ("properties.text", "keyword", "spec.properties"),
        ("rebalance.mode", "manual", "spec.rebalance.mode"),
        ("suspend", "yes", "spec.suspend"),
        ("imagePullSecrets", ["pull"], "spec.imagePullSecrets.item"),
    ],
)
def test_an_error_names_the_field(path, value, field):
    with pytest.raises(SettingError) as error:
        StreamSpec.parse(merge(MINIMAL, patch_at(path, value)), DEFAULTS)

    assert error.value.setting == field


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("2", 2),
        (3, 3),
        ("500m", 1),
        ("1.5Gi", 3 << 29),
        ("2Gi", 2 << 30),
        ("1k", 1000),
        ("1e3", 1000),
        ("12E", 12 * 10**18),
        ("1E2", 100),
    ],
)
def test_quantities(text, number):
    assert parse_quantity(text, "field") == number


@pytest.mark.parametrize("text", ["", "2GB", "Gi", "1 Gi", True, None, "1e"])
def test_no_quantities(text):
    with pytest.raises(SettingError, match="field: "):
        parse_quantity(text, "field")


@pytest.mark.parametrize(("text", "size"), [("768m", 768), ("2g", 2048)])
def test_sizes_of_heaps(text, size):
    assert parse_heap(text, "field") == size


@pytest.mark.parametrize("text", ["1", "1Gi", "0g", "1.5g", 512])
def test_no_sizes_of_heaps(text):
    with pytest.raises(SettingError, match="field: "):
        parse_heap(text, "field")


def test_names_of_a_stream():
    names = StreamNames("geo", "quakes")

    assert names.stream == "geo.quakes"
    assert (names.router, names.worker, names.account, names.config) == (
        "quakes-router",
        "quakes-worker",
        "quakes-driver",
        "quakes-config",
    )
    assert names.selector("executor") == "spatialstream.dev/stream=quakes,app.kubernetes.io/component=executor"
    assert names.labels("router").items() >= names.selected("router").items()


def test_topics_are_named_after_the_stream_unless_the_spec_says_otherwise():
    topics = StreamNames("geo", "quakes").topics({"results": "answers"})

    assert topics["objects"] == "geo.quakes.objects"
    assert topics["results"] == "answers"
    assert topics["blocks"] == "geo.quakes.blocks"
    assert list(topics) == ["objects", "queries", "results", "rejected", "areas", "blocks", "epochs"]


def test_two_kinds_never_share_a_topic():
    with pytest.raises(SettingError, match=r"geo\.quakes\.objects is already the objects topic"):
        StreamNames("geo", "quakes").topics({"results": "geo.quakes.objects"})


name = st.from_regex(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?", fullmatch=True)


@given(st.tuples(name, name), st.tuples(name, name))
def test_two_streams_never_share_a_topic_or_a_folder(one, other):
    first, second = StreamNames(*one), StreamNames(*other)
    shared = set(first.topics().values()) & set(second.topics().values())
    folders = {first.checkpoint_path, first.archive_path} & {second.checkpoint_path, second.archive_path}

    assert bool(shared) == bool(folders) == (one == other)


def test_pods_of_executors_have_names_that_a_host_may_have():
    largest = 2**31 - 1

    assert len(f"{StreamNames('geo', 'a' * 40).worker}-exec-{largest}") <= 63
    with pytest.raises(SettingError, match=r"metadata\.name"):
        StreamNames("geo", "a" * 41)
