"""The operator as a process of its own, with its own account's rights and nothing more."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import ClassVar

from spatialstream.servers.ports import free_port
from spatialstream.servers.process import Server
from tests.api.client import Api, RefusalError
from tests.api.play import Played
from tests.api.servers import ApiServer

__all__ = ["OperatorProcess"]


class OperatorProcess(Server):
    """``python -m spatialstream_operator``; its port is that of the probes.

    Args:
        folder: for its kubeconfig and its log.
        server: the API server.
        token: of its account.
        namespace: where it lives.
        pod: the name by which it holds its lease.
        settings: more of its variables, without their common prefix.
    """

    name: ClassVar[str] = "operator"

    def __init__(
        self, folder: Path, server: ApiServer, token: str, namespace: str, pod: str = "operator-0", **settings: str
    ) -> None:
        super().__init__(folder)
        self.metrics_port = free_port()
        self._server, self._token = server, token
        ports = {"HEALTH_PORT": str(self.port), "METRICS_PORT": str(self.metrics_port)}
        usual = {"INTERVAL": "0.5", "LEASE": "10", "IMAGE": "spark:test", "LOG_LEVEL": "info"}
        self._variables = {
            **{f"SPATIALSTREAM_OPERATOR_{name}": value for name, value in {**usual, **ports, **settings}.items()},
            "POD_NAME": pod,
            "POD_NAMESPACE": namespace,
            "KUBECONFIG": str(folder / "kubeconfig"),
            "NO_PROXY": "127.0.0.1",
        }

    @property
    def ready(self) -> bool:
        """Whether it looks after streams."""
        return self._answers_at("/readyz")

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample of its metrics; None if there is none."""
        text = Api(f"http://127.0.0.1:{self.metrics_port}").text("/metrics")
        for line in text.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if (
                found
                and found[1] == name
                and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")).items()
            ):
                return float(found[3])
        return None

    def reconciliations(self, stream: Played) -> float:
        """How often it has reconciled a stream without a failure."""
        name, labels = "spatialstream_operator_reconciles_total", {"namespace": stream.namespace, "stream": stream.name}
        return sum(self.metric(name, **labels, outcome=outcome) or 0.0 for outcome in ("done", "waiting"))

    def _configure(self) -> None:
        (self.folder / "kubeconfig").write_text(json.dumps(self._server.kubeconfig(self._token)))

    def _command(self) -> list[str]:
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        path = f"PYTHONPATH={os.pathsep.join(each for each in sys.path if each)}"
        return ["env", path, *variables, sys.executable, "-m", "spatialstream_operator"]

    def answers(self) -> bool:
        return self._answers_at("/healthz")

    def _answers_at(self, path: str) -> bool:
        with contextlib.suppress(OSError, RefusalError):
            return Api(f"http://127.0.0.1:{self.port}").text(path) == "ok\n"
        return False
