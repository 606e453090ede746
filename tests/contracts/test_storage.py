"""The contract of every storage, see :class:`spatialstream.connectors.contracts.Storage`."""

from __future__ import annotations

import errno
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory_storage import MemoryStorage, Overlay
from spatialstream.model.errors import Missing
from spatialstream.servers.process import await_condition


def _overlay(folder: Path) -> Overlay:
    """An overlay over files that are all replaced or deleted."""
    base = Folder(folder / "base")
    for name in ("a", "b/c", "gone/x"):
        base.put(name, b"below")
    overlay = Overlay(base)
    overlay.put("b/c", b"above")
    overlay.delete(["a", "b/c", "gone/x"])
    return overlay


KINDS: dict[str, Callable[[Path], Storage]] = {
    "folder": lambda folder: Folder(folder / "state"),
    "memory": lambda folder: MemoryStorage(),
    "overlay": _overlay,
}


Make = Callable[[Path], Storage]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    """Creates an empty storage, given a folder."""
    return KINDS[request.param]


@pytest.fixture
def storage(make: Make, tmp_path: Path) -> Storage:
    return make(tmp_path)


def content(storage: Storage, name: str) -> bytes:
    return storage.get(name).to_pybytes()


# ----------------------------------------------------------------------------------------------------- put, get, delete


def test_a_new_storage_is_empty(storage: Storage) -> None:
    assert storage.list("") == []
    assert storage.list("a/") == []
    with pytest.raises(Missing, match="a/b"):
        storage.get("a/b")
    storage.delete(["a/b", "a", "c"])


def test_what_was_put_is_got(storage: Storage) -> None:
    storage.put("one", b"1")
    storage.put("folder/one", b"", b"2")
    storage.put("folder/in/folder/one.two", b"34", memoryview(np.arange(6, dtype=np.int32).reshape(2, 3)), b"")
    storage.put("empty")
    storage.put("part", pa.py_buffer(b"xyz").slice(1), b"!")
    assert content(storage, "one") == b"1"
    assert content(storage, "folder/one") == b"2"
    assert content(storage, "folder/in/folder/one.two") == b"34" + np.arange(6, dtype=np.int32).tobytes()
    assert content(storage, "empty") == b""
    assert content(storage, "part") == b"yz!"


def test_big_contents_are_put_part_by_part(storage: Storage) -> None:
    parts = [np.full(1 << 20, i, np.uint8) for i in range(40)]
    storage.put("big", *(part.data for part in parts))
    found = np.frombuffer(storage.get("big"), np.uint8)
    assert len(found) == 40 << 20
    assert (found[:: 1 << 20] == np.arange(40)).all()


def test_writing_again_replaces_the_whole(storage: Storage) -> None:
    storage.put("a/b", b"a long text")
    storage.put("a/b", b"short")
    assert content(storage, "a/b") == b"short"
    assert storage.list("") == ["a/b"]


def test_what_was_got_stays_when_the_file_is_replaced_and_deleted(storage: Storage) -> None:
    storage.put("a", b"x" * 100_000)
    first = storage.get("a")
    storage.put("a", b"y" * 50_000)
    second = storage.get("a")
    storage.delete(["a"])
    assert first.to_pybytes() == b"x" * 100_000
    assert second.to_pybytes() == b"y" * 50_000
    assert find(storage, "a") is None


def test_writing_into_what_was_got_changes_nothing_else(storage: Storage) -> None:
    storage.put("a", b"x" * 100)
    mine, others = storage.get("a"), storage.get("a")
    np.frombuffer(mine, np.uint8)[0] = 0
    assert others.to_pybytes() == content(storage, "a") == b"x" * 100


def test_deleted_files_are_gone_and_can_be_deleted_and_put_again(storage: Storage) -> None:
    for name in ("a", "b/c", "b/d", "e/f/g"):
        storage.put(name, b"old")
    storage.delete(name for name in ("e/f/g", "b/c", "nothing", "b/nothing"))
    assert storage.list("") == ["a", "b/d"]
    storage.delete(["e/f/g", "b/c"])
    storage.delete([])
    for name in ("e/f/g", "b/c"):
        with pytest.raises(Missing):
            storage.get(name)
    storage.put("b/c", b"new")
    assert content(storage, "b/c") == b"new"
    assert storage.list("b/") == ["b/c", "b/d"]


def test_discarded_files_are_gone_some_time(storage: Storage) -> None:
    for name in ("a", "b/c", "b/d"):
        storage.put(name, b"old")
    storage.discard(name for name in ("a", "b/c", "nothing"))
    assert await_condition(lambda: storage.list("") == ["b/d"], 60.0)
    storage.discard([])
    assert storage.list("") == ["b/d"]


def test_what_is_put_later_is_there_for_who_has_put_it_and_some_time_for_all(storage: Storage) -> None:
    for number in range(20):
        storage.put_later("a/done", f"{number}".encode())
        assert content(storage, "a/done") == f"{number}".encode()
    storage.put_later("a/empty", b"")
    assert await_condition(lambda: storage.list("") == ["a/done", "a/empty"], 60.0)
    assert content(storage, "a/done") == b"19"
    storage.put_later("a/done", b"20")
    storage.put("a/done", b"21")
    storage.put_later("a/gone", b"22")
    storage.delete(["a/gone"])
    assert content(storage, "a/done") == b"21"
    assert storage.list("") == ["a/done", "a/empty"]
    with pytest.raises(ValueError, match="is not a valid file name"):
        storage.put_later("..", b"")


def test_what_is_shared_is_there_until_it_is_removed(storage: Storage) -> None:
    name = "rounds/000000007-0001.second"
    for content_ in (b"shared", b""):
        storage.share(name, content_)
        assert content(storage, name) == content_
        assert content(pickle.loads(pickle.dumps(storage)), name) == content_
    storage.share("a", b"shared")
    assert content(storage, "a") == b"shared", "whatever it is called"
    storage.delete([name])
    assert find(storage, name) is None
    with pytest.raises(ValueError, match="is not a valid file name"):
        storage.share("..", b"")


def test_what_is_begun_is_there_when_it_has_been_waited_for(storage: Storage) -> None:
    storage.await_puts()
    for number in range(40):
        storage.begin_put(f"a/{number}", bytes([number]) * 1000, b"", memoryview(np.arange(number)))
    storage.await_puts()
    assert len(storage.list("a/")) == 40
    assert content(storage, "a/7") == b"\7" * 1000 + np.arange(7).tobytes()
    storage.begin_put("a/7", b"again")
    storage.await_puts()
    assert content(storage, "a/7") == b"again"
    with pytest.raises(ValueError, match="is not a valid file name"):
        storage.begin_put("..", b"")
    storage.await_puts()


def test_each_thread_waits_for_what_it_has_begun(storage: Storage) -> None:
    def work(thread: int) -> None:
        for number in range(5):
            storage.begin_put(f"{thread}/{number}", bytes([thread, number]))
        storage.await_puts()
        assert all(content(storage, f"{thread}/{number}") == bytes([thread, number]) for number in range(5))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_of_a_set_of_files_the_seal_is_there_after_all_others(storage: Storage) -> None:
    files = [(f"a/{number}", [bytes([number]) * 1000, b"", memoryview(np.arange(number))]) for number in range(40)]
    first = storage.put_set(files, ("a/seal", [b"se", b"al"]))
    second = storage.put_set([("b/0", [b"0"])], ("b/seal", [b""]), first)
    while not second.wait(0.01):
        if find(storage, "b/seal") is not None:
            assert content(storage, "a/seal") == b"seal"
        if find(storage, "a/seal") is not None:
            assert len(storage.list("a/")) == 41
    assert first.wait(0.0)
    assert first.trouble is second.trouble is None
    assert content(storage, "a/7") == b"\7" * 1000 + np.arange(7).tobytes()
    assert storage.list("b/") == ["b/0", "b/seal"]
    with pytest.raises(ValueError, match="is not a valid file name"):
        storage.put_set([], ("..", [b""]))


def test_a_file_is_created_once(storage: Storage) -> None:
    assert storage.create("a/b", b"one")
    assert not storage.create("a/b", b"another")
    assert storage.create("a/b", b"one")  # as who has not heard that it was
    assert content(storage, "a/b") == b"one"
    storage.delete(["a/b"])
    assert storage.create("a/b", b"another")
    assert storage.list("") == ["a/b"]


def test_of_many_who_create_a_file_one_succeeds(storage: Storage) -> None:
    for number in range(5):
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda by: storage.create(f"{number}", bytes([by])), range(8)))  # noqa: B023
        assert content(storage, f"{number}") == bytes([said.index(True)])
        assert sum(said) == 1


def test_what_files_lie_beneath_is_no_file(storage: Storage) -> None:
    storage.put("a/b", b"")
    assert find(storage, "a") is None
    assert find(storage, "a/b/c") is None
    storage.delete(["a", "a/b/c"])
    assert storage.list("") == ["a/b"]


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "..", "../a", "a/../b", ".a", "a/.b", "a b", "a\0", "ä", "a\n"]
)
def test_names_that_are_none_are_refused(storage: Storage, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.put(name, b""),
        lambda: storage.create(name, b""),
        lambda: storage.get(name),
        lambda: storage.delete([name]),
        lambda: storage.discard([name]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="is not a valid file name"):
            call()


# ----------------------------------------------------------------------------------------------------------------- list


def test_a_list_is_sorted_by_name_and_of_one_prefix(storage: Storage) -> None:
    names = ["b/10", "b/9", "b/x/1", "b.c/1", "b-c", "a", "ba", "b/A", "b/_", "bb/x/y", "day=2026-11-22/x.parquet"]
    for name in names:
        storage.put(name, b"")
    assert storage.list("") == sorted(names)
    assert storage.list("b/") == ["b/10", "b/9", "b/A", "b/_", "b/x/1"]
    assert storage.list("b/x/") == ["b/x/1"]
    assert storage.list("c/") == storage.list("a/") == storage.list("b/1/") == []


# -------------------------------------------------------------------------------------------------------------- failure


class Full:
    """Simulates a disk that is full after so many bytes of a process."""

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, self.before[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("before", [b"before", None])
def test_a_file_that_cannot_be_written_is_as_it_was(before: bytes | None, tmp_path: Path) -> None:
    storage = Folder(tmp_path)
    if before is not None:
        storage.put("a/b", before)
    with Full(), pytest.raises(OSError, match="a/b") as told:
        storage.put("a/b", b"x" * 60_000, b"y" * 60_000)
    assert told.value.errno == errno.EFBIG
    found = find(storage, "a/b")
    assert (None if found is None else found.to_pybytes()) == before
    assert everything(tmp_path) == ([] if before is None else ["a/b"])


def test_a_file_whose_parts_fail_is_as_it_was(storage: Storage, tmp_path: Path) -> None:
    storage.put("a/b", b"before")
    files = everything(tmp_path)
    with pytest.raises((TypeError, KeyError, BufferError)):
        storage.put("a/b", b"part", object())  # type: ignore[arg-type]  # that is the failure
    assert content(storage, "a/b") == b"before"
    assert storage.list("") == ["a/b"]
    assert everything(tmp_path) == files


WRITER = """
import resource, signal, sys
from pathlib import Path
from spatialstream.connectors.folder import Folder

storage, what = Folder(Path(sys.argv[1])), sys.argv[2]
if what == "full":  # and killed for it, in the middle of writing
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    storage.put("a/b", *(b"x" * 100_000,) * 30)
byte, size = what[0].encode(), int(what[1:])
print("begun", flush=True)
while True:
    storage.put("a/b", byte * (size // 2), byte * (size - size // 2))
    storage.put("c/d", byte)
    storage.delete(["c/d"])
    assert "a/b" in storage.list("a/")
"""


def writer(folder: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), what], stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_while_it_writes_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    storage = Folder(tmp_path)
    storage.put("a/b", b"before")
    with writer(tmp_path, "full") as process:
        assert process.wait(60) == -signal.SIGXFSZ
    assert content(storage, "a/b") == b"before"
    assert storage.list("") == storage.list("a/") == ["a/b"]


def test_several_processes_on_one_folder_see_whole_files_only(tmp_path: Path) -> None:
    storage = Folder(tmp_path)
    sizes = {b"x": 3_000_000, b"y": 5_000_000}
    with writer(tmp_path, "x3000000") as one, writer(tmp_path, "y5000000") as other:
        try:
            for process in (one, other):
                assert process.stdout is not None
                assert process.stdout.readline() == "begun\n"
            seen: list[bytes] = []
            while len(set(seen)) < 2 or len(seen) < 50:
                found = find(storage, "a/b")
                if found is not None:
                    seen.append(found.slice(0, 1).to_pybytes())
                    assert found.to_pybytes() == seen[-1] * sizes[seen[-1]]
                assert storage.list("a/") in ([], ["a/b"])
                assert [name for name in storage.list("") if not name.startswith("a/")] in ([], ["c/d"])
            assert one.poll() is other.poll() is None
        finally:
            one.kill()
            other.kill()
    found = storage.get("a/b")
    byte = found.slice(0, 1).to_pybytes()
    assert found.to_pybytes() == byte * sizes[byte]


def test_threads_write_and_delete_side_by_side(storage: Storage) -> None:
    def work(thread: int) -> None:
        for number in range(50):
            storage.put(f"shared/{thread}/{number}", bytes([thread]) * 1000)
            assert content(storage, f"shared/{thread}/{number}") == bytes([thread]) * 1000
            storage.put("same", b"equal" * 1000)
            storage.list("")
            storage.put(f"briefly/there/{thread}", b"")
            storage.delete([f"briefly/there/{thread}"])
            if number % 5:
                storage.delete([f"shared/{thread}/{number}"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert content(storage, "same") == b"equal" * 1000
    assert len(storage.list("shared/")) == 80


# ------------------------------------------------------------------------------------------------------- several object


def test_a_pickle_is_the_same_storage(storage: Storage) -> None:
    if isinstance(storage, Overlay):
        pytest.skip("it is this process's alone")
    again: Storage = pickle.loads(pickle.dumps(storage))
    storage.put("a", b"1")
    again.put("b", b"2")
    assert again.place == storage.place
    assert again == storage
    assert hash(again) == hash(storage)
    assert again.list("") == storage.list("") == ["a", "b"]
    assert len(pickle.dumps(storage)) < 500


def test_storages_of_other_places_are_others(tmp_path: Path) -> None:
    storages = [
        *(kind(tmp_path / str(i)) for i in range(2) for kind in KINDS.values()),
        *(Overlay(Folder(tmp_path)) for _ in range(2)),
    ]
    assert len({each.place for each in storages}) == len(set(storages)) == len(storages)


def test_an_overlay_leaves_its_base_alone_and_can_begin_again(tmp_path: Path) -> None:
    base = Folder(tmp_path)
    for name in ("a", "b/c", "b/d"):
        base.put(name, b"below")
    overlay = Overlay(base)
    place = overlay.place
    for _ in range(2):
        overlay.put("b/c", b"above")
        overlay.put("new", b"above")
        overlay.delete(["a", "new"])
        overlay.put("b/new", b"above")
        assert overlay.list("") == ["b/c", "b/d", "b/new"]
        assert content(overlay, "b/c") == b"above"
        assert content(overlay, "b/d") == b"below"
        assert base.list("") == ["a", "b/c", "b/d"]
        assert content(base, "b/c") == b"below"
        overlay.renew()
        assert overlay.place == place
        assert overlay.list("") == ["a", "b/c", "b/d"]
        assert content(overlay, "b/c") == b"below"


# ----------------------------------------------------------------------------------------------------------------- mode

NAMES = st.sampled_from(["a", "b", "c/a", "c/b.json", "c/d/a", "c/d/b", "e/000000001", "e/000000010", "f-g/h_i=j"])
CONTENTS = st.lists(st.binary(max_size=20), max_size=3)


class Model(RuleBasedStateMachine):
    """Compares a storage with a dict."""

    make: Make

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.storage = type(self).make(Path(self.folder.name))
        self.files: dict[str, bytes] = {}
        self.got: list[tuple[pa.Buffer, bytes]] = []

    @rule(name=NAMES, parts=CONTENTS)
    def put(self, name: str, parts: list[bytes]) -> None:
        self.storage.put(name, *parts)
        self.files[name] = b"".join(parts)

    @rule(names=st.lists(NAMES, max_size=4))
    def delete(self, names: list[str]) -> None:
        self.storage.delete(names)
        for name in names:
            self.files.pop(name, None)

    @rule(name=NAMES)
    def get(self, name: str) -> None:
        found = find(self.storage, name)
        assert (None if found is None else found.to_pybytes()) == self.files.get(name)
        if found is not None:
            self.got.append((found, self.files[name]))

    @rule(prefix=st.sampled_from(["", "c/", "c/d/", "e/", "f-g/", "nothing/"]))
    def list(self, prefix: str) -> None:
        assert self.storage.list(prefix) == sorted(name for name in self.files if name.startswith(prefix))

    @invariant()
    def what_was_got_stays(self) -> None:
        assert all(buffer.to_pybytes() == data for buffer, data in self.got)

    def teardown(self) -> None:
        self.got.clear()
        self.folder.cleanup()


def test_a_storage_is_a_dictionary(make: Make) -> None:
    run_state_machine_as_test(type("Model", (Model,), {"make": staticmethod(make)}))
