"""The operator's client and the real API server: what is made, kept, refused, and by whom it is owned."""

import asyncio
import json
import ssl

import pytest

from spatialstream_operator.cluster import MANAGER, ApiError, Cluster, ClusterError
from tests.api.client import path_of
from tests.api.resources import stream, streams
from tests.api.servers import ADMIN

pytestmark = pytest.mark.gate

SPACE = "client"


ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": SPACE}}


@pytest.fixture(scope="module", autouse=True)
def token(api, namespace):
    """Of an account without any right, in a namespace for these tests."""
    namespace(SPACE)
    path = f"{path_of(api.apply(ACCOUNT))}/token"
    return api.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]


@pytest.fixture
def ask(server, tmp_path, monkeypatch):
    """Lets a client do something, of whoever has a token."""

    def run(act, token=ADMIN, **changes):
        config = server.kubeconfig(token)
        config["clusters"][0]["cluster"] |= changes
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

        async def main():
            cluster = Cluster()
            try:
                return await act(cluster)
            finally:
                await cluster.close()

        return asyncio.run(main())

    return run


def config_map(name, labels=None, **data):
    metadata = {"name": name, "namespace": SPACE, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name, **spec):
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    usual = {
        "serviceAccountName": "nobody",
        "containers": [{"name": "it", "image": "it", "securityContext": confined}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    metadata = {"name": name, "namespace": SPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**usual, **spec}}


def owners(body):
    return {(each["manager"], each["operation"]) for each in body["metadata"]["managedFields"]}


def test_what_is_applied_is_taken_over_from_others_and_what_is_theirs_stays(api, ask):
    path = path_of(api.apply(config_map("shared", wanted="theirs", other="theirs")))

    ask(lambda cluster: cluster.apply(config_map("shared", wanted="ours", new="ours")))

    body = api.get(path)
    assert body["data"] == {"wanted": "ours", "new": "ours", "other": "theirs"}
    assert owners(body) == {("tests", "Apply"), (MANAGER, "Apply")}

    ask(lambda cluster: cluster.apply(config_map("shared", new="ours")))

    assert api.get(path)["data"] == {"new": "ours", "other": "theirs"}, "what is not wanted any more goes"


def test_a_pod_goes_without_its_nodes_word_and_no_other_of_its_name_does(api, ask):
    path = path_of(api.apply(pod("lost")))
    target = {"metadata": {"name": "lost"}, "target": {"kind": "Node", "name": "nowhere"}}
    api.post(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **target})
    api.delete(path)
    found = api.get(path)
    other = {**found, "metadata": {**found["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}

    assert ask(lambda cluster: cluster.force_delete(other)) is False
    assert api.get(path)["metadata"]["deletionTimestamp"]
    assert ask(lambda cluster: cluster.force_delete(found)) is True
    assert api.find(path) is None
    assert ask(lambda cluster: cluster.force_delete(found)) is False


def test_an_object_is_created_once_and_removed_once(api, ask):
    async def act(cluster):
        made = [await cluster.create(config_map("once", some="data")) for _ in range(2)]
        found = await cluster.get("ConfigMap", "once", SPACE)
        removed = [await cluster.delete("ConfigMap", "once", SPACE) for _ in range(2)]
        return made, found, removed, await cluster.get("ConfigMap", "once", SPACE)

    made, found, removed, after = ask(act)

    assert (made, removed, after) == ([True, False], [True, False], None)
    assert owners(found) == {(MANAGER, "Update")}


def test_a_trial_makes_nothing_and_is_refused_as_the_object_would_be(api, ask):
    assert ask(lambda cluster: cluster.create(pod("tried"), trial=True))
    with pytest.raises(ApiError, match="violates PodSecurity") as caught:
        ask(lambda cluster: cluster.create(pod("tried", hostNetwork=True), trial=True))

    assert caught.value.is_forbidden
    assert api.find(path_of(pod("tried"))) is None


def test_a_check_knows_every_field_and_makes_nothing(api, ask):
    ask(lambda cluster: cluster.check(pod("checked")))
    with pytest.raises(ApiError, match=r'unknown field "spec\.nodeselector"') as caught:
        ask(lambda cluster: cluster.check(pod("checked", nodeselector={})))

    assert caught.value.code == 400
    assert ask(lambda cluster: cluster.create(pod("checked", nodeselector={}), trial=True)), "which a trial takes"
    assert api.find(path_of(pod("checked"))) is None


def test_what_others_have_changed_or_removed_meanwhile_is_not_replaced(api, ask):
    async def act(cluster):
        await cluster.create(config_map("replaced", version="1"))
        read = await cluster.get("ConfigMap", "replaced", SPACE)
        newer = {**read, "data": {"version": "2"}}
        first = await cluster.replace(newer)
        second = await cluster.replace({**read, "data": {"version": "3"}})
        found = await cluster.get("ConfigMap", "replaced", SPACE)
        await cluster.delete("ConfigMap", "replaced", SPACE)
        return first, second, found["data"], await cluster.replace(newer)

    assert ask(act) == (True, False, {"version": "2"}, False)


def test_a_change_is_merged_with_the_status_that_there_is(api, ask):
    api.post(streams(SPACE), stream(SPACE, "told"))

    async def act(cluster):
        await cluster.patch_status("SpatialStream", "told", SPACE, {"phase": "Running", "router": {"state": "running"}})
        await cluster.patch_status("SpatialStream", "told", SPACE, {"phase": None, "router": {"pod": "told-router"}})
        await cluster.patch_status("SpatialStream", "nobody", SPACE, {"phase": "Running"})

    ask(act)

    body = api.get(streams(SPACE, "told"))
    api.delete(streams(SPACE, "told"))
    assert body["status"] == {"router": {"state": "running", "pod": "told-router"}}
    assert api.find(streams(SPACE, "nobody")) is None


def test_lists_have_all_that_is_selected_however_many_these_are(api, ask):
    async def act(cluster):
        names = [f"many-{number}" for number in range(501)]
        assert all(await asyncio.gather(*(cluster.create(config_map(each, {"of": "many"})) for each in names)))
        found = await cluster.list("ConfigMap", SPACE, {"of": "many"})
        one = await cluster.list("ConfigMap", SPACE, {"of": "many"}, {"metadata.name": "many-7"})
        everywhere = await cluster.list("ConfigMap", None, {"of": "many"})
        none = await cluster.list("ConfigMap", SPACE, {"of": "nobody"})
        return names, *([each["metadata"]["name"] for each in some] for some in (found, one, everywhere, none))

    names, found, one, everywhere, none = ask(act)

    assert sorted(found) == sorted(everywhere) == sorted(names)
    assert (one, none) == (["many-7"], [])


def test_custom_resources_are_listed_too(api, ask):
    api.post(streams(SPACE), stream(SPACE, "listed"))

    found = ask(lambda cluster: cluster.list("SpatialStream", SPACE))

    api.delete(streams(SPACE, "listed"))
    assert [each["metadata"]["name"] for each in found] == ["listed"]


def test_who_asks_what_there_is_is_told_of_resources_that_are_installed(ask):
    kinds = ("SpatialStream", "SpatialQuery", "SpatialArea", "Lease", "PodMonitor")

    async def act(cluster):
        return [await cluster.verbs(each) for each in kinds]

    *installed, other = ask(act)
    assert all(each >= {"get", "list", "watch", "patch", "create"} for each in installed)
    assert other == frozenset()


def test_a_namespace_that_is_gone_or_cannot_be_seen_is_told_from_one_that_stays(ask, token):
    assert ask(lambda cluster: cluster.is_terminating("no-such-namespace"))
    assert not ask(lambda cluster: cluster.is_terminating(SPACE))
    assert not ask(lambda cluster: cluster.is_terminating("no-such-namespace"), token)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda cluster: cluster.get("Secret", "zk", SPACE), 'secrets "zk" is forbidden: User "system:ser'),
        (lambda cluster: cluster.list("SpatialStream", None), "spatialstreams.spatialstream.dev is forbidden"),
    ],
)
def test_a_missing_right_is_told_in_the_servers_own_words(ask, token, act, text):
    with pytest.raises(ApiError) as caught:
        ask(act, token)

    assert caught.value.is_forbidden
    assert str(caught.value).startswith(text)


def test_who_is_not_known_is_refused(ask):
    with pytest.raises(ApiError) as caught:
        ask(lambda cluster: cluster.get("Secret", "zk", SPACE), "nobody's token")

    assert (caught.value.code, caught.value.is_refusal) == (401, False)


def test_a_resource_that_is_not_installed_is_no_object_that_is_not_there(ask):
    with pytest.raises(ClusterError) as caught:
        ask(lambda cluster: cluster.get("PodMonitor", "it", SPACE))

    assert not isinstance(caught.value, ApiError)
    assert (caught.value.code, str(caught.value)) == (404, "the API server returned 404: 404 page not found")


def test_a_server_that_cannot_prove_who_it_is_is_told_nothing(ask):
    with pytest.raises(ClusterError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        ask(
            lambda cluster: cluster.get("Secret", "zk", SPACE),
            **{"certificate-authority": ssl.get_default_verify_paths().cafile},
        )

    assert caught.value.code == 0
    assert "\n" not in str(caught.value)
