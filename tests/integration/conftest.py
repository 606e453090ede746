from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spatialstream.kernels import compile_kernels
from spatialstream.spark.session import embedded_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    compile_kernels()
    session = embedded_session("tests", 2)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
