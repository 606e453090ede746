"""Which fields a resource may have: a field that nobody knows may be a misspelt setting or condition.

The schemas of the custom resources keep unknown fields (``x-kubernetes-preserve-unknown-fields``). Without that, the
API server removes them unless a client asks for strict validation: a query whose condition is misspelt would be
registered without it, and select everything. So the operator sees such a field, and refuses the resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Any

from spatialstream.model.errors import SettingError
from spatialstream_operator.names import AREA_KIND, KIND, QUERY_KIND

__all__ = ["KNOWN", "OPEN", "check_fields"]

OPEN = "*"
"""In place of a name: any other field, which somebody else checks."""

Known = Mapping[str, Any]
"""Fields by name, each with its own known fields; None: it has none, or they are free."""

_MOST_TOLD = 8
_LONGEST_NAME = 40
_SHARE = 0.6
"""Least similarity of a suggested name, as difflib measures it."""


def _of(names: str, **parts: Known | None) -> Known:
    """Fields without fields of their own, and others."""
    return {**dict.fromkeys(names.split()), **parts}


def _resource(spec: Known) -> Known:
    return _of("apiVersion kind metadata status", spec=spec)


_KEY = _of("name key")
_AMOUNTS = _of("cpu memory ephemeral-storage")
_GROUPS = _of("fsGroup fsGroupChangePolicy supplementalGroups")
_CONTAINER = _of(
    "jvmHeap",
    resources=_of("", requests=_AMOUNTS, limits=_AMOUNTS),
    podTemplate=_of("", metadata=_of("labels annotations"), spec=_of(OPEN, securityContext=_GROUPS)),
)
_PLACE = _of("url claimName subPath")
_ACCOUNT = _of("annotations")
_STREAM = _of(
    "image imagePullPolicy space properties fields mergers interval retention serves maxRecordBytes maxRowBytes "
    "suspend restartNonce",
    imagePullSecrets=_of("name"),
    serviceAccounts=_of("", driver=_ACCOUNT, executor=_ACCOUNT),
    kafka=_of(
        "bootstrapServers objectPartitions replicationFactor",
        securitySecret=_KEY,
        topics=_of("objects queries results rejected areas"),
    ),
    zookeeper=_of("servers", credentialsSecret=_KEY, tlsSecret=_of("name clientCertificate")),
    prometheus=_of("url"),
    terms=_of("stopWords minLength queryWords polygonVertices ranking counts"),
    index=_of("kind nearest leaves imbalance similarity similarityForm maxLeaves"),
    time=_of("idle disorder ahead"),
    router=_of("partitions min max cores options", executor=_CONTAINER, **_CONTAINER),
    workers=_of("min max replicas cores options", driver=_CONTAINER, **_CONTAINER),
    checkpoint=_PLACE,
    archive=_PLACE,
    objectStore=_of("endpoint region", credentialsSecret=_KEY, caSecret=_KEY),
    rebalance=_of("mode interval stabilisation cooldown timeout rebuildAfter"),
    autoscaling=_of("enabled targetUtilisation targetDelay scaleUpStabilisation scaleDownStabilisation"),
    rejects=_of("share"),
    restart=_of("backoff maxBackoff maxFailures healthyAfter"),
    deletion=_of("topics state"),
)
_QUERY = _of(
    "stream type at k keywords any none where fields duration window step words radius halfLife",
    region=_of("box circle area within", polygon=_of(OPEN)),  # GeoJSON may have other members
    weights=_of("space"),
)
_AREA = _of("stream name", geometry=_of("type coordinates"))

KNOWN: Mapping[str, Known] = MappingProxyType(
    {KIND: _resource(_STREAM), QUERY_KIND: _resource(_QUERY), AREA_KIND: _resource(_AREA)}
)
"""The fields of a resource, by its kind."""

_SET = {QUERY_KIND: {f"spec.{name}" for name in ("id", "t", "by")}}
"""Fields of queries that no resource has, because the operator sets them."""


def check_fields(kind: str, body: Mapping[str, Any]) -> None:
    """Refuse a resource with fields that its kind does not have, even if they are null.

    Raises:
        SettingError: for the first of them, with the name that is most like it; and then for the others, eight in all.
    """
    found = list(islice(_unknown(body, KNOWN[kind], ""), _MOST_TOLD))
    if found:
        (path, problem), *others = ((_short(path), _problem(kind, path, known)) for path, known in found)
        told = [problem, *(f"{path}: {problem}" for path, problem in others)]
        raise SettingError(path, "; ".join(told))


def _unknown(content: Mapping[str, Any], known: Known, within: str) -> Iterator[tuple[str, Known]]:
    """Path of each unknown field, and the fields that are known in its place."""
    for name, value in content.items():
        path = f"{within}.{name}" if within else name
        if name not in known and OPEN not in known:
            yield path, known
        elif parts := known.get(name):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Mapping):
                    yield from _unknown(each, parts, path)


def _problem(kind: str, path: str, known: Known) -> str:
    """What is wrong with an unknown field, and what would be right."""
    if path in _SET.get(kind, ()):
        return f"is not a field of a {kind}; the operator sets it"
    within, _, name = path.rpartition(".")
    near = [f"{within}.{each}".lstrip(".") for each in get_close_matches(_short(name), known, 1, _SHARE)]
    near += [each for each in _paths(KNOWN[kind]) if each.rpartition(".")[2] == name]  # in the wrong place
    if near:
        return f"is not a field of a {kind}; did you mean {near[0]}?"
    return f"is not a field of a {kind}; the fields {f'of {within}' if within else 'there'} are {', '.join(known)}"


def _paths(known: Known, within: str = "") -> Iterator[str]:
    for name, parts in known.items():
        path = f"{within}.{name}".lstrip(".")
        yield path
        yield from _paths(parts or {}, path)


def _short(path: str) -> str:
    """A path whose last name is cut if it is long."""
    within, _, name = path.rpartition(".")
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return f"{within}.{short}".lstrip(".")
