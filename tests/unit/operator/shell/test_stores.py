import asyncio
import base64

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.stores import Stores
from tests.unit.operator.shell.simulated import SimulatedCluster, refusal

SECRET = ("zk", "credentials")
NOWHERE = "127.0.0.1:1"


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.fixture
def cluster():
    return SimulatedCluster()


def keep(cluster, **data):
    cluster.put({"kind": "Secret", "metadata": {"name": "zk", "namespace": "geo"}, "data": data})


def opened(cluster, *calls):
    """The stores that calls with (servers, secret) give, which are closed again."""

    async def main():
        stores = Stores(cluster)
        try:
            return [await stores.of("geo.quakes", servers, "geo", secret) for servers, secret in calls]
        finally:
            await stores.close_all()

    return asyncio.run(main())


def test_a_stream_has_one_connection(cluster):
    one, same, other = opened(cluster, (NOWHERE, None), (NOWHERE, None), ("127.0.0.1:2", None))

    assert one is same
    assert one is not other


def test_other_credentials_make_another_connection(cluster):
    keep(cluster, credentials=encoded(b"user:pass:word\n"))
    one, same, other = opened(cluster, (NOWHERE, SECRET), (NOWHERE, SECRET), (NOWHERE, None))

    assert one is same
    assert one is not other


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "there is no Secret zk in the namespace geo"),
        ({}, "the Secret zk has no key credentials"),
        ({"other": encoded(b"user:password")}, "the Secret zk has no key credentials"),
        ({"credentials": encoded(b"user")}, "has to hold user:password"),
        ({"credentials": encoded(b":password")}, "has to hold user:password"),
        ({"credentials": encoded(b"user:\n")}, "has to hold user:password"),
        ({"credentials": encoded(b"\xff\xfe\xfd")}, "has to hold user:password"),
        ({"credentials": ""}, "has to hold user:password"),
    ],
)
def test_a_secret_that_is_not_as_it_should_be_is_told(cluster, data, why):
    if data is not None:
        keep(cluster, **data)

    with pytest.raises(SettingError, match=f"spec.zookeeper.credentialsSecret: .*{why}") as caught:
        opened(cluster, (NOWHERE, SECRET))

    assert "password" not in str(caught.value).replace("user:password", "")


def test_a_secret_that_may_not_be_read_is_told(cluster):
    async def fail(verb, kind):
        raise refusal(403, 'secrets "zk" is forbidden')

    cluster.before = fail

    with pytest.raises(SettingError, match="may not read the Secret zk"):
        opened(cluster, (NOWHERE, SECRET))


@pytest.mark.parametrize("error", [refusal(503), ClusterError("no route")])
def test_an_api_server_that_is_away_is_no_wrong_setting(cluster, error):
    async def fail(verb, kind):
        raise error

    cluster.before = fail

    with pytest.raises(ClusterError):
        opened(cluster, (NOWHERE, SECRET))
