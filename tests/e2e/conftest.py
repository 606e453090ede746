"""One installation of the platform for all tests of this folder, which follow one another.

Settings, by environment variables:

- ``KUBECONFIG``: the cluster;
- ``IMAGE_PREFIX``: goes before the images' names, as for ``make images``;
- ``E2E_STORAGE_CLASS``: of volumes; without it, and without a default class, a folder of the only node is used;
- ``E2E_KEEP``: leave everything standing at the end;
- ``E2E_LOSE_NODE`` and others: see :mod:`tests.e2e.test_nodes`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import spatialstream
from tests.e2e.kube import Kube
from tests.e2e.platform import Platform

ROOT = Path(__file__).resolve().parents[2]


_ENDED = pytest.StashKey[dict[Path, str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file tell one story: they run in the order in which they are written, and each may take long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.story)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What follows a failure is skipped: it would wait for what cannot come any more."""
    if failed := item.session.stash.setdefault(_ENDED, {}).get(item.path):
        pytest.skip(f"the story ended with {failed}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which test of a file has failed first."""
    report = yield
    if report.failed:
        item.session.stash.setdefault(_ENDED, {}).setdefault(item.path, item.name)
    return report


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Both charts, installed as a user would install them."""
    Kube.check()
    installed = Platform(
        ROOT,
        tmp_path_factory.mktemp("e2e"),
        spatialstream.__version__,
        os.environ.get("IMAGE_PREFIX", ""),
        os.environ.get("E2E_STORAGE_CLASS", ""),
    )
    installed.remove()
    keep = bool(os.environ.get("E2E_KEEP"))
    try:
        installed.install()
    except BaseException as error:
        try:
            if not keep:
                installed.remove()
        except AssertionError as after:  # shown with the failure that it follows from, not in place of it
            error.add_note(f"and then it could not be removed: {after}")
        raise
    yield installed
    if not keep:
        installed.remove()
