"""What an object store's storage does later, without a store."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from spatialstream.connectors.object_store import ObjectStorage, TransferLimits
from spatialstream.model.errors import NoStorage
from spatialstream.servers.process import await_condition


class Away(ObjectStorage):
    """A store that fails with ``a`` once it is told to, and then puts what it is given into a dictionary."""

    asked, fail = threading.Event(), threading.Event()
    files: dict[str, bytes] = {}  # noqa: RUF012 (of the test's one store)

    def put_now(self, name: str, *parts: bytes | memoryview) -> None:
        if name == "a" and not self.asked.is_set():
            self.asked.set()
            assert self.fail.wait(60)
            raise NoStorage("away")
        self.files[name] = b"".join(parts)

    def delete_now(self, names: Sequence[str]) -> None:
        pass


class Refusing(ObjectStorage):
    """A store that refuses some names until it is told not to, and then puts what it is given into a dictionary."""

    refused: set[str] = set()  # noqa: RUF012 (of the test's one store)
    files: dict[str, bytes] = {}  # noqa: RUF012

    def put_now(self, name: str, *parts: bytes | memoryview) -> None:
        if name in self.refused:
            raise NoStorage(f"{name} cannot be reached")
        self.files[name] = b"".join(parts)


def test_a_set_of_files_is_tried_until_it_is_there_and_says_why_it_is_not() -> None:
    storage = Refusing("s3://nowhere", limits=TransferLimits(longest_pause=0.01))
    Refusing.refused = {"b"}
    first = storage.put_set([("a", [b"A"]), ("b", [b"B"])], ("seal", [b""]))
    second = storage.put_set([("c", [b"C"])], ("another", [b""]), first)
    assert await_condition(lambda: str(first.trouble) == str(second.trouble) == "b cannot be reached", 60)
    assert await_condition(lambda: "c" in Refusing.files, 60)
    assert not first.wait(0.0)
    assert not second.wait(0.0)
    assert Refusing.files == {"a": b"A", "c": b"C"}
    Refusing.refused = set()
    assert second.wait(60)
    assert first.wait(0.0)
    assert first.trouble is None
    *before, b, seal, another = Refusing.files
    assert sorted(before) == ["a", "c"], "two sets are put at the same time"
    assert (b, seal, another) == ("b", "seal", "another")


def test_what_is_forgotten_while_it_fails_is_not_put_again() -> None:
    storage = Away("s3://nowhere", limits=TransferLimits(longest_pause=0.5))  # within which it is forgotten
    storage.put_later("a", b"old")
    storage.put_later("b", b"kept")
    assert Away.asked.wait(60)
    forgetting = threading.Thread(target=storage.delete, args=(["a"],))
    forgetting.start()
    storage.put_later("c", b"after")
    Away.fail.set()
    forgetting.join(60)
    assert storage.wait_later(60)
    assert Away.files == {"b": b"kept", "c": b"after"}
