"""A cache of what the operator knows of a stream between reconciliations. It is empty after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from spatialstream.balance.proposal import Proposal
from spatialstream.balance.settings import BalanceSettings
from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions.topics import Claim
from spatialstream_operator.load_metrics import LoadMetrics

__all__ = ["Memory"]


@dataclass(slots=True)
class Memory:
    """The cache of one stream.

    Attributes:
        applied: digest of the objects that were last applied.
        applied_at: when that was, in ms.
        load_metrics: the last metrics from Prometheus.
        asked: by job, the number of executors last written to the routing store, and when it was last checked, in ms.
        balance: the balance settings last written to the routing store.
        proposal: the current proposal, with its arrays.
        small: number of objects seen when the sample was last too small for a first tree; 0 if it never was.
        said: events about pods that do not start, by uid of the pod, and when they were read, in ms.
        trials: by job, when the admission of an executor's pod was last tested, in ms, and why it would be rejected
            ("" if it would not).
        others: topic claims of all streams, and when they were listed, in ms; only before the stream has started, and
            when its Kafka becomes known.
        cluster: id of the Kafka cluster when the topics were last compared; None: only addresses were compared.
        used: when the topics that the stream uses were last read from the routing store, in ms.
        checked: digest of the pods that the API server last validated.
        wrong: its objection to them, if any.
        refused: whether the API server rejected the router's last pod.
        suspended: whether the routing store was last told that the stream is suspended; None: that is not known.
        tried: which image need not be tried, see :func:`~spatialstream_operator.manifests.image_key`.
        secrets: Secrets that the stream may use, and when that was last seen, in ms.
    """

    applied: str = ""
    applied_at: int = 0
    load_metrics: LoadMetrics = field(default_factory=LoadMetrics)
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    balance: BalanceSettings | None = None
    proposal: Proposal | None = None
    small: float = 0.0
    said: dict[str, tuple[int, list[Object]]] = field(default_factory=dict)
    trials: dict[str, tuple[int, str]] = field(default_factory=dict)
    others: tuple[int, list[Claim]] | None = None
    cluster: str | None = None
    used: int | None = None
    checked: str = ""
    wrong: SettingError | None = None
    refused: bool = False
    suspended: bool | None = None
    tried: str = ""
    secrets: dict[str, int] = field(default_factory=dict)
