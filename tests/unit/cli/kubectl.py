"""A kubectl for tests: it records its calls, plays back answers, and runs commands "in a pod" as processes here."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """#!{python}
import json, subprocess, sys
from pathlib import Path

here = Path({folder!r})
words = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if "-i" in words and "exec" in words:
    status = subprocess.call([sys.executable, str(here / "far.py"), *words[words.index("--") + 1 :]])
    if status:
        print(f"command terminated with exit code {{status}}", file=sys.stderr)
    sys.exit(status)
for answer in json.loads((here / "answers").read_text()):
    if all(word in words for word in answer["to"]):
        sys.stdout.write(answer["out"])
        sys.stderr.write(answer["err"])
        sys.exit(answer["status"])
sys.exit("error: the test has no answer to " + " ".join(words))
"""


@dataclass
class Kubectl:
    """The fake in its folder, which is first on the PATH."""

    folder: Path

    @classmethod
    def install(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        (folder / "answers").write_text("[]")
        (folder / "calls").touch()
        monkeypatch.setenv("PATH", str(folder))
        return cls(folder)

    def answer(self, *words: str, out: Any = "", err: str = "", status: int = 0) -> None:
        """Answer calls that have all these words so; the first answer that fits counts."""
        answers = json.loads((self.folder / "answers").read_text())
        text = out if isinstance(out, str) else json.dumps(out)
        answers.append({"to": words, "out": text, "err": err, "status": status or int(bool(err))})
        (self.folder / "answers").write_text(json.dumps(answers))

    def in_pod(self, program: str) -> None:
        """What runs in place of ``spatialstream`` in a pod: a Python program, its arguments as there."""
        (self.folder / "far.py").write_text(program)

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of all calls."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


def driver(name: str, state: str = "running", phase: str = "Running", **metadata: str) -> dict[str, Any]:
    """A driver's pod."""
    containers = [{"name": "driver", "state": {state: {}}}]
    return {
        "metadata": {"name": name, **metadata},
        "status": {"phase": phase, "containerStatuses": containers},
    }


def items(*each: dict[str, Any]) -> dict[str, Any]:
    """A list, as kubectl prints it."""
    return {"kind": "List", "items": list(each)}


def stream(name: str = "quakes", spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A SpatialStream."""
    metadata = {"name": name, "namespace": "geo", "generation": 2, "creationTimestamp": "2026-11-21T12:00:00Z"}
    return {"metadata": metadata, "spec": spec or {}, "status": {"observedGeneration": 2, **status}}
