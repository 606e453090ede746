"""kubectl and Helm as a person uses them, with waiting."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CommandError", "Kube", "trouble", "wait_for"]

_EVERY = 1.0
_WARNINGS = 20


class CommandError(AssertionError):
    """A command has failed."""


def run(command: Sequence[str], data: bytes | None = None, timeout: float = 180.0) -> str:
    """Run a command to its end; what it printed."""
    said = " ".join(command)[:300]
    try:
        done = subprocess.run(list(command), input=data, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{said}: not done after {timeout:.0f} s") from error
    if done.returncode:
        raise CommandError(f"{said}: exit status {done.returncode}\n{done.stderr.decode()}{done.stdout.decode()}")
    return done.stdout.decode()


def trouble() -> str:
    """What is wrong in the cluster: with its nodes, the pods that are not ready and why, and the last warnings."""
    try:
        nodes, pods = (
            json.loads(run(["kubectl", "get", kind, "-A", "-o", "json"]))["items"] for kind in ("nodes", "pods")
        )
        warnings = run(
            ["kubectl", "get", "events", "-A", "--field-selector=type=Warning", "--sort-by=.metadata.creationTimestamp"]
        )
    except CommandError as error:
        return f"what is wrong in the cluster cannot be seen: {error}"
    told = [line for each in nodes for line in _node_trouble(each)]
    told += [line for each in pods for line in _pod_trouble(each)]
    return "\n".join([*told, "the last warnings:", *warnings.splitlines()[-_WARNINGS:]])


def _node_trouble(node: dict[str, Any]) -> list[str]:
    name, taints = node["metadata"]["name"], node["spec"].get("taints", [])
    told = [f"node {name} has the taint {each['key']}:{each['effect']}" for each in taints]
    for each in node["status"].get("conditions", []):
        if (each["status"] == "True") != (each["type"] == "Ready"):
            told.append(f"node {name}: {each['type']} is {each['status']}: {each.get('message', '')}")
    return told


def _pod_trouble(pod: dict[str, Any]) -> list[str]:
    """Why a pod is not ready; nothing if it is, or has done its work."""
    status = pod["status"]
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if status.get("phase") == "Succeeded" or conditions.get("Ready", {}).get("status") == "True":
        return []
    told = [status, *(each for each in conditions.values() if each["status"] != "True")]
    for each in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        told += [why for name, why in each.get("state", {}).items() if name != "running" and why.get("exitCode") != 0]
    # the conditions repeat each other
    reasons = dict.fromkeys(f"{each.get('reason', '')} {each.get('message', '')}".strip() for each in told)
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    return [f"pod {name} is {status.get('phase')}: " + "; ".join(filter(None, reasons)), *_last_words(pod)]


def _last_words(pod: dict[str, Any]) -> list[str]:
    """The end of what containers wrote before they were started again."""
    told = []
    for each in pod["status"].get("containerStatuses", []):
        if each.get("restartCount"):
            where = ["-n", pod["metadata"]["namespace"], pod["metadata"]["name"], "-c", each["name"]]
            try:
                log = run(["kubectl", "logs", "--previous", "--tail=15", *where])
            except CommandError as error:
                log = str(error)
            told += [f"    {each['name']}: {line}" for line in log.splitlines()]
    return told


def wait_for(what: str, condition: Callable[[], Any], timeout: float, state: Callable[[], object] = trouble) -> Any:
    """Wait until a condition holds; what it gave.

    Args:
        what: is waited for, in words.
        condition: something true once it holds. A command that fails meanwhile counts as not yet.
        timeout: in seconds.
        state: is shown if it never does.
    """
    ends = time.monotonic() + timeout
    failure = ""
    while time.monotonic() < ends:
        try:
            if found := condition():
                return found
            failure = ""
        except CommandError as error:
            failure = str(error)
        time.sleep(_EVERY)
    raise AssertionError(f"waited {timeout:.0f} s for {what}: {failure}\n{state()}")


@dataclass(frozen=True)
class Kube:
    """A cluster: the one that ``KUBECONFIG`` points at.

    Attributes:
        namespace: where commands work that do not say otherwise.
    """

    namespace: str

    @staticmethod
    def check() -> None:
        """Fail with what is missing."""
        for tool in ("kubectl", "helm"):
            assert shutil.which(tool), f"{tool} is not on the PATH"
        assert os.environ.get("KUBECONFIG"), "KUBECONFIG does not say which cluster to use"
        run(["kubectl", "get", "--raw", "/readyz"], timeout=30.0)

    def kubectl(self, *arguments: str, data: bytes | None = None, timeout: float = 180.0) -> str:
        """Run kubectl in the namespace."""
        return run(["kubectl", "-n", self.namespace, *arguments], data, timeout)

    def helm(self, *arguments: str, timeout: float = 600.0) -> str:
        """Run Helm in the namespace; why nothing came of it, if it fails: Helm itself only says that it has waited."""
        try:
            return run(["helm", "-n", self.namespace, *arguments], timeout=timeout)
        except CommandError as error:
            raise CommandError(f"{error}\n{trouble()}") from None

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests."""
        text = "\n---\n".join(json.dumps(each) for each in manifests)
        self.kubectl("apply", "-f", "-", data=text.encode())

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object; None if there is none."""
        text = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects with these labels."""
        chosen = ["-l", selector] if selector else []
        return list(json.loads(self.kubectl("get", kind, *chosen, "-o", "json"))["items"])

    def exec(self, pod: str, *command: str, data: bytes | None = None, timeout: float = 180.0) -> str:
        """Run a command in a pod."""
        flags = ["-i"] if data is not None else []
        return self.kubectl("exec", *flags, pod, "--", *command, data=data, timeout=timeout)

    def kill(self, pod: str) -> None:
        """End a pod without giving it time for anything."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def uid(self, pod: str) -> str:
        """Which pod this is; "" if there is none."""
        found = self.get("pod", pod)
        return "" if found is None else str(found["metadata"]["uid"])

    def ready(self, pod: str, other_than: str = "") -> bool:
        """Whether a pod is ready, and is not the one of this uid."""
        found = self.get("pod", pod)
        if found is None or found["metadata"]["uid"] == other_than or "deletionTimestamp" in found["metadata"]:
            return False
        conditions = found.get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def can(self, account: str, verb: str, resource: str, namespace: str | None = None) -> bool:
        """Whether a service account (``namespace:name``) may do something; in all namespaces if none is named."""
        where = ["--all-namespaces"] if namespace is None else ["-n", namespace]
        resource, _, below = resource.partition("/")
        who = ["--subresource", below, "--as", f"system:serviceaccount:{account}"]
        done = subprocess.run(
            ["kubectl", "auth", "can-i", verb, resource, *where, *who],
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
        return done.stdout.strip() == "yes"
