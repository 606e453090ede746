"""The JSON schemas say what the parsers accept."""

import pytest

from spatialstream.model import queries, schema
from spatialstream.records import decode


def test_the_schema_of_queries_knows_every_type_and_field():
    properties = schema.QUERY_JSON["properties"]
    assert properties["type"]["enum"] == [*queries.TYPES, "CANCEL"]
    assert list(properties) == list(decode.QUERY_FIELDS)
    required = {
        each["if"]["properties"]["type"]["const"]: set(each["then"]["required"]) for each in schema.QUERY_JSON["allOf"]
    }
    for kind in queries.TYPES:
        assert {"type", "id", "t"} | required[kind] == queries._FIELDS[kind] - queries._OPTIONAL - (
            {"window"} if kind == "CKQ" else set()
        )


@pytest.mark.parametrize("one", [schema.OBJECT_JSON, schema.QUERY_JSON, schema.RESULT_JSON, schema.REJECTED_JSON])
def test_schemas_are_of_one_draft_and_have_a_title(one):
    assert one["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert one["title"]
    assert set(one["required"]) <= one["properties"].keys()


def test_a_dead_letter_has_the_fields_of_its_schema():
    assert schema.REJECTED_JSON["required"] == ["source", *decode.REJECTED.names]
