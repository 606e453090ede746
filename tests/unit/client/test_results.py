"""A consumer of results: every row once, whole, and a position that is that of the last row written out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.results import Results, bounds
from spatialstream.connectors.delivery import Place
from spatialstream.model.errors import SettingError
from tests.unit.client.broker import Broker, Topic


def row(name: str) -> bytes:
    return json.dumps({"query": name, "type": "SRQ", "t": 1, "objects": [{"id": name}]}).encode()


def parts(name: str, count: int) -> list[bytes]:
    """A row in parts, an item each."""
    head = f'{{"query": "{name}", "type": "SRQ", "t": 1, "part": '
    return [f'{head}{i}, "parts": {count}, "objects": [{{"id": "{name}{i}"}}]}}'.encode() for i in range(count)]


def results(topic: Topic, **more: Any) -> Results:
    return Results(Broker(topic), "s", **more)  # type: ignore[arg-type]


def told(found: dict[str, Any]) -> str:
    """A row as one word: its query and how many objects it has."""
    assert [each["id"] for each in found["objects"]] in (
        [found["query"]],
        [f"{found['query']}{i}" for i in range(len(found["objects"]))],
    )
    return f"{found['query']}*{len(found['objects'])}"


def read(topic: Topic, most: int | None = None, **more: Any) -> list[str]:
    """The rows that one use gives, the first ``most`` of them; those after it are read, and not written out."""
    reading = results(topic, **more)
    found: list[str] = []
    for each in reading.rows(lambda: False, patience=0.0):
        if len(found) == most:
            break
        found.append(told(each))
    reading.close()
    return found


def messages_of(
    lines: list[bytes], sizes: list[int], number: int = 0, incarnation: str = "a"
) -> list[tuple[bytes, bytes]]:
    """The lines of a round as messages of some sizes, again and again."""
    found, first = [], 0
    while first < len(lines):
        size = sizes[len(found) % len(sizes)]
        found.append((Place(number, 0, first, incarnation).key, b"\n".join(lines[first : first + size])))
        first += size
    return found


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.data(),
)
def test_every_row_is_written_once_whatever_use_ends_where(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[int]],
    sizes: list[int],
    stops: list[int],
    data: st.DataObject,
) -> None:
    lines_of = [
        [line for i, n in enumerate(counts) for line in ([row(f"q{r}-{i}-")] if n == 1 else parts(f"q{r}-{i}-", n))]
        for r, counts in enumerate(rounds)
    ]
    topic = Topic()
    for number, lines in enumerate(lines_of):
        sent = messages_of(lines, sizes, number)
        # a crash in the middle of sending, and the round again
        topic.messages += sent[: data.draw(st.integers(0, len(sent)))]
        topic.messages += sent
    position = tmp_path_factory.mktemp("position") / "file"
    found: list[str] = []
    for most in stops:
        found += read(topic, most, position=position)
    found += read(topic, position=position)
    assert found == [f"q{r}-{i}-*{n}" for r, counts in enumerate(rounds) for i, n in enumerate(counts)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), max_size=12), st.lists(st.integers(0, 4)))
def test_incarnations_that_are_mixed_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, int]], stops: list[int]
) -> None:
    lines: dict[str, list[bytes]] = {"a": [], "b": []}
    topic, expected = Topic(), {"a": list[str](), "b": list[str]()}
    waiting: dict[str, list[tuple[bytes, bytes]]] = {"a": [], "b": []}
    for i, (incarnation, count) in enumerate(sent):
        name = f"{incarnation}{i}-"
        lines[incarnation] += parts(name, count) if count > 1 else [row(name)]
        expected[incarnation].append(f"{name}*{count}")
    for incarnation in "ab":
        waiting[incarnation] = messages_of(lines[incarnation], [1], 0, incarnation)
    for i in range(max(map(len, waiting.values()))):
        topic.messages += [waiting[incarnation][i] for incarnation in "ab" if i < len(waiting[incarnation])]
    position = tmp_path_factory.mktemp("position") / "file"
    found: list[str] = []
    for most in stops:
        found += read(topic, most, position=position)
    found += read(topic, position=position)
    for incarnation in "ab":
        assert [each for each in found if each[0] == incarnation] == expected[incarnation]


def test_the_position_is_in_the_middle_of_a_message(tmp_path: Path) -> None:
    topic = Topic([(b"0 0 0 a", b"\n".join(row(f"q{i}") for i in range(10)))])
    position = tmp_path / "position"
    assert read(topic, 3, position=position) == ["q0*1", "q1*1", "q2*1"]
    reading = results(topic, position=position)
    first = next(reading.rows(lambda: False))
    assert first["query"] == "q3"
    reading.close()  # it was not written out: the disk was full, or the reader of a pipe had gone
    reading = results(topic, position=position)
    assert next(reading.rows(lambda: False))["query"] == "q3"
    reading.written()
    reading.close()
    assert read(topic, position=position) == [f"q{i}*1" for i in range(4, 10)]


def test_a_stop_ends_after_the_row_that_is_being_written(tmp_path: Path) -> None:
    topic = Topic([(b"0 0 0 a", b"\n".join(row(f"q{i}") for i in range(10)))])
    reading, stop = results(topic, position=tmp_path / "position"), list[bool]()
    for each in reading.rows(lambda: bool(stop)):
        if each["query"] == "q4":
            stop.append(True)
    reading.close()
    assert read(topic, position=tmp_path / "position")[0] == "q5*1"


def test_messages_that_are_not_worked_up_come_again(tmp_path: Path) -> None:
    topic = Topic([(b"0 0 0 a", row("q0")), (b"0 0 1 a", row("q1"))])
    reading = results(topic, position=tmp_path / "position")
    assert next(reading.messages(lambda: False)) == row("q0")
    reading.close()
    assert read(topic, position=tmp_path / "position") == ["q0*1", "q1*1"]


def test_a_new_incarnation_is_told_and_loses_no_row(tmp_path: Path) -> None:
    position, said = tmp_path / "position", list[str]()
    topic = Topic([(b"0 0 0 a", row("q0")), (b"1 0 0 a", row("q1"))])
    assert read(topic, position=position, report=said.append) == ["q0*1", "q1*1"]
    topic.messages += [
        (b"0 0 0 b", row("q2")),
        (b"1 0 0 a", row("q1")),
        (b"2 0 0 a", row("late")),
        (b"1 0 0 b", row("q3")),
    ]
    assert said == []
    assert read(topic, position=position, report=said.append) == ["q2*1", "late*1", "q3*1"]
    assert said == ["the stream was recreated as incarnation b: its rounds count from 0 again"]


@pytest.mark.parametrize("renamed", [True, False])
def test_a_topic_that_was_made_anew_is_read_from_its_start(tmp_path: Path, renamed: bool) -> None:
    position, said = tmp_path / "position", list[str]()
    assert read(Topic([(b"%d 0 0 a" % i, row(f"q{i}")) for i in range(5)]), position=position)
    more = 8 if renamed else 3  # of a topic without an id only one that is too short is known to be another
    anew = Topic([(b"%d 0 0 b" % i, row(f"p{i}")) for i in range(more)], id="two" if renamed else "one")
    assert read(anew, position=position, report=said.append) == [f"p{i}*1" for i in range(more)]
    assert "recreated" in said[0]


def test_messages_that_were_removed_before_they_were_read_are_counted(tmp_path: Path) -> None:
    position, said = tmp_path / "position", list[str]()
    topic = Topic([(b"%d 0 0 a" % i, row(f"q{i}")) for i in range(5)])
    assert read(topic, 1, position=position) == ["q0*1"]
    topic.first = 3
    assert read(topic, position=position, report=said.append) == ["q3*1", "q4*1"]
    assert said == ["the broker has deleted 2 unread messages of s.results"]


def test_parts_whose_beginning_was_never_there_are_given_as_they_are() -> None:
    late = parts("late", 3)
    topic = Topic([(b"0 0 0 a", late[0]), (b"0 0 1 a", b"\n".join([*late[1:], row("q")]))], first=1)
    reading = results(topic)
    found = list(reading.messages(lambda: False, patience=0.0))
    assert found == [b"\n".join([late[1], late[2], row("q")])]


def test_what_is_no_message_of_results_is_passed_over() -> None:
    topic = Topic([(None, row("q0")), (b"x", b"y"), (b"0 0 0 a", None), (b"0 0 0 a", row("q1"))])
    assert read(topic) == ["q1*1"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"known": 5, "next": {}}', '{"known": {"incarnations": []}}', "[" * 100_000]
)
def test_what_is_no_position_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "position").write_text(text)
    with pytest.raises(SettingError, match=r"position: .*not a position file"):
        results(Topic(), position=tmp_path / "position")


def test_a_position_that_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        results(Topic(), position=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot be written"):
        results(Topic(), position=tmp_path / "file" / "position")


def test_a_position_of_another_stream_is_refused(tmp_path: Path) -> None:
    read(Topic(), position=tmp_path / "position")
    with pytest.raises(SettingError, match=r"in s\.results, not in other\.results"):
        Results(Broker(Topic()), "other", position=tmp_path / "position")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "reason",
    [
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        *(KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_partition_without_a_leader_is_waited_for(reason: int) -> None:
    class Consumer:
        asked = 0

        def list_topics(self, topic: str, timeout: float) -> Any:
            return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

        def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
            self.asked += 1
            if self.asked < 3:
                raise KafkaException(KafkaError(reason))
            return 0, 5

    assert bounds(Consumer(), "s.results") == {0: (0, 5)}  # type: ignore[arg-type]
