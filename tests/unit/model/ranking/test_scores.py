"""The scores of ranked queries: the paper's example, and the kernels against the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.ranking.powers import POWERS, STEPS
from spatialstream.model.ranking.scores import (
    LONGEST_HALF_LIFE,
    LONGEST_LIFE,
    continuous_key,
    continuous_score,
    decayed_score,
    growth,
    interval_score,
    recency,
    spatial_score,
    textual_score,
)
from spatialstream.model.ranking.weights import UNIT, weight, weights
from spatialstream.oracle import ranking as oracle
from tests.unit.model.ranking.table2 import (
    AGE,
    ALPHA,
    ASKED,
    DOCUMENTS,
    FREQUENCY_OF_STEAK,
    HALF_LIFE,
    RADIUS,
    RANKING,
    WORDS,
)

CORPUS = oracle.Corpus.of(WORDS.values())
CORRECTED = oracle.Corpus(
    CORPUS.objects, CORPUS.frequency - oracle.Counter(steak=CORPUS.frequency["steak"] - FREQUENCY_OF_STEAK)
)

probabilities = st.floats(0.0, 1.0, allow_subnormal=False)
sums = st.integers(0, 2**56)


def score(number: int, corpus: oracle.Corpus) -> float:
    """R of a document of Table 1, by the kernels."""
    weight_of = {word: corpus.weight(word) for word in {*WORDS[number], *ASKED}}
    own, asked = (sum(weight_of[word] ** 2 for word in words) for words in (WORDS[number], ASKED))
    textual = textual_score(sum(weight_of[word] ** 2 for word in {*WORDS[number]} & {*ASKED}), own, asked)
    return decayed_score(ALPHA, spatial_score(DOCUMENTS[number][2], RADIUS), textual, growth(AGE[number], HALF_LIFE))


def score_of_oracle(number: int, corpus: oracle.Corpus) -> float:
    """R of a document of Table 1, by the oracle."""
    s = oracle.space_score(DOCUMENTS[number][2], RADIUS)
    t = oracle.text_score(WORDS[number], ASKED, corpus)
    return oracle.decayed(ALPHA, s, t, oracle.decay(AGE[number], HALF_LIFE))


def ranking(scores: dict[int, float]) -> dict[int, float]:
    """The five best of the documents that have a word of the query, as Table 2 has them."""
    found = {number: scores[number] for number, words in WORDS.items() if {*words} & {*ASKED}}
    return {number: round(found[number], 3) for number in sorted(found, key=lambda each: found[each])[:5]}


@pytest.mark.parametrize("of", [score, score_of_oracle])
def test_table_2_of_the_paper_comes_out_to_three_digits(of: object) -> None:
    assert callable(of)
    found = ranking({number: of(number, CORRECTED) for number in WORDS})
    assert list(found.items()) == list(RANKING.items())


def test_table_2_does_not_come_out_with_the_frequency_that_table_1_gives() -> None:
    found = ranking({number: score(number, CORPUS) for number in WORDS})
    assert found != RANKING
    assert [found[number] for number in RANKING] == [0.544, 0.652, 0.81, 0.931, 1.025]


def printed_space(d: float, r: float) -> float:
    """Eqn 2 as it is printed."""
    if d == 0.0:
        return 1.0
    if d <= r / 2.0:
        return 1.0 - 2.0 * ((d - r) / r) ** 2
    return 2.0 * (d / r) ** 2 if d < r else 0.0


def printed_text(number: int, corpus: oracle.Corpus) -> float:
    """Eqn 3 as it is printed: both norms over the words of the query."""
    asked = [corpus.weight(word) for word in ASKED]
    own = [corpus.weight(word) if word in WORDS[number] else 0 for word in ASKED]
    dot = sum(a * b for a, b in zip(own, asked, strict=True))
    return dot / (math.sqrt(sum(a * a for a in own)) * math.sqrt(sum(b * b for b in asked)))


@pytest.mark.parametrize("corpus", [CORPUS, CORRECTED])
@pytest.mark.parametrize("space", [printed_space, oracle.space_score])
@pytest.mark.parametrize("text", [printed_text, lambda number, corpus: oracle.text_score(WORDS[number], ASKED, corpus)])
def test_the_equations_as_printed_do_not_give_table_2(corpus: oracle.Corpus, space: object, text: object) -> None:
    assert callable(space)
    assert callable(text)
    if (space, corpus) == (oracle.space_score, CORRECTED) and text is not printed_text:
        return  # the corrections
    matching = [number for number, words in WORDS.items() if {*words} & {*ASKED}]
    scores = {
        number: oracle.decayed(
            ALPHA, space(DOCUMENTS[number][2], RADIUS), text(number, corpus), oracle.decay(AGE[number], HALF_LIFE)
        )
        for number in matching
    }
    assert {number: round(scores[number], 3) for number in RANKING} != RANKING


def test_a_query_of_one_word_would_not_rank_by_text_if_the_norm_were_as_printed() -> None:
    corpus, dot = CORRECTED, CORRECTED.weight("steak") ** 2
    assert [textual_score(dot, dot, dot) for number in RANKING] == [1.0] * 5
    assert len({oracle.text_score(WORDS[number], ["steak"], corpus) for number in RANKING}) > 1


def test_powers_of_two_are_those_of_the_library_but_for_its_last_bit() -> None:
    expected = 2.0 ** (np.arange(STEPS) / STEPS)
    assert len(POWERS) == STEPS
    assert np.abs(POWERS - expected).max() <= np.spacing(1.0)
    assert (np.diff(POWERS) > 0.0).all()
    assert (POWERS[0], POWERS[STEPS // 2]) == (1.0, math.sqrt(2.0))


@given(st.integers(0, 2**55), st.integers(1, LONGEST_HALF_LIFE))
def test_growth_is_that_of_the_oracle(age: int, half_life: int) -> None:
    grown = growth(age, half_life)
    assert grown == oracle.decay(age, half_life)
    assert grown == pytest.approx(2.0 ** min(age / half_life, 64.0), rel=2e-4)


def test_growth_is_exact_at_whole_half_lives_and_ends_at_64() -> None:
    assert [growth(n * 1_000, 1_000) for n in (0, 1, 10)] == [1.0, 2.0, 1024.0]
    assert growth(64_000, 1_000) == growth(2**54, 1_000) == growth(2**54, 1) == 2.0**64
    assert growth(63_999, 1_000) < 2.0**64
    assert growth(LONGEST_HALF_LIFE - 1, LONGEST_HALF_LIFE) == POWERS[-1]


@given(st.floats(0.0, 3e7), st.floats(1e-3, 3e7))
def test_the_spatial_score_is_that_of_the_oracle_and_falls_with_the_distance(distance: float, radius: float) -> None:
    found = spatial_score(distance, radius)
    assert found == oracle.space_score(distance, radius)
    assert 0.0 <= found <= 1.0
    assert spatial_score(distance * 1.5, radius) <= found


def test_the_spatial_score_is_1_at_the_point_half_at_half_the_radius_and_0_at_the_radius() -> None:
    assert [spatial_score(d, 500.0) for d in (0.0, 250.0, 500.0, 694.0)] == [1.0, 0.5, 0.0, 0.0]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(30, 60), st.data())
def test_the_textual_score_is_that_of_the_oracle(frequencies: list[int], objects: int, data: st.DataObject) -> None:
    corpus = oracle.Corpus(objects, oracle.Counter({str(i): n for i, n in enumerate(frequencies)}))
    words = st.lists(st.integers(0, 7).map(str), max_size=8, unique=True)
    text, asked = data.draw(words), data.draw(words)
    of = {word: weight(objects, max(1, corpus.frequency[word])) for word in {*text, *asked}}
    dot = sum(of[word] ** 2 for word in {*text} & {*asked})
    found = textual_score(dot, sum(of[word] ** 2 for word in text), sum(of[word] ** 2 for word in asked))
    assert found == oracle.text_score(text, asked, corpus)
    static = textual_score(
        sum(of[word] for word in {*text} & {*asked}), len(text), sum(of[word] ** 2 for word in asked)
    )
    assert static == oracle.text_score(text, asked, corpus, static=True)


def test_the_textual_score_is_1_without_weights_and_never_more() -> None:
    assert [textual_score(0, 0, 5), textual_score(0, 5, 0), textual_score(0, 5, 5)] == [1.0, 1.0, 0.0]
    assert textual_score(3, 3, 3) == 1.0
    assert textual_score(2**56, 2**56, 2**56) == 1.0


@given(probabilities, probabilities, probabilities, st.integers(0, 2**40), st.integers(1, 2**34))
def test_the_decayed_score_is_that_of_the_oracle(alpha: float, s: float, t: float, age: int, half_life: int) -> None:
    grown = growth(age, half_life)
    assert decayed_score(alpha, s, t, grown) == oracle.decayed(alpha, s, t, grown)


@given(probabilities, probabilities, probabilities, st.integers(0, 1_000))
def test_the_score_of_an_interval_is_that_of_the_oracle(first: float, s: float, t: float, at: int) -> None:
    shares = (first, (1.0 - first) / 2.0, (1.0 - first) / 2.0)
    recent = recency(at, 0, 1_000)
    assert recent == 1.0 - at / 1_000
    assert interval_score(shares, s, recent, t) == oracle.over_interval(shares, s, recent, t)


@given(probabilities, probabilities, probabilities)
def test_the_continuous_score_is_that_of_the_oracle(alpha: float, s: float, t: float) -> None:
    assert continuous_score(alpha, s, t) == oracle.forward(alpha, s, t)


halves = st.integers(1, LONGEST_HALF_LIFE) | st.integers(1, 100) | st.just(LONGEST_HALF_LIFE)


@given(
    st.lists(st.tuples(probabilities | st.sampled_from([0.0, 2.0**-64, 2.0**-65, 1.0]), st.floats(0, 1)), max_size=6),
    halves,
)
def test_keys_are_ordered_as_the_oracle_orders_and_no_bit_is_lost(
    given_: list[tuple[float, float]], half_life: int
) -> None:
    last = min(LONGEST_LIFE * half_life, 2**62) - 1
    made = [(a, round(share * last)) for a, share in given_] + [(0.0, 0), (1.0, last)]
    keys = [continuous_key(a, age, half_life) for a, age in made]
    assert all(key == int(key) and 0 <= key < 2**53 for key in keys)
    ranks = [oracle.forward_order(a, age, half_life) for a, age in made]
    for one, rank in zip(keys, ranks, strict=True):
        assert [one < other for other in keys] == [rank < other for other in ranks]
        assert [one == other for other in keys] == [rank == other for other in ranks]


def test_a_half_life_is_one_in_the_exponent() -> None:
    assert continuous_key(0.0, 0, 7) == continuous_key(2.0**-64, 0, 7) == continuous_key(1e-300, 6, 28_673) == 0.0
    assert continuous_key(1.0, 0, 7) == 64 * 2**36
    assert continuous_key(0.5, 7, 7) == continuous_key(1.0, 0, 7)
    assert continuous_key(0.75, 14, 7) == 65 * 2**36 + 2**35
    assert continuous_key(1.0, LONGEST_LIFE * 7 - 7, 7) == (64 + 65_535) * 2**36


def test_weights_are_rounded_logarithms_and_those_of_words_in_all_objects_are_0() -> None:
    assert [weight(10, 10), weight(0, 1), weight(1, 1)] == [0, 0, 0]
    assert weight(1_000_000, 1) == round(math.log(1e6) * UNIT)
    assert weights(1_000, np.array([1, 7, 1, 1_000])).tolist() == [weight(1_000, each) for each in (1, 7, 1, 1_000)]
    assert weights(5, np.empty(0, np.int64)).tolist() == []


@given(st.lists(st.floats(0.0, 50.0), max_size=12), st.integers(1, 5), st.integers(1, 6))
def test_the_disk_is_the_smallest_with_enough_candidates(distances: list[float], k: int, expansions: int) -> None:
    radius = oracle.reached(distances, k, 7.0, expansions)
    inside = sum(d <= radius for d in distances)
    assert radius / 7.0 in range(1, expansions + 1)
    assert inside >= k or radius == expansions * 7.0
    assert radius == 7.0 or sum(d <= radius - 7.0 for d in distances) < k
