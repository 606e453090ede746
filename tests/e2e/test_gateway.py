"""The gateway in the cluster, as a program with an account's token uses it, while its pods are killed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.e2e.data import Story
from tests.e2e.kube import wait_for
from tests.e2e.platform import NAMESPACE, SYSTEM, TOOLBOX, Platform, Stream

URL = f"http://spatialstream-gateway.{SYSTEM}.svc"
PODS = "app.kubernetes.io/name=spatialstream-gateway"
VISITOR = Path(__file__).with_name("visitor.py").read_text("utf-8")
WORLD = {"box": [-180, -90, 180, 90]}


@dataclass
class Visitor:
    """A program in the cluster.

    Attributes:
        stream: what it uses.
        token: who it is.
        sent: ids of objects that the broker has.
        unknown: ids of objects that it may have: there was no answer.
    """

    stream: Stream
    token: str
    sent: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def __call__(self, method: str, path: str, *rest: str, body: Any = b"", timeout: float = 120.0) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        command = ["python", "-c", VISITOR, URL, self.token, method, f"/streams/{self.stream.id}{path}", *rest]
        return json.loads(self.stream.kube.exec(TOOLBOX, *command, data=content, timeout=timeout))

    def send(self, name: str, objects: int = 20) -> bool:
        """Send objects once; whether the gateway says that they are in the broker."""
        now, ids = time.time_ns() // 1_000_000, [f"{name}-{number}" for number in range(objects)]
        lines = [{"id": each, "t": now, "lon": number, "lat": 50, "text": "a"} for number, each in enumerate(ids)]
        answer = self("POST", "/objects", body="\n".join(map(json.dumps, lines)).encode())
        assert answer["status"] in (0, 200, 404, 503), answer  # 404: the gateway has not seen the stream yet
        (self.sent if answer["status"] == 200 else self.unknown).update(ids)
        return bool(answer["status"] == 200)


def _account(name: str) -> list[dict[str, Any]]:
    """An account that may do everything with the streams of the namespace."""
    about = {"name": name, "namespace": NAMESPACE}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": about}
    rule = {"apiGroups": ["spatialstream.dev"], "resources": ["spatialstreams"], "verbs": ["ask", "watch", "write"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {**rbac, "kind": "Role", "rules": [rule]},
        {**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [{"kind": "ServiceAccount", **about}]},
    ]


def _two_ready(platform: Platform) -> list[str]:
    """Two pods of the gateway, or more, that are ready; they are waited for."""

    def ready() -> list[str]:
        found = [each["metadata"]["name"] for each in platform.system.list("pods", PODS)]
        return sorted(name for name in found if platform.system.ready(name))

    return wait_for("two pods of the gateway", lambda: len(found := ready()) >= 2 and found, 300.0, platform.state)  # type: ignore[return-value]


def _a_query_is_a_resource(platform: Platform, stream: Stream, visitor: Visitor) -> None:
    """A SpatialQuery is registered, has rows, takes another spec, and is cancelled by its deletion."""

    def listed() -> dict[str, Any] | None:
        answer: dict[str, Any] = visitor("GET", "/queries?limit=1000")
        return answer if answer["status"] == 200 else None

    def registered() -> list[str]:
        answer = wait_for("registered queries to be listed", listed, 120.0, platform.state)
        return [each["id"] for each in answer["content"]["queries"] if each["id"].startswith(f"{NAMESPACE}.watch.")]

    def says() -> dict[str, Any]:
        body = stream.kube.get("spatialqueries", "watch") or {}
        status: dict[str, Any] = body.get("status") or {}
        (condition,) = status.get("conditions") or [{}]
        current = condition.get("observedGeneration") == body["metadata"]["generation"]
        registered = current and condition.get("status") == "True" and len(status["registrations"]) == 1
        return status if registered else {}

    def applied(words: list[str]) -> str:
        spec = {"stream": stream.name, "type": "CRQ", "region": WORLD, "keywords": words}
        about = {"name": "watch", "namespace": NAMESPACE}
        kind = {"apiVersion": "spatialstream.dev/v1alpha1", "kind": "SpatialQuery"}
        stream.kube.apply({**kind, "metadata": about, "spec": spec})
        status: dict[str, Any] = wait_for("the resource to say that it is registered", says, 180.0, platform.state)
        assert registered() == [status["query"]]
        return str(status["query"])

    first = applied(["b"])
    query = applied(["a"])
    assert query != first
    known = wait_for("registered queries to be listed", listed, 120.0, platform.state)["content"]["queries"]
    assert [each["by"] for each in known if each["id"] == query] == [f"sq/{NAMESPACE}/watch"]
    attempts = count()
    wait_for("objects to be taken", lambda: visitor.send(f"watched{next(attempts)}", 1), 120.0, platform.state)
    found = visitor("follow", f"/results?query={query}&position=oldest", "watched", timeout=300.0)
    assert {row["query"] for row in found["rows"]} == {query}
    stream.kube.kubectl("delete", "sq", "watch", "--timeout=120s", timeout=150.0)
    assert registered() == []


def test_a_program_asks_registers_and_follows_while_pods_are_killed(platform: Platform, tmp_path: Path) -> None:
    stream = Stream(platform, "gate", Story(5, tmp_path))
    stream.kube.apply(stream.manifest(time={"idle": "500ms"}), *_account("follower"))
    stream.wait_ready()
    assert stream.status["console"] == f"{URL}/console/#stream={stream.id}"
    visitor = Visitor(stream, stream.kube.kubectl("create", "token", "follower").strip())
    stranger = Visitor(stream, stream.kube.kubectl("create", "token", "default").strip())
    assert stranger("POST", "/ask", body={})["status"] == 403
    assert Visitor(stream, "nobody's")("POST", "/ask", body={})["status"] == 401

    attempts = count()
    wait_for("objects to be taken", lambda: visitor.send(f"first{next(attempts)}"), 120.0, platform.state)
    query = {"id": "all", "type": "CRQ", "region": WORLD, "keywords": ["a"], "duration": "1h"}
    wait_for(
        "the query to stand",
        lambda: visitor("POST", "/queries", body=query)["status"] in (200, 201),
        120.0,
        platform.state,
    )
    before = set(visitor.sent | visitor.unknown)

    first_ones = _two_ready(platform)
    stream.kube.exec(TOOLBOX, "rm", "-f", "/tmp/following")
    found: dict[str, Any] = {}
    path = "/results?query=all&position=oldest"
    following = threading.Thread(
        target=lambda: found.update(visitor("follow", path, "end", timeout=900.0)), daemon=True
    )
    following.start()

    def followed() -> str:
        """What became of who follows so far."""
        return stream.kube.exec(TOOLBOX, "sh", "-c", "cat /tmp/following || true")

    wait_for("who follows to be connected", lambda: "connected" in followed(), 120.0, platform.state)
    for number in range(4 * len(first_ones)):  # it is at one of these, and all of them go
        visitor.send(f"o{number}")
        if number % 4 == 3:
            _two_ready(platform)
            platform.system.kill(first_ones.pop())

    # a pod that was killed lives for two seconds more, in which it may bring the last row
    wait_for("who follows to have come again", lambda: followed().count("connected") >= 2, 120.0, followed)
    wait_for("the last objects to be taken", lambda: visitor.send(f"end{next(attempts)}", 1), 120.0, platform.state)
    following.join(300.0)

    assert found, platform.state()
    rows = [row for row in found["rows"] if not row["object"]["id"].startswith("end")]
    ids = Counter(row["object"]["id"] for row in rows)
    assert set(ids.values()) == {1}
    certain = {each for each in visitor.sent - before if not each.startswith("end")}
    assert certain <= ids.keys() <= visitor.sent | visitor.unknown
    assert found["connections"] >= 2

    _a_query_is_a_resource(platform, stream, visitor)

    asked = {"type": "SRQ", "region": WORLD, "keywords": ["a"], "duration": "1h"}
    answer = visitor("POST", "/ask?timeout=30s", body=asked)
    assert answer["status"] == 200, answer
    assert certain <= {each["id"] for each in answer["content"]["objects"]}
    assert visitor("DELETE", "/queries/all")["status"] in (200, 202)
    stream.kube.kubectl("delete", "sps", stream.name, "--timeout=180s", timeout=200.0)
