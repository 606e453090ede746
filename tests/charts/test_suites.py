"""The suites of helm-unittest, the chart test tool, under `suites/`."""

import subprocess
from pathlib import Path

import pytest

from tests.charts.render import OPERATOR, tool

pytestmark = pytest.mark.gate

SUITES = sorted(Path(__file__).with_name("suites").glob("*_test.yaml"))


def test_suites_pass():
    done = subprocess.run(
        [tool("helm-unittest"), "--strict", "--file", "../../tests/charts/suites/*_test.yaml", OPERATOR],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Test Suites: {len(SUITES)} passed, {len(SUITES)} total" in done.stdout
