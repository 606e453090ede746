"""Compiling before the first epoch: one process at a time, each function whole."""

import ast
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spatialstream import kernels
from spatialstream.model import kernels as model_kernels


def cache(folder: Path, **functions: str) -> Path:
    """A cache with two versions of each function, in numba's files; the value says who compiled it."""
    for name, owner in functions.items():
        place = folder / "local_1"
        place.mkdir(parents=True, exist_ok=True)
        for end in ("1.nbc", "2.nbc", "nbi"):
            (place / f"{name}.py311.{end}").write_text(owner)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.glob("**/*") if path.is_file()}


def test_what_two_processes_have_compiled_is_taken_from_neither(tmp_path: Path) -> None:
    one = cache(tmp_path / "one", **{"grid._match-1": "one", "hashing.mix-9": "one"})
    other = cache(tmp_path / "other", **{"grid._match-12": "other", "hashing.mix-9": "other"})
    (other / "characters-15.npy").write_text("other")
    together = tmp_path / "together"
    together.mkdir()

    kernels.gather([one, other, tmp_path / "failed"], together)

    ends = ("1.nbc", "2.nbc", "nbi")
    assert contents(together) == {
        **{f"local_1/grid._match-1.py311.{end}": "one" for end in ends},
        **{f"local_1/grid._match-12.py311.{end}": "other" for end in ends},
        "characters-15.npy": "other",
    }


def test_each_module_is_in_one_group() -> None:
    assert sorted(name for group in kernels.GROUPS for name in group) == sorted(kernels.MODULES)


def test_of_two_at_once_one_compiles_and_the_other_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, calls = threading.Event(), threading.Event(), []

    def prepare(report: kernels.Report | None = None) -> None:
        calls.append(report)
        begun.set()
        assert go.wait(60)

    monkeypatch.setattr(kernels, "cache_folder", lambda: tmp_path / "kernels")
    monkeypatch.setattr(kernels, "prepare", prepare)
    monkeypatch.setattr(kernels, "_compile_apart", lambda *arguments: calls.append("apart"))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    (tmp_path / "kernels" / "aside-killed" / "segments").mkdir(parents=True)
    threads = [threading.Thread(target=kernels.compile_kernels) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(60)
    kernels.compile_kernels()

    assert calls == [None]
    assert {path.name for path in (tmp_path / "kernels").iterdir()} == {"lock", f"complete-{kernels.stamp()}"}


def test_names_are_said_when_their_modules_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(kernels, "MODULES", {name: lambda name=name: done.append(name) for name in ("a", "b", "c")})
    monkeypatch.setattr(kernels, "compile_kernels", kernels.prepare)

    kernels.main(["c", "a"])
    kernels.main([])

    assert done == ["c", "a", "a", "b", "c"]
    assert capsys.readouterr().out == "c\na\n    a: 1 of 3, 0 s\n    b: 2 of 3, 0 s\n    c: 3 of 3, 0 s\n"


def test_an_edit_of_kernels_in_any_folder_gives_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "spatialstream"
    shutil.copytree(Path(model_kernels.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(model_kernels, "__file__", str(package / "model" / "kernels.py"))
    modules = [path for path in package.glob("**/*.py") if "kernel\ndef " in path.read_text()]
    seen = {model_kernels.cache_folder()}
    for path in {path.parent: path for path in modules}.values():
        path.write_text(f"{path.read_text()}\nEDITED = 1\n")
        assert model_kernels.cache_folder() not in seen, path
        seen.add(model_kernels.cache_folder())


def test_sources_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = ast.parse, list[bytes]()

    def counted(source: bytes) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(ast, "parse", counted)
    monkeypatch.setenv("SPATIALSTREAM_CACHE", str(tmp_path))
    folder = model_kernels.cache_folder()
    modules = len(parsed)
    assert modules > 100
    assert model_kernels.cache_folder() == folder
    assert len(parsed) == modules
    (left,) = (tmp_path / "spatialstream").iterdir()
    left.write_text("damaged")
    assert model_kernels.cache_folder() == folder
    assert len(parsed) == 2 * modules


def test_a_cache_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = model_kernels.cache_folder().name
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPATIALSTREAM_CACHE", str(tmp_path / "file"))
    assert model_kernels.cache_folder() == tmp_path / "file" / "spatialstream" / name


def test_threads_find_the_cache_at_the_same_time() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: model_kernels.cache_folder(), range(8)))) == 1


def test_an_edit_of_a_constant_that_kernels_import_gives_another_cache(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_kernels, "__file__", str(clone / "model" / "kernels.py"))
    times, before = clone / "model" / "times.py", model_kernels.cache_folder()
    assert "kernel" not in times.read_text()
    times.write_text(times.read_text().replace("TIME_LIMIT = 8_", "TIME_LIMIT = 7_"))
    assert model_kernels.cache_folder() != before


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The package as it is elsewhere, written at another time."""
    package = tmp_path / "spatialstream"
    shutil.copytree(Path(kernels.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in package.glob("**/*.py"):
        os.utime(path, (1, 1))
    return package


def test_a_clone_finds_what_was_compiled_of_the_same_source(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(kernels.__file__).parent
    module = Path("local", "snapshot", "zorder.py")

    def found(package: Path) -> tuple[object, ...]:
        with monkeypatch.context() as patch:
            patch.setattr(model_kernels, "__file__", str(package / "model" / "kernels.py"))
            patch.setattr(kernels, "__file__", str(package / "kernels.py"))
            locator = model_kernels.KernelLocator.from_function(found, str(package / module))
            elsewhere = model_kernels.KernelLocator.from_function(found, __file__)
            folder = model_kernels.cache_folder()
            return folder, locator.get_cache_path(), locator.get_source_stamp(), kernels.stamp(), elsewhere

    assert found(clone) == found(here)
    assert found(here)[1] == str(model_kernels.cache_folder() / "local.snapshot")
    assert found(here)[-1] is None
    before = found(clone)
    (clone / module).write_text(f"# lines move\n{(clone / module).read_text()}")
    assert found(clone)[:3] == before[:3]
    assert found(clone)[3] != before[3]


def test_machine_code_depends_on_kernels_and_what_they_are_given() -> None:
    source = b"""
class A(NamedTuple):
    a: int
def of_python(a):
    return f(a)
@kernel
def f(a):
    return a.a
"""
    wanted = [b"class A(NamedTuple):", b"    a: int", b"def f(a):", b"    return a.a"]
    assert list(model_kernels._compiled_lines(source)) == wanted


OF_ADDRESSES = {"array_at", "columns_at", "table_of"}
"""Kernels whose arrays have no reference count."""

AN_ARRAY = re.compile("Array|Codes|Floats|Ints|Bytes|Flags|Columns|Seed|Table")


def test_a_kernel_that_counts_no_references_is_given_no_array_that_has_one_by_another() -> None:
    """Nobody would count it down, so the array would be kept for ever; numba refuses arrays that it makes itself."""
    package = Path(kernels.__file__).parent
    trees = {
        f"{package.name}.{path.relative_to(package).with_suffix('').as_posix().replace('/', '.')}": ast.parse(
            path.read_text()
        )
        for path in package.glob("**/*.py")
    }
    making, lean = set(), {}
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                kinds = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
                if kinds & {"lean_kernel", "inlined_kernel"}:
                    lean[module, node.name] = node
                returns = ast.unparse(node.returns or ast.Constant(0))
                if kinds & {"kernel", "lean_kernel", "inlined_kernel"} and AN_ARRAY.search(returns):
                    making.add((module, node.name))

    def called(module: str, node: ast.FunctionDef) -> set[tuple[str, str]]:
        origin = {
            name.name: str(each.module)
            for each in trees[module].body
            if isinstance(each, ast.ImportFrom)
            for name in each.names
        }
        names = {
            each.func.id for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        }
        return {(origin.get(name, module), name) for name in names - OF_ADDRESSES}

    assert ("spatialstream.local.wordtable", "find_word") in lean
    assert ("spatialstream.local.wordtable", "gather") in making
    assert {one: called(one[0], node) & making for one, node in lean.items() if called(one[0], node) & making} == {}
