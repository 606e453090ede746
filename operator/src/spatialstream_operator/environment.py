"""The dependencies of all controllers: cluster client, routing stores, settings, metrics, clock, gateway client."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spatialstream.model.secret_rule import SecretRule
from spatialstream_operator.cluster import Cluster
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.gateway import Gateway
from spatialstream_operator.metrics import OperatorMetrics
from spatialstream_operator.permissions import Permissions
from spatialstream_operator.spec import OperatorDefaults
from spatialstream_operator.stores import Stores

__all__ = ["Environment", "wall_clock"]


def wall_clock() -> int:
    """The time, in ms since 1970-01-01 UTC."""
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies that all streams share.

    Attributes:
        cluster: client of the Kubernetes API.
        stores: connections to ZooKeeper.
        config: settings of this installation.
        metrics: the operator's own metrics.
        now: returns the time, in ms since 1970-01-01 UTC.
        gateway: client of the gateway that registers queries; None if there is none.
    """

    cluster: Cluster
    stores: Stores
    config: OperatorConfig
    metrics: OperatorMetrics
    now: Callable[[], int] = wall_clock
    gateway: Gateway | None = None

    @property
    def defaults(self) -> OperatorDefaults:
        """Default settings of streams."""
        return OperatorDefaults(self.config.image, self.config.image_pull_policy, self.config.prometheus_url)

    @property
    def permissions(self) -> Permissions:
        """What streams may say."""
        config = self.config
        return Permissions(config.template_allow, config.options_any, config.images, SecretRule(config.secrets))
