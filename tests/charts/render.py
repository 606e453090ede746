"""Charts as the objects that they become, with the real Helm, and without a cluster."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
OPERATOR = CHARTS / "spatialstream"
SERVICES = CHARTS / "spatialstream-dev"
KUBERNETES = "1.31.0"
"""The version that Helm is told to render for; a Helm without a cluster would otherwise take its own library's."""


class ChartError(Exception):
    """Helm or promtool has refused; the message is theirs."""


@cache
def tool(name: str) -> str:
    """The path of helm, helm-unittest or promtool; `scripts/tools.sh` gets it if it has to."""
    done = subprocess.run([ROOT / "scripts" / "tools.sh", name], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def helm(*arguments: str | Path, values: Mapping[str, Any] | None = None) -> str:
    """Run Helm, away from any cluster and from any settings of the user.

    Raises:
        ChartError: it has failed.
    """
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    command = [tool("helm"), *arguments, "--kube-version", KUBERNETES, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise ChartError(done.stderr + done.stdout)
    return done.stdout


def promtool(*arguments: str | Path) -> str:
    """Run promtool.

    Raises:
        ChartError: it has found something wrong.
    """
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ChartError(done.stdout + done.stderr)
    return done.stdout


def render(
    chart: Path | str,
    values: Mapping[str, Any],
    release: str = "spatialstream",
    namespace: str = "spatialstream-system",
    *extra: str,
) -> list[dict[str, Any]]:
    """The objects of a chart in the order in which Helm installs them; its tests (hooks) come last.

    Args:
        chart: its folder, or the name of one under `charts/`.
        values: in place of the chart's own.
        release: name of the release.
        namespace: where it is installed.
        extra: more arguments of `helm template`.

    Raises:
        ChartError: Helm refuses the values.
    """
    folder = CHARTS / chart  # a path that is absolute stays what it is
    text = helm("template", release, folder, "--namespace", namespace, *extra, values=values)
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The only object of a kind and a name."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The objects of some kinds."""
    return [each for each in objects if each["kind"] in kinds]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pod that the objects describe: (name, {metadata, spec})."""
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each
        elif "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]
