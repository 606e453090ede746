import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.cli import parser
from spatialstream.model.space import Space
from spatialstream_operator.commands import driver_command, spark_properties
from tests.unit.operator.resource import NAMES, parse

FULL = {
    "kafka": {
        "bootstrapServers": "a:9092,b:9092",
        "securitySecret": {"name": "kafka-user", "key": "client.properties"},
        "topics": {"objects": "posts", "rejected": "letters"},
        "objectPartitions": 8,
        "replicationFactor": 3,
    },
    "zookeeper": {
        "servers": "z:2181/geo",
        "credentialsSecret": {"name": "zk"},
        "tlsSecret": {"name": "zk-tls"},
    },
    "space": "planar:-5,-5,10.5,20",
    "terms": {"stopWords": ["the"], "minLength": 2, "queryWords": 300, "ranking": True, "counts": True},
    "properties": {"priority": "number", "the country": "keyword"},
    "fields": ["text", "the country"],
    "index": {"kind": "grid", "leaves": 32, "nearest": "everywhere"},
    "time": {"idle": "2s", "disorder": "0s", "ahead": "5m"},
    "router": {"partitions": 3, "cores": 2, "jvmHeap": "768m"},
    "workers": {"min": 2, "max": 8, "cores": 2},
    "mergers": 2,
    "interval": "10m",
    "retention": "2d",
    "maxRecordBytes": 2048,
    "maxRowBytes": 4096,
    "archive": {"claimName": "archive"},
}


def options(command):
    """What the command line makes of it, with the parser that the drivers use."""
    assert command[0] == "spatialstream"
    return parser().parse_args(command[1:])


def properties(options):
    return dict(options.conf)


def test_both_jobs_are_told_the_same_about_the_stream():
    spec = parse(FULL)
    for command in (driver_command(spec, NAMES, "router", 0), driver_command(spec, NAMES, "worker", 2)):
        told = options(command)

        assert told.stream == "geo.quakes"
        assert told.bootstrap == "a:9092,b:9092"
        assert str(told.kafka_security) == "/etc/spatialstream/kafka/client.properties"
        assert dict(told.topic) == {"objects": "posts", "rejected": "letters"}
        assert told.zookeeper == "z:2181/geo"
        assert str(told.zookeeper_credentials) == "/etc/spatialstream/zookeeper/credentials"
        assert str(told.zookeeper_ca) == "/etc/spatialstream/zookeeper-tls/ca.crt"
        assert str(told.zookeeper_certificate) == "/etc/spatialstream/zookeeper-tls/tls.crt"
        assert str(told.zookeeper_key) == "/etc/spatialstream/zookeeper-tls/tls.key"
        assert told.checkpoint.place == "/checkpoint"
        assert (told.slots, told.router_partitions, told.mergers) == (8, 3, 2)
        assert (told.interval, told.retention) == (600_000, 172_800_000)
        assert told.space == Space.planar(-5, -5, 10.5, 20)
        assert (str(told.stop_words), told.min_term_length) == ("/etc/spatialstream/config/stop-words", 2)
        assert (told.query_words, told.ranking, told.term_counts, told.serves) == (300, True, True, "everything")
        assert told.properties == ["priority:number", "the country:keyword"]
        assert told.fields == ("text", "the country")
        assert (told.metrics_address, told.metrics_port) == ("0.0.0.0", 9090)


def test_both_jobs_are_told_that_only_subscriptions_are_served():
    spec = parse({"serves": "subscriptions"})
    for job in ("router", "worker"):
        assert options(driver_command(spec, NAMES, job, 1)).serves == "subscriptions"


def test_the_router():
    told = options(driver_command(parse(FULL), NAMES, "router", 0))

    assert told.command == "router"
    assert (told.cores, told.master) == (2, None)
    assert (told.leaves, told.object_partitions, told.replicas) == (32, 8, 3)
    assert (told.idle, told.disorder, told.ahead, told.longest) == (2_000, 0, 300_000, 2048)
    assert properties(told) == {"spark.driver.memory": "768m", "spark.local.dir": "/var/spatialstream"}


def test_who_names_no_number_of_copies_has_the_router_count_brokers():
    kafka = {"bootstrapServers": "a:9092,b:9092,c:9092"}
    assert options(driver_command(parse({"kafka": kafka}), NAMES, "router", 0)).replicas is None


def test_each_ckq_on_one_slot_is_said_to_both_jobs():
    spec = parse(FULL | {"index": {"nearest": "dkm"}})
    for job in ("router", "worker"):
        command = driver_command(spec, NAMES, job, 1)
        assert options(command).nearest == "dkm"
        assert command.count("--nearest") == 1
    assert "--nearest" not in driver_command(parse(FULL), NAMES, "router", 1), "a change restarts the worker alone"


def test_the_worker():
    told = options(driver_command(parse(FULL), NAMES, "worker", 3))
    spark = properties(told)

    assert (told.longest_row, told.nearest) == (4096, "everywhere")

    assert told.command == "worker"
    assert told.master == "k8s://https://kubernetes.default.svc:443"
    assert told.executors_from_store
    assert told.archive.place == "/archive"
    assert spark["spark.kubernetes.namespace"] == "geo"
    assert spark["spark.kubernetes.driver.pod.name"] == "quakes-worker"
    assert spark["spark.kubernetes.executor.podNamePrefix"] == "quakes-worker"
    assert spark["spark.driver.host"] == "$(POD_IP)"
    assert (spark["spark.executor.instances"], spark["spark.executor.cores"]) == ("3", "2")
    assert spark["spark.kubernetes.container.image"] == "spark:1"


def test_a_stream_in_an_object_store():
    remote = {"checkpoint": {"claimName": None, "url": "s3://streams/quakes"}, "archive": {"url": "s3://old"}}
    spec = parse(FULL | remote)
    router, worker = (options(driver_command(spec, NAMES, job, 1)) for job in ("router", "worker"))

    assert router.checkpoint.place == worker.checkpoint.place == "s3://streams/quakes"
    assert worker.archive.place == "s3://old"


def test_a_router_with_executors():
    executor = {"resources": {"limits": {"memory": "3Gi", "cpu": 2}}, "jvmHeap": "1g"}
    patch = {"router": {"min": 1, "max": 3, "options": {"spark.network.timeout": "300s"}, "executor": executor}}
    told = options(driver_command(parse(FULL | {"router": FULL["router"] | patch["router"]}), NAMES, "router", 2))
    spark, of_worker = properties(told), spark_properties(parse(FULL), NAMES, "worker", 2)

    assert (told.master, told.executors_from_store) == ("k8s://https://kubernetes.default.svc:443", True)
    assert (told.leaves, told.longest) == (32, 2048)
    assert spark["spark.kubernetes.driver.pod.name"] == "quakes-router"
    assert spark["spark.kubernetes.executor.podNamePrefix"] == "quakes-router"
    assert spark["spark.kubernetes.executor.podTemplateFile"] == "/etc/spatialstream/config/router-executor.yaml"
    assert (spark["spark.executor.instances"], spark["spark.executor.cores"]) == ("2", "2")
    assert (spark["spark.executor.memory"], spark["spark.executor.memoryOverhead"]) == ("1024m", "2048m")
    assert spark["spark.driver.memory"] == "768m"
    assert spark["spark.network.timeout"] == "300s"
    assert of_worker["spark.network.timeout"] == "60s"
    assert of_worker.keys() <= spark.keys()


def test_what_is_not_asked_for_is_not_said():
    told = options(driver_command(parse(), NAMES, "worker", 1))

    assert (told.kafka_security, told.zookeeper_credentials, told.topic) == (None, None, [])
    assert (told.zookeeper_ca, told.zookeeper_certificate, told.zookeeper_key) == (None, None, None)
    assert (told.retention, told.archive, told.stop_words) == (None, None, None)


def test_a_certificate_is_shown_unless_there_is_none():
    tls = {"name": "zk-tls", "clientCertificate": False}
    told = options(driver_command(parse({"zookeeper": {"servers": "z:2181", "tlsSecret": tls}}), NAMES, "router", 0))

    assert str(told.zookeeper_ca) == "/etc/spatialstream/zookeeper-tls/ca.crt"
    assert (told.zookeeper_certificate, told.zookeeper_key) == (None, None)


@given(st.integers(1024, 1 << 20), st.integers(512, 4096) | st.none())
def test_an_executor_gets_the_memory_of_the_spec(memory, heap):
    """Spark asks for the sum of two properties."""
    heap = None if heap is None or heap > memory - 256 else f"{heap}m"
    spec = parse({"workers": {"resources": {"limits": {"memory": f"{memory}Mi"}}, "jvmHeap": heap}})
    spark = spark_properties(spec, NAMES, "worker", 1)

    parts = [int(spark[f"spark.executor.{name}"].rstrip("m")) for name in ("memory", "memoryOverhead")]
    assert sum(parts) == memory
    assert heap is None or spark["spark.executor.memory"] == heap


@pytest.mark.parametrize(
    ("resources", "asked", "limit"),
    [
        ({"requests": {"cpu": "250m"}}, "250m", None),
        ({"requests": {"cpu": "250m"}, "limits": {"cpu": 1}}, "250m", "1"),
        ({"limits": {"cpu": "500m"}}, "500m", "500m"),
        ({"limits": {"memory": "2Gi"}}, "3", None),
    ],
)
def test_an_executor_gets_the_processor_time_of_the_spec(resources, asked, limit):
    patch = {"workers": {"cores": 3, "resources": {"requests": None, "limits": None} | resources}}
    spark = spark_properties(parse(patch), NAMES, "worker", 1)

    assert spark["spark.kubernetes.executor.request.cores"] == asked
    assert spark.get("spark.kubernetes.executor.limit.cores") == limit


def test_options_of_the_spec_are_passed_on_but_never_go_before_the_operators():
    spec = parse({"workers": {"options": {"spark.network.timeout": "300s", "spark.driver.host": "elsewhere"}}})
    spark = properties(options(driver_command(spec, NAMES, "worker", 1)))

    assert spark["spark.network.timeout"] == "300s"
    assert spark["spark.driver.host"] == "$(POD_IP)"


def test_spark_needs_rights_on_pods_alone():
    spark = spark_properties(parse(), NAMES, "worker", 1)

    assert spark["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert spark["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"
    assert spark["spark.kubernetes.driver.reusePersistentVolumeClaim"] == "false"


def test_no_secret_is_on_a_command_line():
    """Only paths of files are: the values are mounted."""
    secrets = {
        "kafka": {"securitySecret": {"name": "secretname"}},
        "zookeeper": {"credentialsSecret": {"name": "secretname"}, "tlsSecret": {"name": "secretname"}},
    }
    spec = parse(secrets)

    for command in (driver_command(spec, NAMES, job, 1) for job in ("router", "worker")):
        assert not any("secretname" in part for part in command)
