"""Whose topics are whose."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream_operator.decisions.topics import Claim, conflict
from spatialstream_operator.names import INTERNAL_KINDS, TOPIC_KINDS, StreamNames

KAFKA = frozenset({"kafka.infra:9092"})


def claim(name="quakes", made=1, servers=KAFKA, **topics):
    names = StreamNames("geo", name)
    return Claim(names.stream, (str(made), name), servers, names.topics(topics))


FIRST = claim("first", 0)


def test_topics_of_its_own_are_nobody_elses():
    assert conflict(claim(), [FIRST, claim(), claim("third", 2)]) is None


@pytest.mark.parametrize("kind", TOPIC_KINDS)
@pytest.mark.parametrize("theirs", [*TOPIC_KINDS, *INTERNAL_KINDS])
def test_only_what_both_read_alike_may_be_shared(kind, theirs):
    found = conflict(claim(**{kind: f"geo.first.{theirs}"}), [FIRST])
    if kind == theirs and kind in ("objects", "queries", "areas"):
        assert found is None
    else:
        assert found == (kind, f"geo.first.{theirs} is the {theirs} topic of the stream geo.first")


def test_the_one_that_was_made_first_keeps_the_topic():
    mistaken = claim("mistaken", 0, objects="geo.quakes.blocks")
    assert conflict(mistaken, [claim()]) is None
    assert conflict(claim(), [mistaken])[0] == "blocks"


def test_a_stream_that_is_refused_holds_nothing():
    refused = claim("refused", 1, results="geo.first.objects", queries="t")
    third = claim("third", 2, rejected="t")
    assert conflict(third, [FIRST, refused]) is None
    assert conflict(third, [FIRST, replace(refused, begun=True)]) is not None


def test_one_that_has_begun_keeps_its_topics_whenever_it_was_made():
    same_second = replace(claim("zebra", 1), begun=True)
    ours = claim("aardvark", 1, queries="geo.zebra.objects")
    assert ours.made < same_second.made
    assert conflict(ours, [same_second, ours]) is not None
    assert conflict(ours, [replace(same_second, begun=False), ours]) is None


def test_another_kafka_has_other_topics():
    assert conflict(claim(queries="geo.first.objects", servers=frozenset({"other:9092"})), [FIRST]) is None
    both = KAFKA | {"kafka-2.infra:9092"}
    assert conflict(claim(queries="geo.first.objects", servers=both), [FIRST]) is not None


names = st.sampled_from(["geo.a.objects", "geo.b.queries", "t", "u", "v", "w"])


@given(st.lists(st.dictionaries(st.sampled_from(TOPIC_KINDS), names, max_size=2), min_size=2, max_size=4))
def test_of_streams_that_may_run_no_two_share_what_one_of_them_writes(given):
    running = []
    for number, topics in enumerate(given):
        try:
            each = claim("abcd"[number], number, **topics)
        except SettingError:  # two of its own kinds would share a topic
            continue
        if conflict(each, running) is None:
            running.append(each)
    for one, other in itertools.combinations(running, 2):
        for kind, topic in one.topics.items():
            theirs = [k for k, t in other.topics.items() if t == topic]
            assert theirs in ([], [kind])
            assert not theirs or kind in ("objects", "queries", "areas")
