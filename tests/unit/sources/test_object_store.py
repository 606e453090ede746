"""What an object store's storage does later, without a store."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from spatialstream.model.errors import NoStorage
from spatialstream.sources import object_store
from spatialstream.sources.object_store import ObjectStorage, _Later


class Away(ObjectStorage):
    """A store that fails once it is told to, and then puts what it is given into a dictionary."""

    asked, fail = threading.Event(), threading.Event()
    tried = 0
    files: dict[str, bytes] = {}  # noqa: RUF012 (of the test's one store)

    def put_now(self, name: str, *parts: bytes | memoryview) -> None:
        type(self).tried += 1
        if self.tried == 1:
            self.asked.set()
            assert self.fail.wait(60)
            raise NoStorage("away")
        self.files[name] = b"".join(parts)

    def delete_now(self, names: Sequence[str]) -> None:
        pass


def test_what_is_forgotten_while_it_fails_is_not_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_LONGEST_PAUSE", 0.01)
    later = _Later(Away("s3://nowhere"))
    later.add({"a": b"old", "b": b"kept"})
    assert Away.asked.wait(60)
    forgetting = threading.Thread(target=later.forget, args=(["a"],))
    forgetting.start()
    later.add({"c": b"after"})
    Away.fail.set()
    forgetting.join(60)
    assert later.get("a") is None
    assert later.wait(60)
    assert Away.files == {"b": b"kept", "c": b"after"}
