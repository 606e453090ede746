"""The quick start's own commands, twice over one stream, and no alert at the end.

What tests/quickstart.py leaves out or replaces is listed there with the reason: this cluster is not a new kind cluster,
and the platform is installed already.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.e2e.data import Story
from tests.e2e.kube import CommandError, run
from tests.e2e.platform import NAMESPACE, SYSTEM, Platform, Stream
from tests.lengths import AT_LENGTH
from tests.quickstart import adapted, skipped, steps

NAME = "quick"
SECONDS = 20
"""Of sending at a time, while the commands of two sections are followed."""

_INSTALL = ["A cluster with the images", "The operator, and what streams need"]
_TWICE = ["Send", "Ask", "Rebalance and scale"]
_ONCE = ["Over HTTP", "Break something"]


def follow(*sections: str) -> None:
    """Run the commands of sections, one after the other."""
    for step in steps():
        if step.section in sections and skipped(step) is None:
            call(adapted(step, stream=NAME, namespace=NAMESPACE, system=SYSTEM, seconds=5))


def call(words: list[str]) -> str:
    own = words[0] == "spatialstream"
    return run([sys.executable, "-m", *words] if own else words, timeout=400.0)


@contextmanager
def sending() -> Iterator[None]:
    """The generated stream of the page is sent from another terminal, again and again, however long it takes within."""
    load = next(step for step in steps() if "spatialstream load --now" in step.line)
    words = adapted(load, stream=NAME, namespace=NAMESPACE, system=SYSTEM, seconds=SECONDS)
    ended, failures = threading.Event(), list[CommandError]()

    def send() -> None:
        while not ended.is_set():
            try:
                call(words)
            except CommandError as error:
                failures.append(error)
                return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(300.0)
    assert not thread.is_alive()
    assert failures == []


@pytest.fixture
def laptop(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The folder in which commands are run: with the page's example, under this name and as small as others here."""
    stream = Stream(platform, NAME, Story(3, tmp_path))
    example = yaml.safe_load((platform.root / "examples/minimal.yaml").read_text("utf-8"))
    assert example["metadata"]["name"] == "quakes"
    example["metadata"]["name"] = NAME
    small = stream.manifest()["spec"]
    example["spec"] |= {"router": small["router"], "workers": small["workers"]}
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/minimal.yaml").write_text(json.dumps(example))
    then = time.time_ns() // 1_000_000 - 3_600_000
    lines = [{"id": f"own{i}", "t": then + i, "lon": i, "lat": 50, "text": "a b"} for i in range(100)]
    (tmp_path / "objects.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "KUBECONFIG" in os.environ:
        paths = os.environ["KUBECONFIG"].split(os.pathsep)
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(str(Path(path).expanduser().absolute()) for path in paths))
    monkeypatch.chdir(tmp_path)
    return stream


def test_the_quick_start_is_followed_and_nothing_alarms(laptop: Stream, platform: Platform) -> None:
    follow(*_INSTALL, "A stream")
    for _ in range(2 if AT_LENGTH else 1):  # who follows it again finds things there already
        follow(_TWICE[0])
        with sending():
            follow(*_TWICE[1:])
    follow(*_ONCE)
    laptop.wait_ready()

    rejected = platform.prometheus(f'{{__name__=~"spatialstream_(router|worker)_rejected_total",pod=~"{NAME}-.*"}}')
    assert [each for each in rejected if float(each["value"][1])] == []
    # the platform's own stream has been left in all kinds of trouble; imbalance alarms here after seconds
    alerts = platform.prometheus(
        f'ALERTS{{alertstate="firing",stream=~"{NAME}|",alertname!="SpatialStreamImbalanced"}}'
    )
    assert alerts == []
    follow("Remove it")
    assert laptop.kube.get("sps", NAME) is None


def test_every_section_is_followed() -> None:
    told = list(dict.fromkeys(step.section for step in steps()))
    assert sorted([*_INSTALL, "A stream", *_TWICE, *_ONCE, "Remove it"]) == sorted(told)
