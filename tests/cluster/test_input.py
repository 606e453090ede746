"""Bad input: every record that can be used is answered, every other one is a dead letter with its place and reason.

``SPATIALSTREAM_FUZZ_MESSAGES`` sets how many messages of whatever bytes the stream gets (default 2,000).
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.request
from collections.abc import Iterator

import pytest

from spatialstream.client import CLOCK, watermark
from spatialstream.connectors.kafka import Topics
from spatialstream.model.space import Space
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PARTITIONS, PATIENCE, LiveStream, Servers

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
BAD = [
    '{"id": "bad", "t": 5, "x": 0.5, "text": "no y"}',
    '{"id": "bad", "t": 5, "x": 7, "y": 0.5, "text": "outside"}',
    '{"id": "bad", "t": "yesterday", "x": 0.5, "y": 0.5, "text": ""}',
    '{"id": "bad", "t": 5, "x": 0.5, "y": 0.5, "text": ',
    "not json at all",
    '["a", "list"]',
]


_FUZZ = int(os.environ.get("SPATIALSTREAM_FUZZ_MESSAGES", "2000"))
_HOUR = 3_600_000

FAULTS = """
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.stages import ingest
from spatialstream.stages import merge as merging
from spatialstream.stages import route as routing


def fail(name, found):
    if name in found:
        raise ZeroDivisionError("a fault in a kernel")


def decode_objects(data, *more, real=ingest.decode_objects):
    fail(b"poison-ingest", data.to_pybytes())
    return real(data, *more)


def route(share, *more, real=routing.route):
    yield from real(share, *more)
    fail("poison-route", set() if share.objects is None else share.objects.objects.ids.to_pylist())


def match(self, objects, limit, real=ContinuousRangeIndex._match):
    fail("poison-work", objects.ids.to_pylist())
    return real(self, objects, limit)


def merge(rows, *more, real=merging.merge):
    rows = list(rows)
    results = real(rows, *more)
    for _, kind, content in rows:
        if kind == "snapshot_queries":
            fail("poison-merge", content.column("id").to_pylist())
    return results


ingest.decode_objects, routing.route, merging.merge = decode_objects, route, merge
ContinuousRangeIndex._match = match
"""
"""What the Python processes of both jobs begin with: faults that no input would find, on four records."""


@pytest.fixture(scope="module")
def stream(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStream]:
    folder = tmp_path_factory.mktemp("input")
    (folder / "sitecustomize.py").write_text(FAULTS)
    with LiveStream(servers, "input", folder, PLANE, environment={"PYTHONPATH": str(folder)}) as stream:
        yield stream
        assert stream.router.running
        assert stream.worker.running


@pytest.mark.gate
@pytest.mark.timeout(1200)
def test_bad_records_among_good_ones(stream: LiveStream) -> None:
    chance = random.Random(1)
    good, bad = 99_000, 1_000
    lines = [
        json.dumps({"id": f"o{i}", "t": 1_000 + i // 10, "x": chance.random(), "y": chance.random(), "text": "all"})
        for i in range(good)
    ]
    for place in sorted(chance.sample(range(good), bad), reverse=True):
        lines.insert(place, chance.choice(BAD))
    end = 1_000 + good // 10
    asked = [
        {"id": "each", "type": "CRQ", "t": 1, "keywords": ["all"], "duration": end, "region": {"box": [0, 0, 1, 1]}},
        {"id": "count", "type": "STQ", "t": end, "k": 1, "duration": end, "region": {"box": [0, 0, 1, 1]}},
        {"id": "broken", "type": "SRQ", "t": 2, "k": "many"},
        {"id": "each", "type": "CRQ", "t": 3, "duration": 1, "region": {"box": [0, 0, 1, 1]}},
    ]
    topics = Topics(stream.name)
    producer = stream.connection.producer()
    for query in asked:
        producer.produce(topics.queries, json.dumps(query).encode())
    for partition in range(PARTITIONS):
        part = lines[partition::PARTITIONS]
        for first in range(0, len(part), 100):
            producer.produce(topics.objects, "\n".join(part[first : first + 100]).encode(), partition=partition)
            producer.poll(0)
    poison = b"\x00\xff\xfe{{{\x80"
    huge = json.dumps({"id": "huge", "t": end, "x": 0.5, "y": 0.5, "text": "all " * 2_621_440}).encode()
    producer.produce(topics.objects, poison, partition=0)
    producer.produce(topics.objects, huge, partition=1)
    producer.produce(topics.objects, None, partition=1)
    for partition in range(PARTITIONS):
        producer.produce(topics.objects, watermark(end + 1), CLOCK, partition)
    producer.produce(topics.queries, watermark(end + 1), CLOCK)
    assert producer.flush(60.0) == 0
    stream.await_rows(good + 1)
    rows = stream.rows()
    assert {row["object"]["id"] for row in rows if row["query"] == "each"} == {f"o{i}" for i in range(good)}
    assert [row["terms"] for row in rows if row["query"] == "count"] == [[{"term": "all", "count": good}]]
    assert await_condition(lambda: len(stream.rejected()) == bad + 4, PATIENCE)
    letters = stream.rejected()
    objects = [letter for letter in letters if letter["source"].startswith("objects/")]
    assert len(objects) == bad + 2
    assert all(letter["offset"] >= 0 and letter["line"] >= 1 and letter["reason"] for letter in letters)
    assert sum("too many" in letter["reason"] for letter in objects) == 1
    assert len(json.dumps(letters)) < 4_000_000
    refused = {letter["offset"]: letter["reason"] for letter in letters if letter["source"] == "queries/0"}
    assert refused[2].startswith("k: ") or "duration" in refused[2]
    assert "in use" in refused[3]


# ------------------------------------------------------------------------------------------------------ whatever bytes

NUMBERS = [
    "0",
    "-0",
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "1e-400",
    "9" * 30,
    "1" + "0" * 400,
    "9" * 5_000,
    "0x1",
    "1.",
]
STRANGE = [
    b"",
    b"\n" * 50,
    b"\0" * 20,
    b"\xef\xbb\xbf{}",
    b"\xc0\xaf",
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b'{"id": "\\ud800"}',
    '{"id": "a"}'.encode("utf-16"),
    b'"' + b"x" * 2_000_000 + b'"',
    b"x\n" * 3_000,
]


def record(chance: random.Random, kind: str) -> bytes:
    """A record of which a field or a few bytes have become strange; one that is still good has a word of its own."""
    if kind == "objects":
        fields = {"id": '"bad"', "t": "5", "x": "0.5", "y": "0.5", "text": '"other"'}
    else:
        region = '{"box": [0, 0, 0.001, 0.001]}'
        fields = {"id": '"q"', "type": '"SRQ"', "t": "5", "region": region, "duration": "5", "keywords": '["other"]'}
        fields["id"] = f'"q{chance.randrange(9)}"'
        if chance.random() < 0.2:
            fields = {"id": f'"nobody{chance.randrange(9)}"', "type": '"CANCEL"', "t": "5"}
    for name in chance.sample(sorted(fields), chance.choice([0, 1, 1, 2])):
        fields[name] = chance.choice(
            [*NUMBERS, "null", "[]", "{}", '""', '"' + "9" * 5_000 + 'ms"', "[" * 300 + "]" * 300]
        )
    line = bytearray("{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}", "utf-8")
    for _ in range(chance.choice([0, 0, 1, 3])):
        line[chance.randrange(len(line))] = chance.randrange(256)
    return bytes(line[: chance.randrange(len(line))] if chance.random() < 0.1 else line)


def fuzzed(chance: random.Random, kind: str) -> tuple[bytes | None, bytes | None]:
    """Key and value of a message of whatever bytes."""
    key = chance.choice([None, None, None, b"", b"\xff\0", b"k" * 1_000, CLOCK])
    if key == CLOCK:
        number = chance.choice([*NUMBERS, "-5", "true", str(int(time.time() * 1000) + 30 * 24 * _HOUR)])
        return key, chance.choice([b"[" * 1_000, b"", b"null", *[b'{"clock": %s}' % number.encode()] * 5])
    choice = chance.random()
    if choice < 0.05:
        return key, None
    if choice < 0.1:
        return key, chance.choice(STRANGE)
    if choice < 0.15:
        return key, chance.randbytes(chance.randrange(200))
    return key, b"\n".join(record(chance, kind) for _ in range(chance.choice([1, 1, 1, 5])))


def sent_records(key: bytes | None, value: bytes | None) -> int:
    """How many records, or watermarks that are none, a message of :func:`fuzzed` holds."""
    if value is None:
        return 0
    if key == CLOCK:
        return 0 if value in (b'{"clock": 0}', b'{"clock": -0}', b'{"clock": -5}') else 1
    return sum(1 for line in value.split(b"\n") if line.strip(b" \t\r"))


def counted(stream: LiveStream) -> int:
    """Records that the router has accepted or rejected since it was started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stream.router.port}/metrics", timeout=60.0) as answer:
        text = answer.read().decode()
    names = "spatialstream_router_records_total{", "spatialstream_router_rejected_total{"
    return int(sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(names)))


@pytest.mark.timeout(3600 if _FUZZ > 10_000 else 1200)
def test_whatever_bytes_come_good_records_are_answered(stream: LiveStream, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(7)
    topics, began = Topics(stream.name), time.monotonic()
    start, before = counted(stream), len(stream.lines)
    plain, packed = (stream.connection.producer(**{"compression.type": name}) for name in ("none", "zstd"))
    base = 10_000_000
    region = {"box": [0, 0, 1, 1]}
    asked = {"id": "fuzz", "type": "CRQ", "t": base, "keywords": ["good"], "duration": "52000w", "region": region}
    plain.produce(topics.queries, json.dumps(asked).encode())
    good, sent = 0, 1
    for i in range(_FUZZ):
        if chance.random() < 0.2:
            place = {"id": f"good{good}", "t": base + i, "x": chance.random(), "y": chance.random(), "text": "good"}
            plain.produce(topics.objects, json.dumps(place).encode(), partition=good % PARTITIONS)
            good, sent = good + 1, sent + 1
            continue
        kind = chance.choice(["objects", "queries"])
        key, value = fuzzed(chance, kind)
        topic, partition = (topics.objects, chance.randrange(PARTITIONS)) if kind == "objects" else (topics.queries, 0)
        headers = [("h", chance.randbytes(9)), ("h", None)] if chance.random() < 0.1 else []
        producer = chance.choice([plain, packed])
        producer.produce(topic, value, key, partition, headers=headers)
        producer.poll(0)
        if len(producer) > 10_000:
            producer.flush(60.0)
        sent += sent_records(key, value)
    for size in (1, 14):  # what takes a thousandth of it in the topic
        packed.produce(topics.objects, b"x" * (size << 20), partition=0)
        packed.produce(topics.queries, b"[" * (size << 20))
        sent += 2
    aborted = stream.connection.producer(**{"transactional.id": "fuzz"})
    aborted.init_transactions(60.0)
    for ends in (aborted.abort_transaction, aborted.commit_transaction, aborted.abort_transaction):
        aborted.begin_transaction()
        place = {"id": f"good{good}", "t": base + _FUZZ, "x": 0.5, "y": 0.5, "text": "good"}
        aborted.produce(topics.objects, json.dumps(place).encode(), partition=1)
        ends(60.0)
    good, sent = good + 1, sent + 1
    end = base + _FUZZ + 1
    for producer in (plain, packed):
        assert producer.flush(120.0) == 0
    last = {
        "id": "sum",
        "type": "STQ",
        "t": end,
        "k": 1,
        "duration": end - 1_000_000,
        "region": region,
        "keywords": ["good"],
    }
    await_watermarks(stream, end)
    assert await_condition(lambda: counted(stream) - start >= sent, 1800.0), f"{counted(stream) - start} of {sent}"
    plain.produce(topics.queries, json.dumps(last).encode())
    await_watermarks(stream, end + 1)

    def rows(name: str) -> list[dict[str, object]]:
        return [row for row in map(json.loads, stream.lines[before:]) if row["query"] == name]

    assert await_condition(lambda: bool(rows("sum")), PATIENCE)
    assert sorted(row["object"]["id"] for row in rows("fuzz")) == sorted(f"good{i}" for i in range(good))  # type: ignore[index]
    assert [row["terms"] for row in rows("sum")] == [[{"term": "good", "count": good}]]
    assert counted(stream) - start == sent + 1
    with capsys.disabled():
        print(f"\n{_FUZZ} messages, {sent + 1} records: {time.monotonic() - began:.0f} s")


def await_watermarks(stream: LiveStream, t: int) -> None:
    """Say in every partition that nothing earlier follows."""
    topics, producer = Topics(stream.name), stream.connection.producer()
    for partition in range(PARTITIONS):
        producer.produce(topics.objects, watermark(t), CLOCK, partition)
    producer.produce(topics.queries, watermark(t), CLOCK)
    assert producer.flush(60.0) == 0


# ------------------------------------------------------------------------------------------------- a fault in a kernel


@pytest.mark.timeout(1200)
def test_a_record_on_which_a_stage_fails_is_left_out(stream: LiveStream, capsys: pytest.CaptureFixture[str]) -> None:
    topics, producer, began = Topics(stream.name), stream.connection.producer(), time.monotonic()
    base, before = int(time.time() * 1000), len(stream.lines)
    region = {"box": [0, 0, 1, 1]}
    each = {"id": "faults", "type": "CRQ", "t": base - 9, "keywords": ["kernel"], "duration": "1h", "region": region}
    asked = [each]
    for name in ("kept", "poison-merge"):
        asked.append(
            {"id": name, "type": "SRQ", "t": base + 99, "keywords": ["kernel"], "duration": "1m", "region": region}
        )
    for query in asked:
        producer.produce(topics.queries, json.dumps(query).encode())
    names = [f"k{i}" for i in range(50)] + ["poison-ingest", "poison-route", "poison-work"]
    for i, name in enumerate(names):
        place = {"id": name, "t": base + i, "x": 0.3, "y": 0.7, "text": "kernel"}
        producer.produce(topics.objects, json.dumps(place).encode(), partition=i % PARTITIONS)
    assert producer.flush(60.0) == 0
    await_watermarks(stream, base + 1_000)

    def rows(name: str) -> list[dict[str, object]]:
        return [row for row in map(json.loads, stream.lines[before:]) if row["query"] == name]

    assert await_condition(lambda: bool(rows("kept")), PATIENCE)
    (kept,) = rows("kept")
    assert [each["id"] for each in kept["objects"]] == names[:50]  # type: ignore[attr-defined]
    assert sorted(row["object"]["id"] for row in rows("faults")) == sorted(names[:50])  # type: ignore[index]
    assert rows("poison-merge") == []
    assert await_condition(
        lambda: len([1 for each in stream.rejected() if "fault in a kernel" in each["reason"]]) == 4, PATIENCE
    )
    letters = [letter for letter in stream.rejected() if "fault in a kernel" in letter["reason"]]
    assert {letter["reason"].split()[1] for letter in letters} == {"cannot", "ROUTE", "WORK", "MERGE"}
    assert {letter["record"]["id"] for letter in letters} == {*names[50:], "poison-merge"}
    with capsys.disabled():
        print(f"\nfour faults in kernels left out within {time.monotonic() - began:.0f} s")
