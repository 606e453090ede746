"""The scripts that set things up: two of them at once, one that is killed, and what they find half done."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROFILES = ("kafka", "zookeeper")

# Stands in for Maven: says that it has begun, writes one jar, waits until it may go on, writes the other.
MAVEN = """#!/bin/bash
for argument; do
    case $argument in -DoutputDirectory=*) folder=${argument#*=} ;; esac
done
echo "$folder" >>"$TRACE/begun"
mkdir -p "$folder"
echo first >"$folder/first.jar"
until [ -e "$TRACE/go" ]; do sleep 0.02; done
echo second >"$folder/second.jar"
"""

# Stands in for Python: makes environments of itself, whose pip says that it has begun and waits until it may go on.
PYTHON = """#!/bin/bash
case "$1 $2 $3" in
    "-m venv --clear") echo venv >>"$TRACE/begun"; rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    "-m pip --version") exit 0 ;;
    "-m pip "*) echo pip >>"$TRACE/begun"; until [ -e "$TRACE/go" ]; do sleep 0.02; done ;;
esac
"""

# Stands in for Go: builds a program in two steps, and waits between them.
GO = """#!/bin/bash
if [ "$1" = mod ]; then
    printf '\\t"Dir": "%s",\\n' "$PWD"
    exit
fi
while [ "$1" != -o ]; do shift; done
echo go >>"$TRACE/begun"
echo half >"$2"
chmod +x "$2"
until [ -e "$TRACE/go" ]; do sleep 0.02; done
echo whole >"$2"
"""


class Place:
    """A repository with nothing but its scripts, and a Maven, a Python and a Go that do as the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jars, self.trace = folder, folder / ".jars", folder / "trace"
        shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "requirements").mkdir()
        for name in ("jars.pom.xml", "build.lock", "dev.lock"):
            shutil.copy(ROOT / "requirements" / name, folder / "requirements")
        self.trace.mkdir()
        (folder / "bin").mkdir()
        for name, program in (("mvn", MAVEN), ("python3", PYTHON), ("go", GO)):
            (folder / "bin" / name).write_text(program)
            (folder / "bin" / name).chmod(0o755)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "PYTHON": "", "TRACE": str(self.trace)}

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command or ["scripts/jars.sh"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self) -> str:
        self.go()
        process = self.start()
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint
        return said.strip()

    def go(self) -> None:
        (self.trace / "go").touch()

    @property
    def begun(self) -> list[str]:
        path = self.trace / "begun"
        return path.read_text().split() if path.exists() else []

    @property
    def complete(self) -> bool:
        status = subprocess.run(["scripts/jars.sh", "check"], cwd=self.folder, env=self.environment).returncode
        names = {str(path.relative_to(self.jars)) for path in self.jars.glob("*/*.jar")}
        assert (status == 0) <= (
            names == {f"{profile}/{jar}.jar" for profile in PROFILES for jar in ("first", "second")}
        )
        return status == 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def wait_for_begin(place: Place) -> None:
    end = time.monotonic() + 60
    while not place.begun:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_jars_are_fetched_once(place: Place) -> None:
    assert place.run() == place.run() == str(place.jars)
    assert place.complete
    assert len(place.begun) == len(PROFILES)


def test_what_a_script_cleans_up_at_its_end_stays_while_its_steps_are_short(place: Place) -> None:
    steps = "for _ in {1..20}; do step short true; done; echo end"
    script = f"source scripts/common.sh; trap 'echo cleaned up' EXIT; {steps}"
    said, _ = place.start("bash", "-c", script).communicate(timeout=60)
    assert said.split("\n") == ["end", "cleaned up", ""]


def test_of_two_at_once_one_fetches_the_jars_and_the_other_waits(place: Place) -> None:
    first = place.start()
    wait_for_begin(place)
    second = place.start()
    assert second.stderr is not None
    assert "waiting for it" in second.stderr.readline()
    assert not place.complete
    place.go()

    assert [process.communicate(timeout=60)[0].strip() for process in (first, second)] == [str(place.jars)] * 2
    assert place.complete
    assert len(place.begun) == len(PROFILES)


def test_jars_are_fetched_anew_after_a_kill(place: Place) -> None:
    killed = place.start()
    wait_for_begin(place)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not place.complete
    try:
        place.run()  # beside the Maven of the killed script, which goes on writing
        assert place.complete
        assert [path.name for path in place.jars.glob(".new.*")] == []
    finally:
        os.killpg(killed.pid, signal.SIGKILL)  # what counts the half minutes
        killed.communicate(timeout=60)


@pytest.mark.parametrize("damage", ["missing", "short", "other pom", "folder"])
def test_a_folder_that_is_not_what_was_fetched_is_made_anew(place: Place, damage: str) -> None:
    place.run()
    if damage == "missing":
        (place.jars / "kafka" / "first.jar").unlink()
    elif damage == "short":
        (place.jars / "kafka" / "second.jar").write_text("")
    elif damage == "other pom":
        (place.folder / "requirements" / "jars.pom.xml").write_text("<project/>")
    else:
        shutil.rmtree(place.jars / "zookeeper")
    assert not place.complete
    place.run()
    assert place.complete


def test_a_maven_that_fetches_nothing_leaves_nothing_behind(place: Place) -> None:
    (place.folder / "bin" / "mvn").write_text("#!/bin/sh\n")
    process = place.start()
    assert "fetched no jars for kafka" in process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert not place.complete
    assert [path.name for path in place.jars.glob(".new.*")] == []


def test_the_stamp_of_incomplete_jars_is_forgotten(place: Place) -> None:
    stamp = place.folder / ".venv" / ".jars"
    stamp.parent.mkdir()
    for gone in (False, True):
        stamp.write_text(place.run())
        if gone:
            (place.jars / "kafka" / "first.jar").unlink()
        subprocess.run(["scripts/venv.sh", "check"], cwd=place.folder, env=place.environment, check=True)
        assert stamp.exists() is not gone


def test_of_two_at_once_one_installs_the_packages_and_the_other_finds_them(place: Place) -> None:
    install = ["scripts/venv.sh", "packages"]
    first = place.start(*install)
    wait_for_begin(place)
    second = place.start(*install)
    assert second.stderr is not None
    assert "waiting for it" in second.stderr.readline()
    place.go()

    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert place.begun == ["venv", "pip", "pip"]


def test_an_environment_whose_installation_was_killed_is_made_from_nothing(place: Place) -> None:
    install = ["scripts/venv.sh", "packages"]
    killed = place.start(*install)
    while place.begun != ["venv", "pip"]:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    place.go()
    again = place.start(*install)
    again.communicate(timeout=60)

    assert again.returncode == 0
    assert place.begun == ["venv", "pip", "venv", "pip", "pip"]
    assert (place.folder / ".venv" / ".packages").read_text().strip() == str(place.folder)


def test_a_tool_appears_when_it_is_whole(place: Place) -> None:
    place.environment["PATH"] = f"{place.folder / 'bin'}:/usr/bin:/bin"
    tool = place.folder / ".tools" / "bin" / "helm-unittest"
    killed = place.start("scripts/tools.sh", "helm-unittest")
    wait_for_begin(place)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert not tool.exists()
    place.go()
    two = [place.start("scripts/tools.sh", "helm-unittest") for _ in range(2)]

    assert [process.communicate(timeout=60)[0].strip() for process in two] == [str(tool)] * 2
    assert tool.read_text() == "whole\n"
    assert place.begun == ["go", "go"]


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        timeout=120,
        text=True,
        check=False,
    )


def test_progress_is_whole_characters_and_says_a_line_once(tmp_path: Path) -> None:
    over = tmp_path / "over"
    works = f"""
    source scripts/common.sh
    bar=$(printf '━%.0s' $(seq 150))
    BEAT=0.05 step working bash -c 'printf "\\e[32m%s\\e[0m\\r" '$bar'; until [ -e {over} ]; do sleep 0.02; done' 2>&1 |
        while read -r line; do echo "$line"; case "$line" in *s) touch {over} ;; esac; done
    """
    said = bash(works, LC_ALL="C").stdout.splitlines()

    assert said[0] == "==> working"
    assert [line.count("━") for line in said[1:]][:2] == [100, 0]
    assert "\x1b" not in "".join(said)


@pytest.mark.parametrize(("name", "told"), [("python3.10", "Python 3.10.4"), ("nobody", "there is no such program")])
def test_no_other_python_is_taken_than_the_one_that_is_named(place: Place, name: str, told: str) -> None:
    old = place.folder / "bin" / "python3.10"
    old.write_text("#!/bin/bash\n[ $1 = --version ] && echo Python 3.10.4 && exit\nexit 1\n")
    old.chmod(0o755)
    place.environment["PYTHON"] = name
    process = place.start("scripts/venv.sh", "packages")
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"PYTHON={name} cannot be used" in complaint
    assert told in complaint
    assert not (place.trace / "begun").exists()
