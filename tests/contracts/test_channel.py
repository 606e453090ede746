"""The contract of every channel (:class:`spatialstream.connectors.contracts.Channel`)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from spatialstream.connectors.contracts import Channel
from spatialstream.connectors.keys import block_key
from spatialstream.model.errors import StateError
from tests.contracts.harness import Channels

LARGE = (16 << 20) - 1024


def block(slot: int, epoch: int, number: int = 0, size: int = 20) -> tuple[int, bytes, pa.Buffer]:
    content = b"%d %d %d " % (slot, epoch, number) * size
    return slot, block_key(epoch, 0, number, "objects"), pa.py_buffer(content)


def announcement(epoch: int) -> dict[str, Any]:
    numbers = {
        "epoch": epoch,
        "before": 0,
        "watermark": 1000 * epoch,
        "born": 1,
        "refused": 0,
        "records": 3,
        "revision": 0,
    }
    return {**numbers, "adoption": {"active": 1}, "controls": [["x", 3]], "past": [[0, 1, 2]], "ends": [epoch, epoch]}


def given(channel: Channel, slot: int, start: int = 0, end: int | None = None) -> list[tuple[bytes, bytes | None]]:
    blocks = channel.blocks(slot, start, channel.ends()[slot] if end is None else end)
    return [(key, None if content is None else content.to_pybytes()) for key, content in blocks]


def as_given(*blocks: tuple[int, bytes, pa.Buffer]) -> list[tuple[bytes, bytes]]:
    return [(key, content.to_pybytes()) for _, key, content in blocks]


def heard(channel: Channel, after: int | None = 0, most: int = 100) -> list[int | None]:
    """The numbers of the announced epochs."""
    found, _ = channel.announced(after, most, 1.0)
    return [each and each["epoch"] for each in found]


@pytest.mark.parametrize("incarnation", ["", "one"])
class TestChannel:
    def test_nothing(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        assert channel.begins() == channel.ends() == [0, 0]
        assert given(channel, 0) == given(channel, 1) == []
        assert channel.send([]) == {}
        assert channel.ends() == [0, 0]

    def test_blocks_of_each_slot_in_their_order(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        first = [block(i % 2, 0, i) for i in range(7)]
        second = [block(1, 1, i, 100_000) for i in range(3)]
        assert channel.send(iter(first)) == {0: 4, 1: 3}
        assert channel.ends() == [4, 3]
        assert channel.send(second) == {1: 6}
        assert channel.ends() == [4, 6]
        assert given(channel, 0) == as_given(*first[::2])
        assert given(channel, 1) == as_given(*first[1::2], *second)
        assert given(channel, 1, 3, 6) == as_given(*second)
        assert given(channel, 1, 1, 4) == as_given(*first[3::2], second[0])
        assert given(channels.of(incarnation), 1, 2, 2) == []

    def test_what_is_sent_again_comes_again_with_its_key(self, channels: Channels, incarnation: str) -> None:
        channel, blocks = channels.of(incarnation), [block(0, 4, i) for i in range(3)]
        assert channel.send(blocks) == {0: 3}
        assert channel.send(blocks[:2]) == {0: 5}
        assert given(channel, 0) == as_given(*blocks, *blocks[:2])

    def test_what_fails_on_the_way_does_not_hinder_the_next(self, channels: Channels, incarnation: str) -> None:
        """Blocks are created while they are sent, so creating any of them may fail."""
        channel, blocks = channels.of(incarnation), [block(0, 4, i, 20_000) for i in range(100)]

        def failing() -> Any:
            yield from blocks[:90]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            channel.send(failing())
        before = channel.ends()[0]
        assert given(channel, 0) == as_given(*blocks[:before]), "some of them may be there"
        assert channel.send(blocks) == {0: before + len(blocks)}
        assert given(channel, 0, before) == as_given(*blocks), "nothing comes late"

    def test_the_largest_blocks(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        blocks = [(1, block_key(0, 0, i, "objects"), pa.py_buffer(bytes([65 + i]) * LARGE)) for i in range(3)]
        channel.send(blocks)
        assert given(channel, 1) == as_given(*blocks)

    def test_blocks_of_another_incarnation_are_not_given(self, channels: Channels, incarnation: str) -> None:
        channel, other = channels.of(incarnation), channels.of("two")
        other.send([block(0, 0), block(0, 1)])
        assert channel.send([block(0, 0, 1)]) == {0: 3}
        other.send([block(0, 2)])
        assert channel.ends() == other.ends() == [4, 0], "offsets are the log's"
        assert given(channel, 0) == as_given(block(0, 0, 1))
        assert given(other, 0) == as_given(block(0, 0), block(0, 1), block(0, 2))
        assert given(channel, 0, 0, 2) == []

    def test_foreign_messages_come_as_they_are(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        foreign: list[tuple[bytes | None, bytes | None]] = [
            *(
                (None, b"hello"),
                (b"", None),
                (b"key", b""),
                (b"\xff", b"\x00"),
                (b"1 2 3", b"x"),
                (b"0 0 0 Objects", None),
            )
        ]
        for key, value in foreign:
            channels.write(1, key, value)
        channel.send([block(1, 0)])
        assert given(channel, 1) == [*((b"", value) for _, value in foreign), *as_given(block(1, 0))]

    def test_blocks_that_are_gone(self, channels: Channels, incarnation: str) -> None:
        channel, blocks = channels.of(incarnation), [block(0, i) for i in range(5)]
        channel.send(blocks)
        channels.remove(0, 2)
        assert (channel.begins(), channel.ends()) == ([2, 0], [5, 0])
        assert given(channel, 0, 2) == as_given(*blocks[2:])
        with pytest.raises(StateError):
            given(channel, 0, 1, 4)
        with pytest.raises(StateError):
            given(channel, 1, 0, 1)

    def test_announcements_from_an_offset_on(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        for epoch in range(5):
            channel.announce(announcement(epoch))
        assert heard(channel) == heard(channel) == heard(channel, None) == [0, 1, 2, 3, 4]
        assert heard(channel, 3) == [3, 4]
        found, after = channels.of(incarnation).announced(1, 2, 1.0)
        assert (len(found), after) == (2, 3)
        for number, each in enumerate(found, 1):
            assert each is not None
            assert each.items() >= announcement(number).items(), "all of it"
        assert channel.announced(5, 100, 0.0) == ([], 5)

    def test_announcements_are_heard_without_delay(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        channel.announce(announcement(0))
        after = channel.announced(0, 9, 10.0)[1]
        began = time.monotonic()
        assert channel.announced(after, 9, 0.3) == ([], after)
        assert 0.2 < time.monotonic() - began < 60.0, "patience"
        late = threading.Timer(0.5, channels.of(incarnation).announce, [announcement(1)])
        began = time.monotonic()
        late.start()
        found, after = channel.announced(after, 9, 120.0)
        assert [each and each["epoch"] for each in found] == [1]
        assert 0.3 < time.monotonic() - began < 60.0
        assert channel.announced(after, 9, 0.0) == ([], after)

    def test_announcements_that_are_none(self, channels: Channels, incarnation: str) -> None:
        channel, broken = channels.of(incarnation), announcement(1)
        del broken["ends"]
        for value in (None, b"", b"{", b"[" * 5000, b"7", json.dumps(broken).encode()):
            channels.write_announcement(value)
        channel.announce(announcement(2))
        assert heard(channel) == [None] * 6 + [2]
        assert channel.announced(0, 4, 1.0) == ([None] * 4, 4)

    def test_announcements_of_another_incarnation_are_not_given(self, channels: Channels, incarnation: str) -> None:
        channel, other = channels.of(incarnation), channels.of("two")
        other.announce(announcement(7))
        channel.announce(announcement(0))
        other.announce(announcement(8))
        assert channel.announced(0, 100, 1.0)[1] == 3, "but have been looked at"
        assert heard(channel) == [0]
        assert heard(other) == [7, 8]

    def test_announcements_that_are_gone(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        for epoch in range(4):
            channel.announce(announcement(epoch))
        channels.remove_announcements(2)
        assert heard(channel, None) == heard(channel, 2) == [2, 3]
        for after in (0, 1):
            with pytest.raises(StateError):
                channel.announced(after, 100, 10.0)

    def test_announcements_are_cut(self, channels: Channels, incarnation: str) -> None:
        channel = channels.of(incarnation)
        for epoch in range(4):
            channel.announce(announcement(epoch))
        channel.cut(0)
        assert heard(channel, None) == [0, 1, 2, 3]
        channel.cut(3)
        channel.cut(2)
        assert heard(channel, None) == heard(channel, 3) == [3]
        channel.announce(announcement(4))
        assert heard(channel, None) == [3, 4], "the others keep their places"
