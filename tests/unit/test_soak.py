"""The verdict of the soak benchmark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.benchmarks.bench_soak import Looks, Soak, figures, growth, limit, pod_row
from tests.benchmarks.pod import MemoryCgroup

GB = 1e9


def _made() -> Path | None:
    """Where this process may make memory cgroups; None: nowhere."""
    for folder in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")):
        with contextlib.suppress(OSError, ValueError), MemoryCgroup(folder / f"spatialstream-tried-{os.getpid()}"):
            return folder
    return None


CGROUPS = _made()


def test_what_came_before_the_retention_counts_for_nothing() -> None:
    times = [float(minute) for minute in range(60)]
    filling = [min(1.0, t / 10.0) for t in times]
    assert growth(times, filling, 12.5) == 0.0
    assert growth(times, filling, 0.0) > 0.05


def test_a_peak_is_no_growth_and_creeping_is() -> None:
    times = [float(minute) for minute in range(60)]
    assert abs(growth(times, [3.0 if t == 55 else 1.0 for t in times], 12.5)) < 1e-12
    assert growth(times, [1.0 + t / 100 for t in times], 12.5) > 0.05


def test_each_process_has_a_row_and_those_that_grow_say_so() -> None:
    looks = [(float(t), {"worker actor-0": 1e6 * (1 + t / 50), "state": 1e6}) for t in range(60)]
    rows = {row["name"]: row for row in figures(looks, Soak())}
    assert "flat" in rows["memory of state"]["note"]
    assert "GROWS by more than 5%" in rows["memory of worker actor-0"]["note"]


def test_a_time_in_which_nothing_can_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 minutes have to be more than 1\.25 times"):
        Soak(minutes=3.0)


def _looks(*gigabytes: float) -> Looks:
    """A look each five minutes at a worker of two processes, and at a router that uses as much as it did at first."""
    router = {"router driver": GB}
    return [
        (5.0 * n, {"worker driver": 0.5 * GB, "worker actor-0": (size - 0.5) * GB, "state": 9 * GB, **router})
        for n, size in enumerate(gigabytes)
    ]


def test_the_limit_is_a_quarter_more_than_all_processes_use_one_retention_after_the_start() -> None:
    looks = _looks(1.0, 2.0, 2.4, 9.9)
    assert limit(looks[:2], "worker", 10.0) is None
    assert limit(looks[:3], "worker", 10.0) == pytest.approx(3.0 * GB)
    assert limit(looks, "worker", 10.0) == pytest.approx(3.0 * GB)
    assert limit(looks, "router", 10.0) == pytest.approx(1.25 * GB)


def test_a_job_that_does_not_answer_at_that_time_is_limited_by_its_next_look() -> None:
    looks = _looks(1.0, 2.0, 2.4, 2.8)
    looks[2] = (looks[2][0], {})
    assert limit(looks, "worker", 10.0) == pytest.approx(3.5 * GB)


@pytest.mark.parametrize(
    ("gigabytes", "running", "kills", "says"),
    [
        ((1.0, 2.0, 2.4, 2.9), True, None, "3,000 MB: fits"),
        ((1.0, 2.0, 2.4, 2.9), True, 0, "3,000 MB: fits, and survives within it"),
        ((1.0, 2.0, 2.4, 3.1), True, None, "FAILS"),
        ((1.0, 3.1, 2.4, 2.4), True, None, "FAILS"),
        ((1.0, 2.0, 2.4, 2.9), True, 2, "FAILS: 2 killed"),
        ((1.0, 2.0, 2.4, 2.9), False, None, "FAILS: the job has ended"),
        ((1.0, 2.0), True, 0, "is not known: FAILS"),
        ((), True, None, "is not known: FAILS"),
    ],
)
def test_a_pod_has_to_stay_within_its_limit_from_its_start(
    gigabytes: tuple[float, ...], running: bool, kills: int | None, says: str
) -> None:
    row = pod_row(_looks(*gigabytes), Soak(), "worker", running, kills)
    assert row["note"].endswith(says)
    assert row["value"] == pytest.approx(1000.0 * max(gigabytes, default=0.0))


@pytest.mark.skipif(CGROUPS is None, reason="this process may not make cgroups")
def test_the_kernel_kills_what_exceeds_the_limit_of_a_cgroup_and_counts_it() -> None:
    grow = [sys.executable, "-c", "input(); data = b'x' * 200_000_000; print(len(data))"]
    with ExitStack() as stack:
        assert CGROUPS is not None
        outer = stack.enter_context(MemoryCgroup(CGROUPS / f"spatialstream-{os.getpid()}"))
        pod = stack.enter_context(MemoryCgroup(outer.folder / "worker"))
        unlimited = subprocess.run(pod.entered_by(grow), input="\n", capture_output=True, text=True)
        assert unlimited.stdout == "200000000\n"
        assert pod.kills() == 0
        pod.limit(100_000_000)
        assert subprocess.run(pod.entered_by(grow), input="\n", capture_output=True, text=True).returncode == -9
        assert pod.kills() == 1
    assert not outer.folder.exists()


def test_a_folder_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a cgroup with the memory controller"):
        MemoryCgroup(tmp_path / "soak")
