"""Every row of a live stream is the oracle's: in any interleaving of router, worker and rebalancer, with crashes before
each of their steps, repeated micro-batches, lost answers of the routing store, and any change of versions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages.division import buckets_of, parts_of
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples, portions
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, random_stream, streams


def in_order(stream: Stream) -> Stream:
    return Stream(
        stream.space, sorted(stream.objects, key=lambda o: o.t), sorted(stream.queries, key=lambda query: query.t)
    )


def simulated(
    stream: Stream,
    seed: int,
    chaos: float,
    rebalances: float,
    disturbances: float,
    mergers: int | None = None,
    **given: Any,
) -> Simulation:
    setup = StreamSettings(
        "s",
        slots=given.pop("slots", 1 + seed % 5),
        space=stream.space,
        partitions=1 + seed % 3,
        mergers=mergers or [1, 2, 5][seed // 5 % 3],
        idle=IDLE,
        epoch_records=[5, 40, 1_000_000][seed % 3],
        rule=stream.rule,
    )
    with tempfile.TemporaryDirectory() as folder:
        given |= {"chaos": chaos}
        simulation = Simulation(Path(folder), stream.space, stream.objects, stream.queries, setup, seed, **given)
        simulation.run(rebalances, disturbances)
    return simulation


def differences(stream: Stream, simulation: Simulation) -> list[str]:
    expected, refused = answers(stream.objects, stream.queries, stream.space)
    found = [str(each) for each in check(simulation.rows(), expected, 5)]
    if simulation.refused() != sorted(place for place, _ in refused):
        found.append(f"rejected {simulation.refused()}, expected {refused}")
    return found


@portions(2)
@settings(max_examples=examples(3, 50), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]))
def test_while_versions_change(portion: int, seed: int, space: object) -> None:
    stream = in_order(random_stream(seed, 200, 40, space, types=TYPES, where=0.3))
    simulation = simulated(stream, seed, chaos=0.0, rebalances=0.5, disturbances=0.0)
    assert differences(stream, simulation) == []


@portions(4)
@settings(max_examples=examples(3, 25), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
@example(17257)  # the last epoch is announced again after its round
def test_while_everything_fails(portion: int, seed: int) -> None:
    stream = in_order(random_stream(seed, 200, 40, [WGS84, PLANE][seed % 2], types=TYPES, where=0.3))
    simulation = simulated(stream, seed, chaos=0.01, rebalances=0.4, disturbances=0.05)
    assert differences(stream, simulation) == []


@portions(3)
@settings(max_examples=examples(15, 100), suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), st.integers(0, 10**6))
def test_with_ties_and_borders(portion: int, stream: Stream, seed: int) -> None:
    stream = in_order(stream)
    simulation = simulated(stream, seed, chaos=0.005, rebalances=0.5, disturbances=0.05)
    assert differences(stream, simulation) == []


def by_query(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["query"], []).append(row)
    return found


@portions(2)
@settings(max_examples=examples(3, 50), suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), st.integers(0, 10**6), st.sampled_from([2, 3, 7, 64]))
def test_each_query_has_the_rows_that_it_has_with_one_merger_in_one_partition(
    portion: int, stream: Stream, seed: int, mergers: int
) -> None:
    """For any cut, slots, versions and crashes: they are others with each number of mergers."""
    stream = in_order(stream)
    given_ = [simulated(stream, seed, 0.005, 0.3, 0.02, each) for each in (1, mergers)]
    one, several = ([by_query(given.rows_of(part)) for part in range(len(given.results))] for given in given_)
    owners = [name for part in several for name in part]
    assert len(owners) == len(set(owners))
    found = {name: rows for part in several for name, rows in part.items()}
    assert found.keys() == one[0].keys()
    for name, rows in found.items():
        kinds = {row["type"] for row in rows}
        # a second phase of a round comes after its other rows, and which round that is depends on the cut
        ordered = rows if len(kinds) == 1 else sorted(rows, key=str)
        assert ordered == (one[0][name] if len(kinds) == 1 else sorted(one[0][name], key=str))
    parts = parts_of(buckets_of(pa.array(sorted(found), pa.string())), mergers).tolist()
    assert [sorted(found)[i] in several[part] for i, part in enumerate(parts)] == [True] * len(parts)


def test_files_of_failed_tries_are_removed_and_no_others(tmp_path: Path) -> None:
    stream = in_order(random_stream(1, 50, 2, WGS84))
    setup = StreamSettings("t", slots=2, space=WGS84, partitions=1, idle=IDLE)
    simulation = Simulation(tmp_path, WGS84, stream.objects, stream.queries, setup, 1, chaos=0.0)
    simulation.run(0.0, 0.0)
    router = simulation.router
    assert router is not None
    assert router.last is not None
    epoch, folder = router.last.epoch.number, tmp_path / "input"
    named = {folder / run.name for run in router.last.epoch.runs}
    late, coming = (folder / f"{number:09d}-objects-0000-0000-other.arrow" for number in (epoch, epoch + 1))
    for path in (*named, late, coming):  # the epoch to come may be at work
        path.touch()
    router.tidy()
    assert {path for path in (*named, late, coming) if path.exists()} == {*named, coming}


def test_the_simulation_does_what_it_is_for() -> None:
    """Versions are adopted several times, processes die at many steps, messages are repeated, turns done again."""
    stream = in_order(random_stream(27, 300, 40, WGS84))
    simulation = simulated(stream, 27, chaos=0.01, rebalances=0.5, disturbances=0.02)
    assert len(simulation.store.state().bindings) >= 4
    assert simulation.rebuilt >= 2
    assert simulation.crashes >= 10
    assert simulation.again >= 10
    sent = [message for log in simulation.results for message in log.read(*log.bounds)]
    assert len({key for key, _ in sent}) < len(sent)
    assert differences(stream, simulation) == []


@pytest.mark.parametrize("victim", ["router", "worker"])
def test_a_version_is_adopted_although_a_job_dies_and_no_more_input_comes(tmp_path: Path, victim: str) -> None:
    stream = in_order(random_stream(3, 60, 5, PLANE))
    setup = StreamSettings("s", slots=3, space=PLANE, idle=IDLE)
    simulation = Simulation(tmp_path, PLANE, stream.objects, stream.queries, setup, 3)
    simulation.run(rebalances=0.0, disturbances=0.0)
    for number in (1, 2):
        simulation.store.publish(simulation.version(number), number - 1, f"p{number}", {})
        for _ in range(10):  # wherever the protocol is, a process dies before it could tell the store
            simulation.run_router()
            simulation.views[1].reachable = False
            simulation.run_worker()
            setattr(simulation, victim, None)
            simulation.views[1].reachable = True
            simulation.run_worker()
        assert simulation.store.state().active.number == number
    assert differences(stream, simulation) == []


@pytest.mark.parametrize("name", ["quakes", "geo.quakes", "a_b-C.9", "_", "x" * 200])
def test_names_of_streams(name: str) -> None:
    StreamSettings(name, slots=1).validate()


@pytest.mark.parametrize("name", ["", ".quakes", "..", "a b", "a/b", "s\u00e9isme", "1\u00b2", "quakes\n", "x" * 201])
def test_a_name_that_a_server_would_refuse_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(SettingError, match=r"stream: "):
        StreamSettings(name, slots=1).validate()
