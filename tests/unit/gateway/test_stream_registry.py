"""The streams of a cluster, as they come, change and go."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration

from spatialstream.cli.gateway import at_place
from spatialstream.gateway.api_server import Refused
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.cluster import Cluster
from spatialstream.gateway.stream_registry import Place, StreamRegistry
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.servers.process import await_condition
from tests.certificates import Authority
from tests.unit.gateway.http import served, serving


class PlayedCluster:
    """SpatialStreams and Secrets by their paths."""

    def __init__(self) -> None:
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.unlabelled: set[str] = set()
        self.away = False

    def put(self, namespace: str, name: str, uid: str = "1", **spec: Any) -> None:
        whole = {"kafka": {"bootstrapServers": "k:9092"}, "zookeeper": {"servers": "zk:2181/a"}} | spec
        body = {"metadata": {"namespace": namespace, "name": name, "uid": uid}, "spec": whole}
        here = [each for each in self.streams.get(namespace, []) if each["metadata"]["name"] != name]
        self.streams[namespace] = [*here, body]

    async def get(self, path: str) -> dict[str, Any]:
        if self.away:
            raise Unavailable("the cluster's API server does not answer")
        parts = path.partition("?")[0].split("/")
        if parts[-1] == "spatialstreams":
            assert path.endswith("?resourceVersion=0")
            if len(parts) == 5:
                return {"items": [each for here in self.streams.values() for each in here]}
            if parts[-2] not in self.streams:
                raise Refused("spatialstreams is forbidden", 403)
            return {"items": self.streams[parts[-2]]}
        key = f"{parts[4]}/{parts[6]}"
        if key not in self.secrets:
            raise Refused(f'secrets "{parts[6]}" is forbidden', 403)
        data = {name: base64.b64encode(text.encode()).decode() for name, text in self.secrets[key].items()}
        labels = {} if key in self.unlabelled else {"spatialstream.dev/allowed": "true"}
        return {"metadata": {"labels": labels}, "data": data}


class Served:
    """What a registry has had served, step by step."""

    def __init__(self, cluster: PlayedCluster, *namespaces: str) -> None:
        self.places: dict[str, Place] = {}
        self.steps: list[str] = []
        self.told: list[str] = []
        self.namespaces = namespaces
        self.registry = StreamRegistry(cluster, self.opened, namespaces, self.told.append, every=0.05)  # type: ignore[arg-type]

    def opened(self, place: Place) -> ServedStream:
        self.places[place.name] = place
        return served(place.name)

    def look(self) -> list[str]:
        async def once() -> None:
            keeping = asyncio.create_task(
                self.registry.keep(
                    lambda stream: self.steps.append(f"+{stream.name}"), lambda name: self.steps.append(f"-{name}")
                )
            )
            await asyncio.sleep(0.01)
            keeping.cancel()

        self.steps.clear()
        asyncio.run(once())
        return list(self.steps)


@pytest.fixture
def cluster() -> PlayedCluster:
    made = PlayedCluster()
    made.put("geo", "quakes")
    made.put("weather", "rain")
    return made


def test_streams_come_change_and_go(cluster: PlayedCluster) -> None:
    of = Served(cluster, "geo", "weather")

    assert not of.registry.ready
    assert of.look() == ["+geo.quakes", "+weather.rain"]
    assert of.registry.ready
    place = of.places["geo.quakes"]
    assert (place.bootstrap, place.zookeeper) == ("k.geo.svc:9092", "zk.geo.svc:2181/a")
    assert of.look() == []
    cluster.put("geo", "quakes", kafka={"bootstrapServers": "b.example:9092", "topics": {"objects": "posts"}})
    assert of.look() == ["-geo.quakes", "+geo.quakes"]
    assert of.places["geo.quakes"].topics == {"objects": "posts"}
    cluster.put("geo", "ships")
    assert of.look() == ["+geo.ships"]
    cluster.put("weather", "rain", uid="2")  # deleted, and made anew
    assert of.look() == ["-weather.rain", "+weather.rain"]
    cluster.streams["geo"] = []
    assert of.look() == ["-geo.quakes", "-geo.ships"]
    assert of.told == []


def test_what_cannot_be_listed_stays_as_it_is_known(cluster: PlayedCluster) -> None:
    of = Served(cluster, "geo", "other")

    assert of.look() == ["+geo.quakes"]
    assert not of.registry.ready
    cluster.away = True
    assert of.look() == []
    assert of.look() == []
    told = "the cluster's API server does not answer"
    assert of.told == [
        "other: streams cannot be listed: spatialstreams is forbidden",
        f"geo: streams cannot be listed: {told}",
        f"other: streams cannot be listed: {told}",
    ]


def test_all_namespaces(cluster: PlayedCluster) -> None:
    assert Served(cluster).look() == ["+geo.quakes", "+weather.rain"]


def test_secrets_are_read_where_a_stream_names_them(cluster: PlayedCluster) -> None:
    of = Served(cluster, "geo")
    kafka = {"bootstrapServers": "k:9093", "securitySecret": {"name": "user"}}
    cluster.put("geo", "quakes", kafka=kafka, zookeeper={"servers": "z:2181", "credentialsSecret": {"name": "zk"}})
    assert of.look() == []
    assert of.registry.ready
    assert of.registry.unserved == {
        "geo.quakes": 'geo.quakes is not served: its Secret user cannot be read: secrets "user" is forbidden'
    }
    cluster.secrets["geo/user"] = {"kafka.properties": "ssl.ca.location=/etc/spatialstream/kafka/ca.pem", "ca.pem": "C"}
    cluster.unlabelled.add("geo/user")
    assert of.look() == []
    assert "kafka.securitySecret: streams may not use the Secret user" in of.registry.unserved["geo.quakes"]
    cluster.unlabelled.clear()
    cluster.secrets["geo/zk"] = {"credentials": "me"}
    assert of.look() == []
    assert "must hold user:password" in of.told[-1]
    cluster.secrets["geo/zk"] = {"credentials": "me:secret\n"}
    assert of.look() == ["+geo.quakes"]
    assert of.registry.unserved == {}
    place = of.places["geo.quakes"]
    assert place.credentials == ("me", "secret")
    assert place.text_of(Path("/etc/spatialstream/kafka/ca.pem")) == "C"
    with pytest.raises(SettingError, match=r"no key key\.pem"):
        place.text_of(Path("/etc/spatialstream/kafka/key.pem"))
    assert "secret" not in repr(place)
    assert "'C'" not in repr(place)
    cluster.away = True
    assert of.look() == []
    cluster.away = False
    del cluster.secrets["geo/zk"]
    assert of.look() == ["-geo.quakes"]


def test_certificates_are_read_where_a_stream_names_them(cluster: PlayedCluster, tmp_path: Path) -> None:
    of = Served(cluster, "geo")
    files = {file.name: file.read_text() for file in Authority().issue(tmp_path)}
    cluster.put("geo", "quakes", zookeeper={"servers": "z:2181", "tlsSecret": {"name": "tls"}})
    assert of.look() == []
    assert "its Secret tls cannot be read" in of.registry.unserved["geo.quakes"]
    cluster.secrets["geo/tls"] = files
    assert of.look() == ["+geo.quakes"]
    place = of.places["geo.quakes"]
    assert place.certificates == (files, "tls", True)
    assert "BEGIN" not in repr(place)
    assert isinstance(at_place(place), ServedStream)
    with pytest.raises(SettingError, match=r"zookeeper.tlsSecret: the key tls.key of the Secret tls holds no key"):
        at_place(replace(place, certificates=(files | {"tls.key": ""}, "tls", True)))
    cluster.secrets["geo/tls"] = {"ca.crt": files["ca.crt"]}  # renewed
    cluster.put(
        "geo", "quakes", zookeeper={"servers": "z:2181", "tlsSecret": {"name": "tls", "clientCertificate": False}}
    )
    assert of.look() == ["-geo.quakes", "+geo.quakes"]
    assert isinstance(at_place(of.places["geo.quakes"]), ServedStream)


def test_a_gateway_serves_what_there_is(cluster: PlayedCluster) -> None:
    cluster.put("geo", "hidden", kafka={"bootstrapServers": "k:9092", "securitySecret": {"name": "user"}})
    of = Served(cluster, "geo")
    with serving(Gateway([], registry=of.registry)) as client:

        def status(stream: str) -> int:
            return client("POST", f"/streams/{stream}/ask?no=1", {}).status

        assert await_condition(lambda: client("GET", "/ready").status == 200, 30.0)
        assert client("GET", "/ready").json == {"ready": True, "streams": {}}
        assert client("GET", "/live").json == {"live": True}
        assert (status("geo.quakes"), status("geo.none")) == (400, 404)
        refused = client("POST", "/streams/geo.hidden/ask", {})
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        assert "Secret user cannot be read" in refused.json["detail"]
        cluster.put("geo", "none")
        assert await_condition(lambda: status("geo.none") == 400, 30.0)
        cluster.streams["geo"] = []
        assert await_condition(lambda: status("geo.quakes") == 404, 30.0)
        cluster.streams["geo"] = [{"metadata": {}}]  # which no API server says: the process is to be begun anew
        assert await_condition(lambda: client("GET", "/live").status == 503, 30.0)


@pytest.mark.parametrize("token", ["secret\n", "secret\r\nX-Other: 1", "secret\x00", "secr\u00e9t"])
def test_a_token_that_cannot_be_sent_is_not_shown(token: str) -> None:
    bearer = {"authorization": f"Bearer {token}"}
    cluster = Cluster(Configuration(host="http://127.0.0.1:9", api_key=bearer))
    with pytest.raises(Unavailable) as raised:
        asyncio.run(cluster.get("/api"))
    assert str(raised.value) == "cannot send the token to the cluster's API server: it is not one line of plain text"
    assert raised.value.__cause__ is None
    cluster.close()


def test_outside_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(SettingError, match="requires a pod with a service account token"):
        Cluster()
