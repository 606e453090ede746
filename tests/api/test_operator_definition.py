"""The definitions of the custom resources go, with the streams and queries that there are, and come again."""

from pathlib import Path

import pytest
import yaml

from tests.api.client import RefusalError, eventually
from tests.api.resources import streams
from tests.api.test_queries import CRQ, queries, wanted

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STREAMS, QUERIES = (f"{DEFINITIONS}/{name}.spatialstream.dev" for name in ("spatialstreams", "spatialqueries"))
FILES = Path(__file__).parents[2] / "charts/spatialstream/files"


def come(api):
    """Install them, and wait until streams and queries can be made."""
    for name in ("crd", "query-crd"):
        api.apply(yaml.safe_load((FILES / f"{name}.yaml").read_text()))

    def listed():
        try:
            return api.find(streams("default")) and api.find(queries(space="default"))
        except RefusalError:
            return None

    eventually(listed, "the definitions are there")


def goes(api, path):
    """Wait until one is gone."""
    eventually(lambda: api.find(path) is None, "the definition is gone, and all that it defines with it")


@pytest.fixture
def stream(operator, api, played):
    """A stream that runs, and may go without removing what it has made; in the end the definitions are there again."""
    made = played()
    made.runs("router")
    made.annotate(skip_cleanup="true")
    yield made
    come(api)


def test_streams_go_with_it_and_others_are_looked_after_when_it_has_come_again(api, stream, played):
    api.delete(STREAMS)

    goes(api, STREAMS)
    stream.ends("router")
    come(api)
    played("again").runs("router")


def test_an_operator_that_comes_while_they_go_lets_streams_and_queries_go(process, api, stream):
    query = queries("floods", stream.namespace)
    api.post(queries(space=stream.namespace), wanted("floods", CRQ, stream.namespace))
    eventually(lambda: api.get(query)["metadata"].get("finalizers"), "the query is looked after")
    process.kill()
    for path in (STREAMS, QUERIES):
        api.delete(path)
    for path in (stream.path, query):
        eventually(lambda path=path: "deletionTimestamp" in api.get(path)["metadata"], "it is told to end")

    process.start()

    for path in (STREAMS, QUERIES):
        goes(api, path)
    stream.ends("router")
