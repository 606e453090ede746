"""A storage that is far away, in memory: what is waited for is counted, in place of time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from spatialstream.connectors.contracts import File, Puts
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.object_store import KEPT, PUTS_AT_ONCE


class Underway:
    """A set of files that is being put, some whenever somebody looks.

    Attributes:
        left: those that are not there yet.
    """

    def __init__(self, storage: Remote, files: Sequence[File], seal: File, after: Underway | None) -> None:
        self._storage, self._after = storage, after
        self.left = [(name, b"".join(parts)) for name, parts in files]
        storage.chance.shuffle(self.left)
        self._seal: File | None = seal

    @property
    def trouble(self) -> BaseException | None:
        return self._storage.trouble

    @property
    def is_there(self) -> bool:
        return self._seal is None

    def go_on(self, step: Callable[[str], None]) -> None:
        """Put one more, if there is one that may be put."""
        if self.left:
            step("put")
            self._storage.put_beside(*self.left.pop())
        elif self._seal is not None and (self._after is None or self._after.is_there):
            step("put")
            self._storage.put_beside(self._seal[0], b"".join(self._seal[1]))
            self._seal = None

    def wait(self, seconds: float) -> bool:
        self._storage.go_on()
        while seconds and not self.is_there and not self._storage.held:
            self._storage.go_on()
        return self.is_there


class Remote(MemoryStorage):
    """What one process has asked of an object store; its clock goes on by one with each request that is waited for.

    What is begun together takes one for as many as may be under way, and is put in any order; the process may die
    before each, and what was under way then is put later, or never. What is put later is put some time, or never if
    the process dies before.

    Args:
        step: is called before each of several puts.
        chance: decides the order, and what is lost.

    Attributes:
        step, chance: as passed in.
        sets: all sets of files that were begun.
        now: the clock.
        waited: method and name of each request that was waited for; of puts at once those of each.
        beside: how many were not.
        held: whether sets of files wait.
        trouble: why.
        haste: chance that one of a set is put whenever somebody looks.
    """

    is_far = True

    def __init__(self, step: Callable[[str], None] = lambda name: None, chance: random.Random | None = None) -> None:
        super().__init__()
        self.now, self.beside = 0, 0
        self.held, self.haste = False, 1.0
        self.trouble: BaseException | None = None
        self.waited: list[tuple[str, str]] = []
        self.step, self.chance = step, chance or random.Random(0)
        self._begun: list[tuple[str, bytes]] = []
        self._cached: set[str] = set()
        self._late: dict[str, bytes] = {}
        self._shared: dict[str, bytes] = {}
        self.sets: list[Underway] = []

    def _request(self, method: str, name: str) -> None:
        self.now += 1
        self.waited.append((method, name))

    def _keep(self, name: str) -> None:
        if KEPT.fullmatch(name):
            self._cached.add(name)

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        self._request("put", name)
        self._keep(name)
        self._late.pop(name, None)
        super().put(name, *parts)

    def begin_put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        self._begun.append((name, b"".join(parts)))

    def await_puts(self) -> None:
        self.chance.shuffle(self._begun)
        self.now += -(-len(self._begun) // PUTS_AT_ONCE)
        try:
            while self._begun:
                self.step("put")
                name, data = self._begun.pop()
                self.waited.append(("put", name))
                self._keep(name)
                super().put(name, data)
        except BaseException:
            self._begun = [each for each in self._begun if self.chance.random() < 0.5]
            raise

    def put_set(self, files: Sequence[File], seal: File, after: Puts | None = None) -> Puts:
        assert after is None or isinstance(after, Underway)
        self.beside += len(files) + 1
        self.sets.append(Underway(self, files, seal, after))
        return self.sets[-1]

    def create(self, name: str, data: bytes) -> bool:
        self._request("put", name)
        return super().create(name, data)

    def get(self, name: str) -> pa.Buffer:
        for near in (self._shared, self._late):
            if name in near:
                return pa.py_buffer(bytearray(near[name]))
        if name not in self._cached:
            self._request("get", name)
        self._keep(name)
        return super().get(name)

    def list(self, prefix: str) -> list[str]:
        self._request("list", prefix)
        return super().list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        for name in gone:
            self._drop(name)
        if gone:
            self._request("delete", gone[0])
        super().delete(gone)

    def put_later(self, name: str, data: bytes | pa.Buffer) -> None:
        self.beside += 1
        self._late[name] = bytes(data)
        self._keep(name)
        self._catch_up()

    def share(self, name: str, data: bytes | pa.Buffer) -> None:
        self._shared[name] = bytes(data)

    def discard(self, names: Iterable[str]) -> None:
        gone = list(names)
        self.beside += 1
        for name in gone:
            self._drop(name)
        super().delete(gone)

    def die(self) -> None:
        """The process dies: what was to be put later is there, or will never be."""
        self._catch_up()
        self.go_on(lambda name: None)
        self.sets.clear()
        for near in (self._late, self._shared, self._cached):
            near.clear()

    def _drop(self, name: str) -> None:
        self._late.pop(name, None)
        self._shared.pop(name, None)

    def _catch_up(self) -> None:
        for name in list(self._late):
            if self.chance.random() < 0.5:
                MemoryStorage.put(self, name, self._late.pop(name))

    def put_beside(self, name: str, data: bytes) -> None:
        """One of a set of files is there."""
        self._keep(name)
        MemoryStorage.put(self, name, data)

    def go_on(self, step: Callable[[str], None] | None = None) -> None:
        """Some of what is put beside is there."""
        for each in () if self.held else self.sets:
            if self.chance.random() < self.haste:
                each.go_on(step or self.step)
        self.sets = [each for each in self.sets if not each.is_there]
