"""The choice among the strategies that are left, against the library's own among all."""

import pytest

from spatialstream.balance.explanation import explanation
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.model.errors import SettingError
from spatialstream_operator.decisions.choosing import choose
from spatialstream_operator.decisions.rebalancing_inputs import ProposalView
from tests.unit.balance.test_proposal import hot_a_grid, skewed

SETTINGS = BalanceSettings(imbalance=3.0)
PM_IS_ENOUGH = skewed([10.0] * 16, [0] * 10 + [1] * 5 + [2], 3)


def test_with_all_strategies_it_is_the_library_s():
    assert choose(*PM_IS_ENOUGH, SETTINGS).id == propose(*PM_IS_ENOUGH, SETTINGS).id


@pytest.mark.parametrize("left", [("FM", "FG"), ("FG",)])
def test_the_first_that_is_left_and_is_enough(left):
    proposal = choose(*PM_IS_ENOUGH, SETTINGS, left, number=9)
    assert proposal.strategy == left[0]
    assert proposal.version.number == 9
    assert proposal.balanced


@pytest.mark.parametrize("left", [("SM", "SH"), ("FG", "SH", "rebuild")])
def test_of_an_a_grid_the_first_of_its_own_that_is_left(left):
    *case, sample = hot_a_grid()
    proposal = choose(*case, BalanceSettings(), left, sample=sample)
    assert proposal.strategy == ("SM" if "SM" in left else "SH")
    assert ProposalView.from_status(ProposalView.of(proposal.to_record()).to_status()).strategy == proposal.strategy


def test_nothing_where_nothing_is_needed():
    assert choose(*skewed([10.0] * 16, [0, 1] * 8, 2), SETTINGS, ("FM", "FG")) is None


def test_nothing_where_nothing_helps():
    assert choose(*skewed([1000.0] + [0.0] * 15, [0] + [1] * 15, 2), SETTINGS, ("FM",)) is None


def test_the_closest_where_nothing_is_enough():
    case = skewed([1000.0] + [10.0] * 15, [0] * 15 + [1], 2)
    proposal = choose(*case, SETTINGS, ("FM",))
    assert not proposal.balanced
    assert proposal.imbalance_after < proposal.imbalance_before
    assert "comes closest" in proposal.note


def test_a_strategy_that_does_not_exist():
    with pytest.raises(SettingError, match="ZZ"):
        choose(*PM_IS_ENOUGH, SETTINGS, ("ZZ",))


def test_what_the_status_shows_of_it():
    proposal = choose(*PM_IS_ENOUGH, SETTINGS)
    view = ProposalView.of(proposal.to_record(), explanation(proposal))
    assert (view.id, view.base, view.strategy, view.heaviest) == (proposal.id, 3, "PM", 0)
    assert view.before == pytest.approx(proposal.imbalance_before, abs=0.01)
    assert ProposalView.from_status(view.to_status()) == view
