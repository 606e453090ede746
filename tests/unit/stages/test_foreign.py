"""Messages in the internal topics that are not the router's: whatever they are, the worker passes over them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.announcements import read_announcement
from spatialstream.connectors.keys import block_key, read_key
from spatialstream.connectors.memory import MemoryChannel, MemoryLog
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages import messages
from spatialstream.stream.leadership import Leadership, Superseded
from spatialstream.stream.settings import StreamSettings
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream

ANNOUNCEMENT = {
    "epoch": 3,
    "before": 2,
    "watermark": 77,
    "born": 5,
    "adoption": {"active": 0, "pending": None},
    "controls": [["prepare", 1]],
    "past": [[0, 1, 2]],
    "refused": 0,
    "records": 9,
    "revision": 0,
    "ends": [4, 5],
}
LEADER_CHANGE = {"job": "router", "leadership": "7-0a1b2c3d", "number": 7}
REPEATED_CHANGE = LEADER_CHANGE | {"begun": 40, "count": 3, "announced": -1}
DECISION = {
    "job": "worker",
    "leadership": "7-0a1b2c3d",
    "count": 3,
    "record": "000000005-7-0a1b2c3d-3.json",
    "turn": 5,
    "keep": 33,
}
WITH_RECORD = DECISION | {"content": "{}"}
NAMES = [
    "epoch",
    "number",
    "begun",
    "count",
    "announced",
    "record",
    "turn",
    "keep",
    "content",
    "job",
    "leadership",
    "revision",
]
FORMS = {
    "announcement": ANNOUNCEMENT,
    "leader change": LEADER_CHANGE,
    "repeated leader change": REPEATED_CHANGE,
    "decision": DECISION,
    "decision with its record": WITH_RECORD,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=40))
def test_no_bytes_are_an_announcement(value: bytes) -> None:
    assert read_announcement(value) is None


@pytest.mark.parametrize("value", [None, b"", b"[" * 100_000, b"{}", b"null", b"7", b"9" * 5_000, b"\xff", b'"x"'])
def test_neither_are_these(value: bytes | None) -> None:
    assert read_announcement(value) is None


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_one_is_read_as_it_was_written(form: dict[str, Any]) -> None:
    assert read_announcement(json.dumps(form).encode()) == form
    for name in ("job", "leadership", "incarnation"):
        assert read_announcement(json.dumps({**form, name: ["s"]}).encode()) is None


@given(st.sampled_from([(form, name) for form in FORMS.values() for name in sorted(form)]), JSON)
def test_one_with_a_strange_field_is_none_or_of_the_same_form(field: tuple[dict[str, Any], str], value: object) -> None:
    form, name = field
    read = read_announcement(json.dumps(form | {name: value}).encode())
    assert read is None or type(read[name]) is type(form[name])
    missing = {key: each for key, each in form.items() if key != name}
    is_another = name in ("job", "leadership", "content")  # without it, that is of a simpler form
    assert is_another or read_announcement(json.dumps(missing).encode()) is None


@given(st.sampled_from(list(FORMS.values())), st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1, max_size=3))
def test_whatever_fields_are_added_to_one_whoever_reads_it_goes_on(form: dict[str, Any], more: dict[str, Any]) -> None:
    log = MemoryLog()
    channel = MemoryChannel([], log)
    for job in ("router", "worker"):
        log.append((None, json.dumps({"job": job} | form | more).encode()))
        leadership = Leadership(channel, MemoryStorage(), job, "rounds/", 10**6)
        with suppress(Superseded):  # for a larger number
            leadership.begin()
            leadership.decide(0, "{}")
            leadership.trim()


@given(st.integers(0, 10**9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 9))
def test_keys_of_blocks_are_read_as_they_were_written(epoch: int, partition: int, number: int, revision: int) -> None:
    assert read_key(block_key(epoch, partition, number, messages.OBJECTS, revision)) == (
        epoch,
        messages.OBJECTS,
        revision,
    )


@given(st.binary(max_size=30))
def test_no_other_bytes_are_a_key(key: bytes) -> None:
    assert read_key(key) is None
    assert read_key(None) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_are_the_same_with_foreign_messages_among_the_blocks(tmp_path: Path, seed: int) -> None:
    drawn = random_stream(seed, 100, 4, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    setup = StreamSettings("s", slots=2, space=WGS84, idle=IDLE, epoch_records=30)
    simulation = Simulation(tmp_path, WGS84, objects, queries, setup, seed, chaos=0.01)
    chance = np.random.default_rng(seed)
    sent = []
    other = messages.pack(pa.record_batch({"strange": [1]})).to_pybytes()
    produce = simulation.produce

    def and_foreign() -> None:
        produce()
        epoch = 0 if simulation.router is None else simulation.router.last_done + 1
        for log in simulation.blocks:
            key = [None, b"", b"\xff", b"1 2 3", b"1 2 3 objects x", b"x 0 0 objects", b"9" * 5_000][chance.integers(7)]
            MemoryLog.append(log, (key, other), (block_key(epoch, 0, 999, messages.OBJECTS), chance.bytes(30)))
            sent.append(key)

    simulation.produce = and_foreign  # type: ignore[method-assign]
    simulation.run()
    expected, _ = answers(objects, queries, WGS84)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []
    assert len(sent) > 10
