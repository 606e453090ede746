"""What the tests of charts share."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Nothing here needs the compiled kernels that the tests of the library wait for."""
