"""Which query a resource asks for, and what is sent of it."""

import pytest

from spatialstream_operator.decisions.registration import (
    Registration,
    Wish,
    hindrance,
    next_registration,
    registrations,
)

SPEC = {"stream": "quakes", "type": "CTQ", "region": {"box": [0, 0, 1, 1]}, "k": 3, "window": "1h", "step": "1m"}
WISH = Wish.of("geo", "words", SPEC)


def test_the_id_is_that_of_what_is_asked_and_of_nothing_else():
    same = Wish.of("geo", "words", dict(reversed(SPEC.items())) | {"any": None})
    assert same == WISH
    assert WISH.id.startswith("geo.words.")
    assert WISH.record == {"id": WISH.id} | {name: value for name, value in SPEC.items() if name != "stream"}
    others = [Wish.of("geo", "words", SPEC | {"k": 4}), Wish.of("geo", "other", SPEC), Wish.of("lab", "words", SPEC)]
    assert len({each.id for each in (WISH, *others)}) == 4
    assert Wish.of("geo", "words", SPEC | {"stream": "ships"}).id == WISH.id


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({"duration": "1m"}, 60_005),
        ({"duration": 7}, 12),
        ({}, 5 + 60_000 * 10_000_000),  # the most steps that it may have
        ({"duration": "soon"}, None),
    ],
)
def test_when_it_ends_by_itself(change, end):
    assert Wish.of("geo", "words", SPEC | change).end(5) == end


def test_what_was_not_taken_in_is_sent_as_it_was_and_all_else_anew():
    sent, confirmed = Registration(WISH.id, 100), Registration(WISH.id, 100, confirmed=True)
    assert next_registration(WISH, None, 500, same_stream=True) == Registration(WISH.id, 500)
    assert next_registration(WISH, sent, 500, same_stream=False) == sent
    assert next_registration(WISH, confirmed, 500, same_stream=True) == Registration(WISH.id, 500)
    short = Wish.of("geo", "words", SPEC | {"duration": "100ms"})
    for clock, same_stream, ended in ((199, True, False), (200, True, True), (200, False, False)):
        found = next_registration(short, Registration(short.id, 100, confirmed=True), clock, same_stream)
        assert (found is None) == ended


def test_a_status_is_read_with_tolerance():
    kept = [Registration("a", -5, confirmed=True), Registration("b", 7)]
    assert registrations({"registrations": [each.to_status() for each in kept]}) == kept
    assert registrations({"registrations": "none"}) == []
    assert registrations({"registrations": [None, {"query": "a"}, {"query": 3, "t": 5}, {"t": 5}]}) == []


@pytest.mark.parametrize("registered", [True, False])
def test_a_query_that_cannot_be_asked_for_is_unknown_if_it_was_registered(registered):
    stream = {"metadata": {}, "spec": {}}
    rest = "Unknown" if registered else "False"
    assert hindrance("quakes", stream, gateway=True, registered=registered) is None
    for found, status, reason in (
        (hindrance("quakes", None, gateway=True, registered=registered), "False", "NoStream"),
        (hindrance("quakes", {"metadata": {"deletionTimestamp": "x"}}, True, registered), "False", "StreamDeleted"),
        (hindrance("quakes", stream | {"spec": {"suspend": True}}, True, registered), rest, "StreamSuspended"),
        (hindrance("quakes", stream, gateway=False, registered=registered), rest, "NoGateway"),
    ):
        assert found is not None
        assert (found.status, found.reason) == (status, reason)
