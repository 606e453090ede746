"""The JSON schemas say what the parsers accept."""

import pytest

from spatialstream.model import schema
from spatialstream.model.kinds import KINDS
from spatialstream.records import rejected


def test_the_fields_of_queries_are_those_of_every_type():
    named = {field for kind in KINDS for field in (*kind.required, *kind.optional)}
    assert {"id", "type", "t"} | named == set(schema.QUERY_FIELDS)
    assert schema.QUERY_FIELDS[:3] == ("id", "type", "t")


@pytest.mark.parametrize("one", [schema.OBJECT_JSON, schema.QUERY_JSON, schema.RESULT_JSON, schema.REJECTED_JSON])
def test_schemas_are_of_one_draft_and_have_a_title(one):
    assert one["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert one["title"]
    assert set(one["required"]) <= one["properties"].keys()


def test_a_dead_letter_has_the_fields_of_its_schema():
    assert schema.REJECTED_JSON["required"] == ["source", *rejected.REJECTED.names]
