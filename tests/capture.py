"""A capture of all TCP that passes between processes of this machine, searched for words as it comes."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

_EVERYTHING = 0x0003  # linux/if_ether.h: ETH_P_ALL
_IPV4, _IPV6, _TCP = 0x0800, 0x86DD, 6
_PACKET_LEVEL, _STATISTICS = 263, 6  # SOL_PACKET, PACKET_STATISTICS
_BUFFER_FORCED = 33  # SO_RCVBUFFORCE, beyond what the system allows
_BUFFER = 512 << 20
_LOOK_SECONDS, _END_SECONDS = 0.2, 5.0
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_FIRST = -10  # the niceness of who reads: packets wait for nobody
# What the kernel leaves out before it costs anything: what leaves (on loopback each packet also comes in), what is not
# TCP, and segments without data. A classic BPF program (linux/filter.h, linux/bpf_common.h): code, jumps, operand.
_WITH_DATA = [
    (0x30, 0, 0, 0xFFFFF004),  # ldb [SKF_AD_OFF + SKF_AD_PKTTYPE]
    (0x15, 19, 0, 4),  #         jeq PACKET_OUTGOING -> drop
    (0x28, 0, 0, 12),  #         ldh [12], the protocol
    (0x15, 0, 4, _IPV4),  #      jeq IPv4, else -> IPv6
    (0x30, 0, 0, 23),  #         ldb [23], the protocol above
    (0x15, 0, 15, _TCP),  #      jeq TCP, else -> drop
    (0xB1, 0, 0, 14),  #         ldxb 4 * ([14] & 15), the header's length
    (0x05, 0, 0, 4),  #          ja -> TCP
    (0x15, 0, 12, _IPV6),  #     IPv6: jeq IPv6, else -> drop
    (0x30, 0, 0, 20),  #         ldb [20], the protocol above
    (0x15, 0, 10, _TCP),  #      jeq TCP, else -> drop
    (0x01, 0, 0, 40),  #         ldx 40, the header's length
    (0x50, 0, 0, 26),  #         TCP: ldb [x + 26], its upper half is the header's length in words of four bytes
    (0x74, 0, 0, 4),  #          rsh 4
    (0x64, 0, 0, 2),  #          lsh 2
    (0x0C, 0, 0, 0),  #          add x
    (0x04, 0, 0, 14),  #         add 14
    (0x07, 0, 0, 0),  #          tax
    (0x80, 0, 0, 0),  #          ld len
    (0x2D, 0, 1, 0),  #          jgt x, else -> drop
    (0x06, 0, 0, 0xFFFFFFFF),  # ret all of it
    (0x06, 0, 0, 0),  #          drop: ret nothing
]


class End(NamedTuple):
    """An address and a port."""

    address: str
    port: int


class Flow(NamedTuple):
    """One direction of a connection."""

    source: End
    target: End


@dataclass(frozen=True)
class Loss:
    """How many packets came, and how many of them did not get here."""

    packets: int
    lost: int


def spellings(word: str) -> tuple[bytes, ...]:
    """The bytes that a word may be."""
    return word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be")


class Capture:
    """Reads data that passes over loopback, as a context manager; the machine's own addresses are reached over it too.

    Words are found wherever packets begin and end: the end of what a connection has sent is kept for the next packet.
    What was sent twice is read twice; what comes out of order, which loopback does not do, is read as it comes.

    Args:
        words: what is looked for, by a name for each.

    Attributes:
        found: where each word has passed, by its name.
        sent: bytes by direction of a connection.

    Raises:
        PermissionError: this process may not capture (CAP_NET_RAW).
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = {name: spellings(word) for name, word in words.items()}
        self._longest = max(len(each) for known in self._words.values() for each in known)
        self._ends = defaultdict[Flow, bytes](bytes)
        self.found: dict[str, set[Flow]] = {name: set() for name in words}
        self.sent = Counter[Flow]()
        self._loss = Loss(0, 0)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(("lo", _EVERYTHING))
        code = b"".join(struct.pack("HBBI", *each) for each in _WITH_DATA)
        kept = ctypes.create_string_buffer(code)
        program = struct.pack("HP", len(_WITH_DATA), ctypes.addressof(kept))
        self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        with suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _BUFFER_FORCED, _BUFFER)
        self._socket.settimeout(_LOOK_SECONDS)
        self.loss()  # what came before it was bound
        self._loss = Loss(0, 0)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._until = time.monotonic() + _END_SECONDS
        self._over.set()
        self._thread.join()
        self.loss()
        self._socket.close()

    def loss(self) -> Loss:
        """How much has been lost so far."""
        if self._socket.fileno() >= 0:
            # the system counts from the last look on
            packets, lost = struct.unpack("II", self._socket.getsockopt(_PACKET_LEVEL, _STATISTICS, 8))
            self._loss = Loss(self._loss.packets + packets, self._loss.lost + lost)
        return self._loss

    def look_for(self, name: str, word: str) -> None:
        """Look for one more word from now on, which is no longer than the others."""
        assert all(len(each) <= self._longest for each in spellings(word))
        self.found[name] = set()
        self._words = {**self._words, name: spellings(word)}

    def passed(self, end: End) -> int:
        """Bytes that have passed to and from an end."""
        return sum(size for flow, size in self.sent.copy().items() if end in flow)

    def _read(self) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _FIRST)
        while not self._over.is_set() or time.monotonic() < self._until:
            try:
                packet, about = self._socket.recvfrom(1 << 18)
            except TimeoutError:
                if self._over.is_set():
                    return  # nothing waits any more
                continue
            self._take(memoryview(packet), about[1])

    def _take(self, packet: memoryview, protocol: int) -> None:
        read = {_IPV4: _of_ipv4, _IPV6: _of_ipv6}.get(protocol)
        parts = None if read is None else read(packet[14:])
        if parts is None:
            return
        source, target, segment = parts
        data = bytes(segment[(segment[12] >> 4) * 4 :])
        if not data:
            return
        ports = struct.unpack_from(">HH", segment)
        flow = Flow(End(source, ports[0]), End(target, ports[1]))
        self.sent[flow] += len(data)
        seen = self._ends[flow] + data
        for name, known in self._words.items():
            if any(each in seen for each in known):
                self.found[name].add(flow)
        self._ends[flow] = seen[-self._longest + 1 :]


def _of_ipv4(packet: memoryview) -> tuple[str, str, memoryview] | None:
    begin, size = (packet[0] & 15) * 4, struct.unpack_from(">H", packet, 2)[0]
    if packet[9] != _TCP:
        return None
    return _text(bytes(packet[12:16])), _text(bytes(packet[16:20])), packet[begin : size or None]


def _of_ipv6(packet: memoryview) -> tuple[str, str, memoryview] | None:
    if packet[6] != _TCP:  # nobody here sends headers between
        return None
    return _text(bytes(packet[8:24])), _text(bytes(packet[24:40])), packet[40:]


@lru_cache
def _text(address: bytes) -> str:
    found = ipaddress.ip_address(address)
    return str(getattr(found, "ipv4_mapped", None) or found)
