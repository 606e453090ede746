"""The exceptions, which Spark carries between processes."""

import pickle

import pytest

from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError, StateError


@pytest.mark.parametrize("error", [RecordError("a.b", "is bad"), SettingError("slots", "is 0"), StateError("damaged")])
def test_exceptions_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert isinstance(copy, SpatialStreamError)
    assert str(copy) == str(error)
    assert copy.args == error.args


def test_exceptions_name_what_is_wrong():
    assert str(RecordError("a.b", "is bad")) == "a.b: is bad"
    assert str(SettingError("slots", "is 0")) == "slots: is 0"


def test_several_errors_of_a_record_are_one_of_the_first_ones_field():
    one = RecordError("a", "is wrong")
    assert str(RecordError.of([one])) == "a: is wrong"
    both = RecordError.of([one, RecordError("b", "is missing")])
    assert (both.field, str(both)) == ("a", "a: is wrong; b: is missing")
