"""Whether there is still a Spark to do anything with, and how much it says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError

from spatialstream.model.errors import RunError
from spatialstream.spark import session as sessions
from spatialstream.spark.actor_launcher import SparkActorLauncher, stop_spark


def spark(*, ended: int | None = None, stopped: bool = False, answer: Exception | None = None) -> Any:
    """A session: its JVM has ended with a status, its context was stopped, or asking it fails."""
    context = MagicMock()
    context._gateway.proc.poll.return_value = ended
    context._jsc.sc.return_value.isStopped = MagicMock(return_value=stopped, side_effect=answer)
    return SimpleNamespace(sparkContext=context, stop=MagicMock())


LOST = {
    "the JVM has been killed": spark(ended=-9),
    "its context was stopped": spark(stopped=True),
    "its gateway is dead": spark(answer=Py4JNetworkError("Answer from Java side is empty")),
    "nobody listens": spark(answer=ConnectionRefusedError(111, "Connection refused")),
}


@pytest.mark.parametrize("session", LOST.values(), ids=LOST.keys())
def test_a_session_that_has_ended_is_noticed_and_not_stopped_again(session: Any) -> None:
    with pytest.raises(RunError, match="lost Spark"):
        SparkActorLauncher(session, 1).check()
    stop_spark(session)
    session.stop.assert_not_called()


def test_a_session_that_runs_is_stopped() -> None:
    running = spark()
    SparkActorLauncher(running, 1).check()
    stop_spark(running)
    running.stop.assert_called_once_with()


def test_what_keeps_spark_quiet_is_there() -> None:
    path = Path(sessions.quiet_logging().partition("file:")[2])
    assert "rootLogger" in path.read_text()
