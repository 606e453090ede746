"""What holds for the files of the repository, whatever they say."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in parts, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("snapshot", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("security", "ubuntu", "com"),
    ]
]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """The files that are, or would be, under version control."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_registry(files):
    host = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in REGISTRY_HOSTS).encode(), re.IGNORECASE)

    assert [str(path.relative_to(ROOT)) for path in files if host.search(path.read_bytes())] == []


CONSOLE = ROOT / "requirements" / "console.lock"
"""Of packages for the browser; the others are for pip."""


def test_the_consoles_lock_holds_versions_and_hashes_alone():
    lines = [line for line in CONSOLE.read_text().splitlines() if not line.startswith("#")]

    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z-]+ \d+\.\d+\.\d+ sha512-[A-Za-z0-9+/]{86}==", line)] == []


@pytest.mark.parametrize(
    "lock", sorted(set((ROOT / "requirements").glob("*.lock")) - {CONSOLE}), ids=lambda path: path.stem
)
def test_locks_hold_versions_and_hashes_alone(lock):
    text = lock.read_text()
    requirements = re.findall(r"^[^\s#].*(?:\n[ \t].*)*", text, re.MULTILINE)

    assert requirements
    assert [entry for entry in requirements if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert not re.search(r"://|^-|--(?:extra-)?index-url|--find-links", text, re.MULTILINE)


def test_operator_is_the_standard_one_when_started_in_the_root():
    code = "import operator; print(operator.__file__)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)

    assert Path(done.stdout.strip()).is_relative_to(sysconfig.get_path("stdlib"))


def test_no_python_file_directly_in_the_operator_folder():
    assert list((ROOT / "operator").glob("*.py")) == []


def test_each_folder_of_tests_is_a_package(files):
    folders = {path.parent for path in files if path.is_relative_to(ROOT / "tests") and path.suffix == ".py"}

    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
