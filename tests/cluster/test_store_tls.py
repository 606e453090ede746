"""The store over TLS, on a real ZooKeeper that wants certificates: who is let in, and who is believed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from spatialstream.cli import main
from spatialstream.model.errors import Unavailable
from spatialstream.servers.ports import HOST
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.tls import TlsFiles
from spatialstream.store.zookeeper import ZooKeeperStore
from spatialstream_operator.spec import TlsSecret
from spatialstream_operator.stores import Stores
from tests.certificates import Authority
from tests.unit.operator.simulated import SimulatedCluster
from tests.unit.store.contract import StoreContract, eventually, version

if TYPE_CHECKING:
    from spatialstream_operator.cluster import Cluster

numbers = itertools.count()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    folder = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder, tls=TlsFiles(*authority.issue(folder / "own", "server"))) as running:
        yield running


@pytest.fixture
def client(authority: Authority, tmp_path: Path) -> TlsFiles:
    """Files of somebody who may come in."""
    return TlsFiles(*authority.issue(tmp_path / "client"))


@pytest.fixture
def connect(server: ZooKeeperServer, client: TlsFiles) -> Iterator[Callable[..., ZooKeeperStore]]:
    stream, stores = f"stream-{next(numbers)}", list[ZooKeeperStore]()

    def make(name: str = "", **options: Any) -> ZooKeeperStore:
        given = {"session": 4.0, "tls": client, **options}
        stores.append(ZooKeeperStore(server.hosts, f"{stream}{name}", **given))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


class TestEncryptedStore(StoreContract):
    @pytest.fixture
    def connect(self, connect: Callable[..., ZooKeeperStore]) -> Callable[..., ZooKeeperStore]:
        return connect


def test_commands_are_let_in(
    connect: Callable[..., ZooKeeperStore],
    server: ZooKeeperServer,
    client: TlsFiles,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = connect("-told")
    store.create(version(0))
    name = store.root.rpartition("/")[2]
    where = ["--stream", name, "--zookeeper", server.hosts, "--zookeeper-ca", str(client.authority)]
    own = ["--zookeeper-certificate", str(client.certificate), "--zookeeper-key", str(client.key)]
    assert main(["tree", *where, *own]) == 0
    assert "version 0" in capsys.readouterr().err


def test_an_operator_reads_certificates_of_a_secret(
    server: ZooKeeperServer, authority: Authority, tmp_path: Path, connect: Callable[..., ZooKeeperStore]
) -> None:
    """And takes them anew when they have been renewed."""
    cluster, tls = SimulatedCluster(), TlsSecret("zk-tls", certified=True)
    made = connect("-operated")
    made.create(version(0))
    name = made.root.rpartition("/")[2]

    def renew(by: Authority) -> None:
        files = by.issue(tmp_path)
        files.authority.write_bytes(authority.certificate)
        meta = {"name": "zk-tls", "namespace": "geo", "labels": {"spatialstream.dev/allowed": "true"}}
        data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
        cluster.put({"kind": "Secret", "metadata": meta, "data": data})

    async def main() -> None:
        stores = Stores(cast("Cluster", cluster))
        try:
            for _ in range(2):
                renew(authority)
                store = await stores.of(name, server.hosts, "geo", None, tls)
                assert (await asyncio.to_thread(store.state)) == made.state()
            renew(Authority("other"))
            store = await stores.of(name, server.hosts, "geo", None, tls)
            with pytest.raises(Unavailable, match="certificate"):
                await asyncio.to_thread(store.state)
        finally:
            await stores.close_all()

    asyncio.run(main())


def refused(connect: Callable[..., ZooKeeperStore], why: str, **options: Any) -> None:
    """It is told of why nothing comes of it, as long as one asks: an answer takes longer than the refusal."""
    store = connect(timeout=3.0, **options)
    with pytest.raises(Unavailable, match=f"did not answer within 3 s .*{why}"):
        store.state()


def test_a_client_without_certificate_is_refused(connect: Callable[..., ZooKeeperStore], client: TlsFiles) -> None:
    refused(connect, "certificate", tls=TlsFiles(client.authority))


def test_a_client_of_another_authority_is_refused(
    connect: Callable[..., ZooKeeperStore], client: TlsFiles, tmp_path: Path
) -> None:
    _, certificate, key = Authority("other").issue(tmp_path / "other")
    refused(connect, "certificate", tls=TlsFiles(client.authority, certificate, key))


def test_a_certificate_that_has_ended_is_refused(
    connect: Callable[..., ZooKeeperStore], authority: Authority, tmp_path: Path
) -> None:
    refused(connect, "certificate", tls=TlsFiles(*authority.issue(tmp_path / "ended", days=-1)))


def test_a_server_of_another_authority_is_not_believed(
    connect: Callable[..., ZooKeeperStore], client: TlsFiles, tmp_path: Path
) -> None:
    foreign = Authority("other").issue(tmp_path / "other").authority
    tls = TlsFiles(foreign, client.certificate, client.key)
    refused(connect, "its certificate is not accepted: .*issuer", tls=tls)


def test_a_server_of_another_name_is_not_believed(
    authority: Authority, client: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = TlsFiles(*authority.issue(tmp_path / "own", "server", HOST))
    with (
        ZooKeeperServer(tmp_path / "zookeeper", tls=own) as server,
        ZooKeeperStore(f"localhost:{server.port}", "s", tls=client, timeout=2.0) as store,
        pytest.raises(Unavailable, match=r"not accepted: .*localhost"),
    ):
        store.state()  # the certificate names the address alone
    told = [each.getMessage() for each in caplog.records if "not accepted" in each.getMessage()]
    assert len(told) == 1  # once, not with each try


def test_who_does_not_encrypt_is_refused(connect: Callable[..., ZooKeeperStore]) -> None:
    store = connect(timeout=2.0, tls=None)
    with pytest.raises(Unavailable):
        store.state()


def test_a_server_that_does_not_encrypt_is_not_asked(client: TlsFiles, tmp_path: Path) -> None:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as server,
        ZooKeeperStore(server.hosts, "s", tls=client, timeout=2.0) as store,
        pytest.raises(Unavailable, match=r"no (encrypted )?connection: "),
    ):
        store.state()


def test_certificates_are_renewed_without_a_restart(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them, the authority too: what is in force when a connection is made is what counts."""
    own, folder = tmp_path / "own", tmp_path / "client"
    tls = TlsFiles(*authority.issue(folder))
    with (
        ZooKeeperServer(tmp_path / "zookeeper", tls=TlsFiles(*authority.issue(own, "server"))) as server,
        ZooKeeperStore(server.hosts, "s", session=4.0, timeout=60.0, tls=tls) as store,
    ):
        store.create(version(0))
        before = store.state()
        following = Authority("following")
        following.issue(own, "server")
        with caplog.at_level(logging.WARNING):
            server.restart()
            assert eventually(lambda: "not accepted" in caplog.text)
        tls.key.write_text("half of a k")  # files are not replaced in one moment
        assert eventually(lambda: "zookeeper-key: holds no key" in caplog.text)
        following.issue(folder)
        assert store.state() == before
        assert eventually(lambda: store.latest() == before)
        store.publish(version(1), 0, "p", {})
