"""Access to streams on Kubernetes through kubectl: resources are read, and commands run inside a driver's pod.

kubectl knows the cluster's address and the user's credentials, so this module needs neither. A command that needs the
broker or the routing store runs in the pod of the stream's router or worker: the environment there has their addresses
and secrets, so neither is transmitted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spatialstream.cli import live
from spatialstream.cli.pod_session import MARK, write_here
from spatialstream.model.errors import RunError, SettingError, SpatialStreamError, Unavailable
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import Space
from spatialstream.model.terms import EVERYTHING, POLYGON_VERTICES, QUERY_WORDS, TermRule, extract_terms

__all__ = [
    "RESOURCE",
    "Kubectl",
    "add_cluster",
    "again",
    "asked",
    "driver_pod",
    "resource",
    "run_in_pod",
    "running",
    "space_and_rule",
]

RESOURCE = "spatialstreams.spatialstream.dev"
"""The custom resource, as kubectl names it."""

_CONTAINER = "driver"
_EXIT = re.compile(rb"command terminated with exit code \d+\s*$")
_OWN = re.compile(
    rb"(error:|Error from server|Error in configuration|Unable to connect|The connection to|E\d{4} )", re.I
)
"""Beginnings of lines that kubectl itself writes, not the command in the pod."""
_UNREACHABLE = re.compile(r"Unable to connect|was refused|no such host|i/o timeout|no route to host|error: EOF", re.I)
_PATIENCE = 10.0


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add ``--context`` and ``--namespace``."""
    add = parser.add_argument_group("a stream on Kubernetes (the command runs in a pod of it)").add_argument
    add("--context", metavar="NAME", help="kubectl's context; the stream is then the name of a SpatialStream")
    add("--namespace", metavar="NAME", help="the SpatialStream's namespace (default: the context's)")


def asked(options: argparse.Namespace) -> bool:
    """Whether the options of :func:`add_cluster` select a stream on Kubernetes."""
    return options.context is not None or options.namespace is not None


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl in a context and a namespace.

    Attributes:
        context: kubectl's context; None: the current one.
        namespace: the namespace; None: the context's.
    """

    context: str | None = None
    namespace: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Kubectl:
        """Build it from the options of :func:`add_cluster`."""
        return cls(options.context, options.namespace)

    @property
    def place(self) -> str:
        """The namespace, for a message."""
        return "the context's namespace" if self.namespace is None else f"namespace {self.namespace}"

    @property
    def flags(self) -> list[str]:
        """The options for context and namespace, which kubectl and this program's commands share."""
        context = [] if self.context is None else ["--context", self.context]
        return context + ([] if self.namespace is None else ["--namespace", self.namespace])

    def _command(self, arguments: Sequence[str]) -> list[str]:
        program = shutil.which("kubectl")
        if program is None:
            problem = "there is no kubectl on the PATH; it is required to reach a stream on Kubernetes"
            raise SettingError("context", problem)
        return [program, *self.flags, *arguments]

    def run(self, *arguments: str) -> str:
        """Run a kubectl command and return its output.

        Raises:
            SettingError: no kubectl, no such context, not allowed, no such resource.
            Unavailable: the cluster does not answer.
            RunError: any other failure.
        """
        command = self._command(arguments)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            raise self._failure(done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def read(self, *arguments: str) -> Any:
        """Run a kubectl command and return its JSON, None if it prints nothing; errors as for :meth:`run`."""
        text = self.run(*arguments, "-o", "json")
        return json.loads(text) if text.strip() else None

    def _failure(self, output: str) -> SpatialStreamError:
        """Translate kubectl's error output into an error that says what would be right."""
        lines = [line for line in output.splitlines() if line.strip() and not re.match(r"E\d{4} ", line)]
        last = re.sub(r"^(error|Error from server( \(\w+\))?): ", "", lines[-1]) if lines else "it gives no reason"
        if "context" in output and re.search(
            r"context was not found|no context exists|context .* does not exist", output
        ):
            return SettingError("context", f"kubectl knows no context {self.context!r}; it knows {self._contexts()}")
        if "have a resource type" in output:
            return SettingError(
                "context", "this cluster has no SpatialStream resources; install the chart spatialstream first"
            )
        if "(Forbidden)" in output:
            return SettingError("context", f"not allowed by the cluster: {last}")
        if "(Unauthorized)" in output or "must be logged in" in output:
            return SettingError("context", f"the cluster does not accept the context's credentials: {last}")
        if "(NotFound)" in output:
            return SettingError("stream", last)
        if _UNREACHABLE.search(output):
            return Unavailable(f"the cluster does not answer: {last}")
        return RunError(f"kubectl failed: {last}")

    def _contexts(self) -> str:
        command = Kubectl()._command(["config", "get-contexts", "-o", "name"])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return ", ".join(done.stdout.split()) or "none"

    def execute(self, pod: str, command: Sequence[str], stdin: bytes = b"", files: Collection[str] = ()) -> int:
        """Run an attached command in a driver's container, relaying its output and files; Ctrl-C ends it.

        Args:
            pod: name of the pod.
            command: arguments of ``spatialstream``.
            stdin: its standard input.
            files: paths of the files that it may write on this machine, as the command names them.

        Returns:
            Its exit status.

        Raises:
            SettingError, Unavailable, RunError: kubectl failed; as for :meth:`run`.
        """
        exec_ = ["exec", "-i", pod, "-c", _CONTAINER, "--", "spatialstream", "--attached", *command]
        process = subprocess.Popen(
            self._command(exec_),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only us: the remote end is asked to end, and then kubectl ends
        )
        conversation = _Conversation(process, files)
        try:
            status, errors = conversation.hold(stdin)
        finally:
            _end(process)
            conversation.end()
        if status and errors:
            raise self._failure(errors)
        return status


@dataclass(slots=True)
class _Conversation:
    """Relays input, output, files and interrupts while a command runs in a pod."""

    process: subprocess.Popen[bytes]
    files: Collection[str]
    own: list[bytes] = field(default_factory=list)
    _listener: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        """Relay kubectl's standard error in a thread of its own."""
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def hold(self, stdin: bytes) -> tuple[int, str]:
        """Wait until the command has ended; return its exit status, and kubectl's own error output."""
        self._listener.start()
        self._give(b"%d\n" % len(stdin) + stdin)
        with live.stopping(argparse.Namespace(quiet=True), self._interrupt):
            self._receive()
            status = self.process.wait()
        self.end()
        return status, b"".join(self.own).decode(errors="replace")

    def end(self) -> None:
        """Wait until all error output of an ended kubectl has been read."""
        self._listener.join(_PATIENCE)

    def _give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # kubectl has ended, and prints why
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def _interrupt(self) -> None:
        """Ask the remote end to end; see :mod:`spatialstream.cli.pod_session`."""
        assert self.process.stdin is not None
        with suppress(OSError):
            os.write(self.process.stdin.fileno(), b"\n")

    def _receive(self) -> None:
        """Relay lines, and write files."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if not line.startswith(MARK):
                sys.stdout.write(line.decode(errors="replace"))
                sys.stdout.flush()
                continue
            head = json.loads(line[len(MARK) :])
            content = self.process.stdout.read(head["bytes"])
            if head["file"] not in self.files or len(content) != head["bytes"]:
                raise RunError(f"the pod sent an unexpected or incomplete file: {head['file']}")
            write_here(Path(head["file"]), content)

    def _listen(self) -> None:
        """Relay the command's messages, and collect kubectl's own."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if _OWN.match(line):
                self.own.append(line)
            elif not _EXIT.match(line):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
        self.process.stderr.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End kubectl if it still runs, which ends the command in the pod too."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ----------------------------------------------------------------------------------------------------------- streams


def resource(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Read a SpatialStream.

    Raises:
        SettingError: there is none of this name.
    """
    record = kubectl.read("get", RESOURCE, name, "--ignore-not-found")
    if record is None:
        others = kubectl.read("get", RESOURCE) or {}
        names = ", ".join(each["metadata"]["name"] for each in others.get("items", ())) or "none"
        raise SettingError("stream", f"there is no SpatialStream {name!r} in {kubectl.place}; it has: {names}")
    return dict(record)


def space_and_rule(spec: Mapping[str, Any], space: Space | None) -> tuple[Space, TermRule]:
    """The space of a SpatialStream, unless another one is given, and its term rule."""
    terms = spec.get("terms", {})
    words = frozenset(term for word in terms.get("stopWords", ()) for term in extract_terms(word))
    properties = Properties.parse(f"{name}:{kind}" for name, kind in sorted(spec.get("properties", {}).items()))
    return space or Space.parse(spec.get("space", "wgs84")), TermRule(
        words,
        terms.get("minLength", 1),
        terms.get("queryWords", QUERY_WORDS),
        terms.get("polygonVertices", POLYGON_VERTICES),
        terms.get("ranking", False),
        properties,
        tuple(spec.get("fields", ())),
        spec.get("serves", EVERYTHING),
        terms.get("counts", False),
    )


def running(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's driver container runs, so that a command can run in it."""
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"] or status.get("phase") != "Running":
        return False
    return any(
        each["name"] == _CONTAINER and "running" in each.get("state", {})
        for each in status.get("containerStatuses", ())
    )


def driver_pod(kubectl: Kubectl, name: str, first: str = "router") -> str:
    """Find a pod of a stream in which commands can run: the router's, or else the worker's.

    Args:
        kubectl: how to reach the cluster.
        name: name of the SpatialStream.
        first: the job whose pod is preferred.

    Raises:
        SettingError: there is no such SpatialStream.
        RunError: neither of its drivers runs.
    """
    pod_names = sorted((f"{name}-router", f"{name}-worker"), key=lambda each: not each.endswith(first))
    response = kubectl.read("get", "pods", *pod_names, "--ignore-not-found") or {}
    pods = {pod["metadata"]["name"]: pod for pod in response.get("items", [response] if "metadata" in response else [])}
    for each in pod_names:
        if each in pods and running(pods[each]):
            return each
    status = resource(kubectl, name).get("status", {})
    told = [each["message"] for each in status.get("conditions", ()) if each["type"] == "Ready" and each.get("message")]
    raise RunError(
        f"neither {pod_names[0]} nor {pod_names[1]} runs, and a command needs one of them to run in; "
        f"the stream is {status.get('phase', 'not reconciled yet by the operator')}"
        + "".join(f": {each}" for each in told)
    )


def again(options: argparse.Namespace, *names: str) -> list[str]:
    """Rebuild the arguments of some options, for the same command in a pod."""
    arguments: list[str] = []
    for name in names:
        value, option = getattr(options, name), f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif isinstance(value, list):
            arguments += [f"{option}={each}" for each in value]
        elif value is not None and value is not False:
            arguments += [option, str(value)]
    return arguments


def run_in_pod(
    options: argparse.Namespace, arguments: Sequence[str], stdin: bytes = b"", files: Collection[Path] = ()
) -> int:
    """Run this program's command in a pod of the stream ``options.stream``; see :meth:`Kubectl.execute`."""
    kubectl = Kubectl.of(options)
    pod = driver_pod(kubectl, options.stream)
    quiet = ["--quiet"] if options.quiet else []
    command = [options.command, *arguments, *quiet]
    return kubectl.execute(pod, command, stdin, [str(each) for each in files])
