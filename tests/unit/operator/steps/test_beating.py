from itertools import pairwise

from spatialstream_operator.decisions.records import moment_text
from spatialstream_operator.steps.beating import EVERY, heartbeat
from tests.unit.operator.simulated import START


def test_it_is_written_once_a_minute_and_no_more():
    status, written = {}, []
    for now in range(START + 700, START + 3_600_000, 5_000):
        if due := heartbeat(status, now):
            status |= due
            written.append(now)
            assert status["lastSeen"] == moment_text(now // 1000 * 1000)
    gaps = [later - sooner for sooner, later in pairwise(written)]
    assert EVERY <= min(gaps) <= max(gaps) <= EVERY + 5_000
    assert written[0] == START + 700


def test_a_time_to_come_or_none_at_all_is_put_right():
    for known in (moment_text(START + 3_600_000), "soon", 7, None):
        assert heartbeat({"lastSeen": known}, START) == {"lastSeen": moment_text(START)}
