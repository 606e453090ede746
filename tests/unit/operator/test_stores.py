import asyncio
import base64

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.spec import SecretKey, TlsSecret
from spatialstream_operator.stores import Stores
from tests.certificates import Authority
from tests.unit.operator.simulated import SimulatedCluster, refusal

SECRET = SecretKey("zk", "credentials")
LABEL = {"spatialstream.dev/allowed": "true"}
NOWHERE = "127.0.0.1:1"


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.fixture
def cluster():
    return SimulatedCluster()


def keep(cluster, **data):
    cluster.put({"kind": "Secret", "metadata": {"name": "zk", "namespace": "geo", "labels": LABEL}, "data": data})


def opened(cluster, *calls):
    """The stores that calls with (servers, secret, tls) give, which are closed again."""

    async def main():
        stores = Stores(cluster)
        try:
            return [await stores.of("geo.quakes", servers, "geo", *secrets) for servers, *secrets in calls]
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


def keep_certificates(cluster, files, *left_out):
    data = {file.name: encoded(file.read_bytes()) for file in files if file.name not in left_out}
    cluster.put({"kind": "Secret", "metadata": {"name": "zk-tls", "namespace": "geo", "labels": LABEL}, "data": data})


def test_renewed_certificates_make_another_connection(cluster, tmp_path):
    tls = TlsSecret("zk-tls", True)

    async def main():
        stores = Stores(cluster)
        try:
            keep_certificates(cluster, Authority().issue(tmp_path))
            one, same = [await stores.of("geo.quakes", NOWHERE, "geo", None, tls) for _ in range(2)]
            damaged = Authority().issue(tmp_path)
            damaged.key.write_text("half of a k")
            keep_certificates(cluster, damaged)
            with pytest.raises(SettingError, match="holds no key"):
                await stores.of("geo.quakes", NOWHERE, "geo", None, tls)
            assert stores.known("geo.quakes") is one, "what is wrong now may be right in a moment"
            keep_certificates(cluster, Authority().issue(tmp_path))
            return one, same, await stores.of("geo.quakes", NOWHERE, "geo", None, tls)
        finally:
            await stores.close_all()

    one, same, other = asyncio.run(main())
    assert one is same
    assert one is not other


def test_a_certificate_is_not_looked_for_where_none_is_shown(cluster, tmp_path):
    keep_certificates(cluster, Authority().issue(tmp_path), "tls.crt", "tls.key")

    assert opened(cluster, (NOWHERE, None, TlsSecret("zk-tls", False)))


@pytest.mark.parametrize(
    ("left_out", "damaged", "why"),
    [
        (("ca.crt",), {}, "the Secret zk-tls has no key ca.crt"),
        (("tls.key",), {}, "the Secret zk-tls has no key tls.key"),
        ((), {"ca.crt": b"\0"}, "the key ca.crt of the Secret zk-tls holds no certificate"),
        ((), {"tls.key": b"password"}, "the key tls.key of the Secret zk-tls holds no key; give it as PEM"),
    ],
)
def test_certificates_that_cannot_be_used_are_told(cluster, tmp_path, left_out, damaged, why):
    files = Authority().issue(tmp_path)
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    keep_certificates(cluster, files, *left_out)

    with pytest.raises(SettingError, match=f"spec.zookeeper.tlsSecret: {why}") as caught:
        opened(cluster, (NOWHERE, None, TlsSecret("zk-tls", True)))

    assert "password" not in str(caught.value)


def test_certificates_of_no_secret_are_told(cluster):
    with pytest.raises(SettingError, match=r"spec.zookeeper.tlsSecret: there is no Secret zk-tls in the namespace geo"):
        opened(cluster, (NOWHERE, None, TlsSecret("zk-tls", True)))


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
