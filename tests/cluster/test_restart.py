"""Both jobs are stopped while the stream goes on, and started again: they catch up without loss.

``SPATIALSTREAM_LOAD_SECONDS`` sets how long the stream is (default 30; ``make test-all`` gives 600).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from spatialstream.model.space import WGS84
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.lengths import AT_LENGTH
from tests.streams import random_stream

_SECONDS = int(os.environ.get("SPATIALSTREAM_LOAD_SECONDS", "30"))
_RATE = 250.0


@pytest.mark.gate
@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change a stream of tests/e2e is suspended and resumed")
@pytest.mark.timeout(1200 + 4 * _SECONDS)
def test_catches_up_after_a_restart(servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = random_stream(8, int(_RATE * _SECONDS), 10, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with LiveStream(servers, "restart", tmp_path, WGS84) as stream:
        sending = stream.send(objects, queries, _RATE)
        stream.await_rows(50)
        sending.join(_SECONDS / 3)
        assert stream.worker.stop(90.0), "the worker did not end by itself"
        assert stream.router.stop(90.0), "the router did not end by itself"
        sending.join(_SECONDS / 3)
        began = time.monotonic()
        stream.router.start(timeout=PATIENCE)
        stream.worker.start(timeout=PATIENCE)
        for job in (stream.router, stream.worker):  # while messages come
            assert f"{job.name}: the warm-up has failed" not in job.log.read_text()
        sending.join()
        assert differences(stream, objects, queries) == []
        with capsys.disabled():
            print(f"\ncaught up {time.monotonic() - began:.1f} s after the restart")
        assert stream.results.repeated == 0
