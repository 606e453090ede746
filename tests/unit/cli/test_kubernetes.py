"""Streams on Kubernetes: what kubectl is asked, and what its complaints mean to a person."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spatialstream.cli import main, pod_session
from spatialstream.cli.kubernetes import Kubectl as Cluster
from spatialstream.cli.kubernetes import driver_pod, running
from spatialstream.model.errors import RunError, SettingError, Unavailable
from tests.unit.cli.kubectl import Kubectl, driver, items, stream

ECHO = """
import sys
from spatialstream.cli.pod_session import attach
attach()
print(sys.argv[1:])
print(sys.stdin.read(), end="")
print("a message", file=sys.stderr)
sys.exit(5)
"""
FILES = """
import sys
from argparse import Namespace
from pathlib import Path
from spatialstream.cli.pod_session import attach, write_file
attach()
print("before")
write_file(Namespace(attached=True), Path(sys.argv[-1]), "first\\n\\x1e second\\nno end")
print("after")
"""
WAITS = """
import signal, sys
from spatialstream.cli.pod_session import attach
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(True))
attach()
print("ready", flush=True)
while not stop:
    signal.pause()
print("cancelled", flush=True)
sys.exit(7)
"""
NEAR = "import sys; from spatialstream.cli import main; sys.exit(main(sys.argv[1:]))"


def results(*more: str) -> list[str]:
    return ["results", "--stream", "quakes", "--context", "east", "--namespace", "geo", *more]


@pytest.mark.parametrize(
    ("complaint", "kind", "said"),
    [
        (
            "Error in configuration: context was not found for specified context: east",
            SettingError,
            "it knows north, so",
        ),
        ('error: context "east" does not exist', SettingError, "no context 'east'"),
        ('error: the server doesn\'t have a resource type "spatialstreams"', SettingError, "install the chart"),
        (
            'Error from server (Forbidden): pods is forbidden: User "bob" cannot list',
            SettingError,
            "not allowed by the cluster",
        ),
        ("error: You must be logged in to the server (Unauthorized)", SettingError, "credentials"),
        ('Error from server (NotFound): pods "x" not found', SettingError, 'pods "x" not found'),
        ("The connection to the server localhost:8080 was refused - right?", Unavailable, "does not answer"),
        ("Unable to connect to the server: dial tcp: lookup a: no such host", Unavailable, "no such host"),
        ('E1122 02:51:24 memcache.go:265] "Unhandled"\nerror: something else', RunError, "failed: something else"),
        ("", RunError, "gives no reason"),
    ],
)
def test_a_complaint_becomes_one_line_that_says_what_would_be_right(
    complaint: str, kind: type[Exception], said: str, kubectl: Kubectl
) -> None:
    kubectl.answer("config", out="north\nsouth\n")
    kubectl.answer("get", err=complaint, status=1)

    with pytest.raises(kind) as raised:
        Cluster("east").run("get", "pods")

    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_context_and_namespace_are_passed_on_and_nothing_is_when_they_are_not_given(kubectl: Kubectl) -> None:
    kubectl.answer("get", out={"a": 1})

    assert Cluster("east", "geo").read("get", "x") == {"a": 1}
    assert Cluster().read("get", "x") == {"a": 1}

    assert kubectl.calls == [
        ["--context", "east", "--namespace", "geo", "get", "x", "-o", "json"],
        ["get", "x", "-o", "json"],
    ]


def test_without_kubectl_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SettingError, match="no kubectl on the PATH"):
        Cluster().run("get", "pods")


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        (items(driver("quakes-worker"), driver("quakes-router")), "quakes-router"),
        (items(driver("quakes-worker"), driver("quakes-router", "waiting")), "quakes-worker"),
        (items(driver("quakes-worker"), driver("quakes-router", deletionTimestamp="now")), "quakes-worker"),
        (driver("quakes-worker"), "quakes-worker"),
    ],
)
def test_a_command_runs_in_the_router_or_else_in_the_worker(pods: object, chosen: str, kubectl: Kubectl) -> None:
    kubectl.answer("pods", out=pods)

    assert driver_pod(Cluster(), "quakes") == chosen


@pytest.mark.parametrize(
    ("state", "phase"), [("waiting", "Pending"), ("terminated", "Failed"), ("terminated", "Running")]
)
def test_a_pod_that_has_no_driver_running_takes_no_command(state: str, phase: str) -> None:
    assert not running(driver("quakes-router", state, phase))


def test_a_stream_without_pods_is_told_with_its_phase_and_reason(kubectl: Kubectl) -> None:
    kubectl.answer("pods")
    ready = {"type": "Ready", "status": "False", "message": "the checkpoint claim does not exist"}
    kubectl.answer("spatialstreams.spatialstream.dev", out=stream(phase="Pending", conditions=[ready]))

    with pytest.raises(RunError, match="the stream is Pending: the checkpoint claim does not exist"):
        driver_pod(Cluster(), "quakes")


def test_a_name_that_no_stream_has_is_told_with_those_that_there_are(kubectl: Kubectl) -> None:
    kubectl.answer("pods")
    kubectl.answer("spatialstreams.spatialstream.dev", "quaks")
    kubectl.answer("spatialstreams.spatialstream.dev", out=items(stream("quakes"), stream("posts")))

    with pytest.raises(SettingError, match="no SpatialStream 'quaks' in namespace geo; it has: quakes, posts"):
        driver_pod(Cluster(None, "geo"), "quaks")


def test_the_output_the_messages_and_the_status_of_a_command_come_back(
    kubectl: Kubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("pods", out=items(driver("quakes-router")))
    kubectl.in_pod(ECHO)

    assert main(results("--query", "a", "--new", "--count", "3", "--patience", "2s", "--quiet")) == 5

    out, err = capfd.readouterr()
    told = [
        "spatialstream",
        "--attached",
        "results",
        "--query=a",
        "--new",
        "--count",
        "3",
        "--patience",
        "2000",
        "--quiet",
    ]
    assert out == f"{told}\n"
    assert err == "a message\n"
    assert kubectl.calls[-1] == [
        *("--context", "east", "--namespace", "geo", "exec", "-i", "quakes-router", "-c", "driver", "--"),
        *told,
    ]


def test_what_is_given_arrives_whole(kubectl: Kubectl, capfd: pytest.CaptureFixture[str]) -> None:
    kubectl.in_pod(ECHO)
    given = "".join(f"line {i} ñ\n" for i in range(30_000))

    assert Cluster().execute("quakes-router", [], given.encode()) == 5

    assert capfd.readouterr().out.split("\n", 1)[1] == given


def test_a_file_comes_back_between_the_lines(
    kubectl: Kubectl, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.in_pod(FILES)
    picture = str(tmp_path / "a picture.svg")

    assert Cluster().execute("quakes-router", [picture], files=[picture]) == 0

    assert capfd.readouterr().out == "before\nafter\n"
    assert Path(picture).read_text() == "first\n\x1e second\nno end"


def test_a_file_that_nobody_asked_for_is_not_written(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.in_pod(FILES)

    with pytest.raises(RunError, match="an unexpected or incomplete file"):
        Cluster().execute("quakes-router", [str(tmp_path / "x")], files=[str(tmp_path / "y")])

    assert not (tmp_path / "x").exists()


def test_kubectls_own_failure_is_told_as_such(kubectl: Kubectl, capfd: pytest.CaptureFixture[str]) -> None:
    forbidden = 'Error from server (Forbidden): pods "quakes-router" is forbidden: User "bob" cannot create "pods/exec"'
    kubectl.in_pod(f"import sys; print({forbidden!r}, file=sys.stderr); sys.exit(1)")

    with pytest.raises(SettingError, match='not allowed by the cluster: pods "quakes-router" is forbidden'):
        Cluster().execute("quakes-router", ["results"])

    assert capfd.readouterr().err == ""


def test_an_interrupt_lets_the_command_in_the_pod_end_by_itself(kubectl: Kubectl) -> None:
    kubectl.answer("pods", out=items(driver("quakes-router")))
    kubectl.in_pod(WAITS)
    near = subprocess.Popen([sys.executable, "-c", NEAR, *results()], stdout=subprocess.PIPE, env=dict(os.environ))
    assert near.stdout is not None
    with near:
        assert near.stdout.readline() == b"ready\n"
        near.send_signal(signal.SIGINT)

        assert near.stdout.read() == b"cancelled\n"
        assert near.wait(30.0) == 7


def test_when_the_near_end_is_killed_the_command_in_the_pod_ends(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.answer("pods", out=items(driver("quakes-router")))
    fifo = tmp_path / "ended"
    os.mkfifo(fifo)
    kubectl.in_pod(
        WAITS.replace("sys.exit(7)", f"open({str(fifo)!r}, 'w').write('ended')").replace(
            'print("cancelled", flush=True)', "pass"
        )
    )
    near = subprocess.Popen([sys.executable, "-c", NEAR, *results()], stdout=subprocess.PIPE, env=dict(os.environ))
    assert near.stdout is not None
    with near:
        assert near.stdout.readline() == b"ready\n"
        near.kill()

        assert fifo.read_text() == "ended"


def test_people_cannot_attach_by_mistake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"hello\n")
    os.close(writer)
    monkeypatch.setattr("spatialstream.cli.attach", partial(pod_session.attach, reader))

    assert main(["--attached", "results", "--stream", "x"]) == 2

    assert "attached: is internal" in capsys.readouterr().err
    os.close(reader)


def test_a_position_file_is_refused_where_the_command_runs_in_a_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(results("--position", "here.json")) == 2

    assert "position: is a file on this machine" in capsys.readouterr().err
