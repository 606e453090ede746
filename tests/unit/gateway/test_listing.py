"""What there is: streams for those who may, the state of one, and registered queries, page by page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.test_openapi import Answering
from tests.unit.gateway.test_writing import Stream


def gateway(tmp_path: Path) -> Gateway:
    tokens = [
        {"name": "all", "token": "all-0123456789012345", "rights": ["ask", "watch", "write"], "streams": ["*"]},
        {"name": "few", "token": "few-0123456789012345", "rights": ["ask"], "streams": ["s"]},
    ]
    (tmp_path / "tokens").write_text("".join(json.dumps(each) + "\n" for each in tokens))
    streams = [served(name, lambda: Answering(Stream())) for name in ("s", "other")]
    return Gateway(streams, Access(tmp_path / "tokens"))


def test_streams_are_listed_to_those_who_may_do_anything_with_them(tmp_path: Path) -> None:
    with serving(gateway(tmp_path)) as nobody:
        everything, few = (Client(nobody.port, f"{name}-0123456789012345") for name in ("all", "few"))
        rights = ["ask", "watch", "write"]
        assert everything("GET", "/streams").json == {
            "streams": [{"name": "other", "rights": rights}, {"name": "s", "rights": rights}]
        }
        assert few("GET", "/streams").json == {"streams": [{"name": "s", "rights": ["ask"]}]}
        assert nobody("GET", "/streams").status == 401
        assert few("GET", "/streams/s").status == 403
        state: dict[str, Any] = everything("GET", "/streams/s").json
        assert state.pop("behind") > 10**9
        assert state == {"name": "s", "space": "wgs84", "round": 7, "clock": 1_000, "version": 3, "slots": 4}
        assert everything("GET", "/streams/third").status == 404


@pytest.mark.parametrize("limit", [2, 100])
def test_registered_queries_are_listed_page_by_page(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(gateway(tmp_path)) as nobody:
        client = Client(nobody.port, "all-0123456789012345")
        if limit > 2:  # pages are shorter than they may be, because queries are large
            monkeypatch.setattr(Answering, "most", 1)
        names, rows, path = list[str](), list[Any](), f"/streams/s/queries?limit={limit}"
        while path:
            page = client("GET", path).json
            names += [each["id"] for each in page["queries"]]
            rows += [(each["rows"], each["last_row"]) for each in page["so_far"]]
            assert page["as_of"] == {"round": 7, "clock": 1_000}
            path = page.get("next")
        assert names == ["q0", "a/b", "q2"]
        assert rows == [(0, None), (1, 900), (2, 900)]
        monkeypatch.undo()
        shown = client("GET", "/streams/s/queries/a%2Fb").json
        assert (shown["query"]["id"], shown["so_far"]) == ("a/b", {"rows": 1, "last_row": 900})
        assert shown["query"]["by"] == "anna"
        assert client("GET", "/streams/s/queries/a").status == 404
        most = "9" * 30
        assert len(client("GET", f"/streams/s/queries?limit={most}").json["queries"]) == 3
        assert client("GET", f"/streams/s/queries?after={most}").json["queries"] == []
        assert client("GET", "/streams/s/queries?limit=1&limit=2").errors == [
            {"parameter": "limit", "detail": "give it once"}
        ]
        for wrong in ("limit=0", "limit=x", "limit=", "after=-2", "after=1e3", "other=1"):
            assert client("GET", f"/streams/s/queries?{wrong}").errors[0]["parameter"] == wrong.partition("=")[0]
