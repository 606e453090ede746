"""What a SpatialStream may say of its pods: little by default, the rest by an administrator's opt-in.

An account that may create SpatialStreams may have no right to create pods. So what a pod template, an option of Spark
or an image could turn into somebody else's code, node, account, volume or Secret is refused, unless the operator was
installed to allow it (``docs/security.md``). By default a stream may say where its pods run and what they are called,
and give plain values: numbers, sizes, times, true and false. No program takes one for code, a file or a host.

Secrets are another matter (:mod:`spatialstream.model.secret_rule`): this module only says which ones a spec names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from spatialstream.model.errors import SettingError
from spatialstream.model.secret_rule import SecretRule, matches
from spatialstream_operator.commands import EXECUTOR_CONTAINER
from spatialstream_operator.manifests.merge import OWNED_BY_OPERATOR, OWNED_IN_CONTAINER
from spatialstream_operator.manifests.pods import DRIVER_CONTAINER
from spatialstream_operator.manifests.volumes import REPLACEABLE
from spatialstream_operator.spec import Container, StreamSpec

__all__ = ["EVERYTHING", "Permissions", "Refusal", "named_secrets", "narrowed", "refusals", "refuse"]

EVERYTHING = "*"
"""With this in :attr:`Permissions.template` a template may say all that the operator does not set itself."""

_POD = frozenset(
    {
        "affinity",
        "nodeSelector",
        "securityContext",  # what is not of the restricted profile is refused, or left out
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Fields of a pod that any template may give."""

_NEAR = {name.lower(): name for name in (*_POD, "priorityClassName", "imagePullSecrets", "volumes", "containers")}
"""These fields, and those with allowed parts, by lower-case name, to find the one nearest to a misspelt name."""

_VOLUMES = frozenset({"emptyDir"})
"""Kinds of volume that begin empty. One of the downward API holds annotations, and so whatever a template says."""
_FOREIGN = ("dataSource", "dataSourceRef", "selector", "volumeName")
"""How the claim of an ephemeral volume comes to hold what was somebody else's; some classes go by its metadata too."""
_CONTAINER = frozenset({"name", "terminationMessagePath", "terminationMessagePolicy"})

_PLAIN = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?(us|ms|s|min|m|h|d|[kKmMgGtTpP]?[bB]|[kKgGtTpP])?|true|false")
_VARIABLES = re.compile(r"TZ|LANG|LANGUAGE|LC_[A-Z]+|(?i:https?_proxy|no_proxy)")
"""Variables of the environment that may have any text."""
_OF_THE_POD = frozenset(
    f"{part}.{name}"
    for part, names in {
        "metadata": ("name", "namespace", "uid"),
        "spec": ("nodeName", "serviceAccountName"),
        "status": ("hostIP", "hostIPs", "podIP", "podIPs"),
    }.items()
    for name in names
)
"""What a variable may say of the pod: nothing that a template could have written there."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the streams of an installation may say beyond the default.

    Attributes:
        template: parts of a pod template, such as ``nodeName`` or ``volumes.secret``; each with what is below it.
        options: whether an option of Spark may be any, and not only one with a plain value.
        images: repositories of images beside that of the operator's own choice; one that ends with ``*`` stands for
            all that begin so.
        secrets: which Secrets may be used.
    """

    template: frozenset[str] = frozenset()
    options: bool = False
    images: Sequence[str] = ()
    secrets: SecretRule = field(default_factory=SecretRule)

    def allows(self, part: str) -> bool:
        """Whether a template may give a part, because that was allowed, or what it is below."""
        parts = part.split(".")
        words = {".".join(parts[:number]) for number in range(1, len(parts) + 1)}
        return not self.template.isdisjoint(words | {EVERYTHING})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that a stream may not say.

    Attributes:
        field: its path in the resource.
        problem: why, and who may allow it by which value of the chart.
    """

    field: str
    problem: str


def refusals(spec: StreamSpec, image: str, permissions: Permissions) -> list[Refusal]:
    """All that a spec says and may not.

    Args:
        spec: of the stream.
        image: that of streams which name none.
        permissions: of the installation.
    """
    refused = _image(spec.image, image, permissions)
    for path, container, own in _containers(spec):
        refused += _Template(f"{path}.podTemplate.spec", own, permissions).refusals(container.template)
    if not permissions.options:
        for job in ("router", "workers"):
            options = spec.router.options if job == "router" else spec.workers.options
            refused += [each for name, value in options.items() for each in _option(f"spec.{job}.options", name, value)]
    return refused


def refuse(refused: Sequence[Refusal]) -> None:
    """Raise all of them as one error of the first one's field.

    Raises:
        SettingError: there is one.
    """
    if refused:
        first, *others = refused
        raise SettingError(
            first.field, "; ".join([first.problem, *(f"{each.field}: {each.problem}" for each in others)])
        )


def narrowed(spec: StreamSpec, image: str, permissions: Permissions) -> StreamSpec:
    """A spec for the pod that removes a stream, without what it may not say.

    That the stream may go does not depend on what it asks for beside what has to be removed.

    Args:
        spec: of the stream.
        image: that of streams which name none.
        permissions: of the installation.
    """
    path = "spec.router.podTemplate.spec"
    template = spec.router.driver.template
    if _Template(path, DRIVER_CONTAINER, permissions).refusals(template):
        template = {}
    router = replace(spec.router, driver=replace(spec.router.driver, template=template), executors=None)
    bare = replace(spec.workers.executors.container, template={})
    workers = replace(
        spec.workers,
        driver=replace(spec.workers.driver, template={}),
        executors=replace(spec.workers.executors, container=bare),
    )
    given = image if _image(spec.image, image, permissions) else spec.image
    return replace(spec, image=given, router=router, workers=workers)


def named_secrets(spec: StreamSpec) -> list[tuple[str, str]]:
    """The Secrets that a spec names: path of the field, and name of the Secret."""
    references = {
        "spec.kafka.securitySecret": spec.kafka.security,
        "spec.zookeeper.credentialsSecret": spec.zookeeper.credentials,
        "spec.zookeeper.tlsSecret": spec.zookeeper.tls,
        "spec.objectStore.credentialsSecret": spec.object_store.credentials,
        "spec.objectStore.caSecret": spec.object_store.authority,
    }
    secrets = [(path, secret.name) for path, secret in references.items() if secret is not None]
    secrets += [("spec.imagePullSecrets", name) for name in spec.image_pull_secrets]
    for path, container, _ in _containers(spec):
        pod = _mapping(container.template, "spec")
        parts = {part: pod.get(part) for part in ("volumes", "initContainers", "containers", "imagePullSecrets")}
        secrets += [(f"{path}.podTemplate", name) for name in _secrets_within(parts)]
    return secrets


def _containers(spec: StreamSpec) -> list[tuple[str, Container, str]]:
    """What makes the pods: path in the resource, what is given, name of the operator's container."""
    containers = [
        ("spec.router", spec.router.driver, DRIVER_CONTAINER),
        ("spec.workers", spec.workers.executors.container, EXECUTOR_CONTAINER),
        ("spec.workers.driver", spec.workers.driver, DRIVER_CONTAINER),
    ]
    if spec.router.executors is not None:
        containers.append(("spec.router.executor", spec.router.executors.container, EXECUTOR_CONTAINER))
    return containers


def _secrets_within(content: object) -> Iterator[str]:
    """Names of Secrets anywhere in a pod template, in all of the ways in which a pod names one."""
    if isinstance(content, list):
        for each in content:
            yield from _secrets_within(each)
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if key == "secretName" and isinstance(value, str):
            yield value
        elif key in ("secret", "secretRef", "secretKeyRef", "nodePublishSecretRef") and isinstance(value, Mapping):
            yield from (value[name] for name in ("name", "secretName") if isinstance(value.get(name), str))
        elif key == "imagePullSecrets" and isinstance(value, list):
            yield from (
                each["name"] for each in value if isinstance(each, Mapping) and isinstance(each.get("name"), str)
            )
        else:
            yield from _secrets_within(value)


def _image(given: str, usual: str, permissions: Permissions) -> list[Refusal]:
    ours = _repository(given)
    if given == usual or ours == _repository(usual) or any(matches(each, ours) for each in permissions.images):
        return []
    problem = f"{given} is not from the repository {_repository(usual)}; it {_who(f'streams.images: [{ours}]')}"
    return [Refusal("spec.image", problem)]


def _repository(image: str) -> str:
    """The name of an image without tag and digest."""
    name = image.partition("@")[0]
    last = name.rpartition("/")[2]
    return name[: -len(last.partition(":")[2]) - 1] if ":" in last else name


def _option(path: str, name: str, value: str) -> Iterator[Refusal]:
    # Spark's own pages show and end what runs, for anyone who can reach them
    if name.startswith("spark.ui.") or not _PLAIN.fullmatch(value):
        problem = "may name code or a file that Spark loads; numbers, sizes, times, true and false cannot"
        if name.startswith("spark.ui."):
            problem = "configures Spark's web UI, which has no authentication"
        yield Refusal(f"{path}[{name}]", f"{problem}; {_who('streams.options: any')}")


def _who(value: str) -> str:
    return f"is allowed only if the operator was installed with {value} (docs/security.md)"


class _Template:
    """One pod template.

    Args:
        path: of its ``spec``.
        own: name of the operator's container.
        permissions: of the installation.
    """

    def __init__(self, path: str, own: str, permissions: Permissions) -> None:
        self._path, self._own, self._permissions = path, own, permissions
        self._found: list[Refusal] = []

    def refusals(self, template: Mapping[str, Any]) -> list[Refusal]:
        """What it says and may not."""
        given = template.get("spec")
        spec = given if isinstance(given, Mapping) else {}
        for name, value in spec.items():
            if value is None or name in _POD or name in OWNED_BY_OPERATOR:  # what the operator owns is never merged
                continue
            if name == "volumes":
                self._volumes(value)
            elif name == "containers":
                self._containers(value, {each.get("name") for each in _mappings(spec.get("volumes"))})
            elif name == "priorityClassName":
                if str(value).startswith("system-"):
                    self._refuse(name, name, f"{value} has precedence over all pods of the cluster")
            elif name != "imagePullSecrets":  # asked about as all Secrets are
                near = get_close_matches(name.lower(), _NEAR, 1, 0.85)
                self._refuse(name, name, f"did you mean {_NEAR[near[0]]}? Otherwise" if near else "")
        return self._found

    def _volumes(self, volumes: object) -> None:
        for volume in _mappings(volumes):
            for kind in set(volume) - {"name"}:
                place, part = f"volumes[{volume.get('name')}].{kind}", f"volumes.{kind}"
                if kind == "ephemeral":
                    template = _mapping(_mapping(volume, kind), "volumeClaimTemplate")
                    claim = _mapping(template, "spec")
                    for name in _FOREIGN:
                        if name in claim:
                            self._refuse(f"{place}.volumeClaimTemplate.spec.{name}", part)
                    if template.get("metadata"):
                        self._refuse(f"{place}.volumeClaimTemplate.metadata", part)
                elif kind not in _VOLUMES:
                    self._refuse(place, part)

    def _containers(self, containers: object, volumes: set[Any]) -> None:
        for container in _mappings(containers):
            name = container.get("name")
            if name != self._own:
                self._refuse(f"containers[{name}]", "containers", "it is an additional container")
                continue
            for field_name, value in container.items():
                place, part = f"containers[{name}].{field_name}", f"containers.{field_name}"
                if value is None or field_name in _CONTAINER or field_name in OWNED_IN_CONTAINER:
                    continue
                if field_name == "env":
                    self._variables(place, value)
                elif field_name == "volumeMounts":
                    for mount in _mappings(value):
                        if mount.get("name") not in volumes | REPLACEABLE:
                            self._refuse(f"{place}[{mount.get('name')}]", part, "the volume belongs to the operator")
                else:
                    self._refuse(place, part)

    def _variables(self, place: str, variables: object) -> None:
        for variable in _mappings(variables):
            name, value = str(variable.get("name")), variable.get("value")
            where, source = f"{place}[{name}]", _mapping(variable, "valueFrom")
            if any(key not in ("fieldRef", "resourceFieldRef") for key in source):
                self._refuse(f"{where}.valueFrom", "containers.env")
            elif "fieldRef" in source and _mapping(source, "fieldRef").get("fieldPath") not in _OF_THE_POD:
                self._refuse(f"{where}.valueFrom.fieldRef", "containers.env")
            elif value is not None and not (_VARIABLES.fullmatch(name) or _PLAIN.fullmatch(str(value))):
                why = "such variables can make programs load code; numbers, sizes, times, true and false are allowed"
                self._refuse(where, "containers.env", why)

    def _refuse(self, place: str, part: str, why: str = "") -> None:
        if not self._permissions.allows(part):
            told = f"{why}{'' if why.endswith('Otherwise') else ';'} it " if why else ""
            problem = f"{told}{_who(f'streams.podTemplate.allow: [{part}]')}"
            self._found.append(Refusal(f"{self._path}.{place}", problem))


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, Mapping) else {}


def _mappings(items: object) -> list[Mapping[str, Any]]:
    return [each for each in items if isinstance(each, Mapping)] if isinstance(items, list) else []
