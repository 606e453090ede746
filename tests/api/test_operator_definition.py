"""The definition of the custom resource goes, with the streams that there are, and comes again."""

import pytest

from tests.api.client import RefusalError, eventually
from tests.api.resources import streams

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/spatialstreams.spatialstream.dev"


def comes(api, definition):
    """Install it, and wait until streams can be made."""
    api.apply(definition)

    def listed():
        try:
            return api.find(streams("default"))
        except RefusalError:
            return None

    eventually(listed, "the definition is there")


def goes(api):
    """Wait until it is gone."""
    eventually(lambda: api.find(DEFINITION) is None, "the definition is gone, and all streams with it")


@pytest.fixture
def stream(operator, api, definition, played):
    """A stream that runs, and may go without removing what it has made; in the end the definition is there again."""
    made = played()
    made.runs("router")
    made.annotate(skip_cleanup="true")
    yield made
    comes(api, definition)


def test_streams_go_with_it_and_others_are_looked_after_when_it_has_come_again(api, definition, stream, played):
    api.delete(DEFINITION)

    goes(api)
    stream.ends("router")
    comes(api, definition)
    played("again").runs("router")


def test_an_operator_that_comes_while_it_goes_lets_the_streams_go(process, api, stream):
    process.kill()
    api.delete(DEFINITION)
    eventually(lambda: "deletionTimestamp" in stream.body["metadata"], "the stream is told to end")

    process.start()

    goes(api)
    stream.ends("router")
