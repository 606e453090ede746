"""Settings for all tests."""

import os
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from spatialstream.kernels import compile_kernels
from spatialstream.model import hashing

# Deadlines and the check for slow generation measure the machine and its other work, not the code.
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

# The same cases in every run, so that a change is what breaks a test; as they are the same, few of them do.
settings.register_profile("ci", max_examples=40, derandomize=True, print_blob=True, **UNHURRIED)
# New cases in every run, and more of them: HYPOTHESIS_PROFILE=explore, as `make test-all` does. A failed case is not
# made smaller there: most are seeds, which do not get simpler, and a try may be a whole stream. It is said as it is.
FOUND = [phase for phase in Phase if phase not in {Phase.shrink, Phase.explain}]
settings.register_profile("explore", max_examples=500, print_blob=True, phases=FOUND, **UNHURRIED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Compile before the first test, so that no test waits for the compiler in the middle of a stream."""
    compile_kernels()


@pytest.fixture
def become_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have tables seeded as those of the process of a number are, for what must not depend on the process."""

    def become(number: int) -> None:
        monkeypatch.setattr(hashing, "_PROCESS_SEED", hashing.seed_of(np.array([number])))

    return become
