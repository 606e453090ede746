"""What the operator knows of a stream from one look to the next, and could do without: after a restart it is empty."""

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
    """Of one stream.

    Attributes:
        applied: digest of the objects that were last applied.
        applied_at: when that was, in ms.
        figures: what Prometheus said last.
        asked: executors that the routing store was last told of.
        asked_at: when that was last looked at, in ms.
        balance: what the routing store was last told of balance.
        proposal: the proposal at hand, with its arrays.
        small: objects that had been seen when the sample had kept too few of them for a first tree; 0: it never had.
        said: events about pods that do not start, by the pods' uid, and when they were read, in ms.
        trial: why the pod of an executor would be refused ("": it would not), and when that was tried, in ms.
        others: topics of all streams, and when they were listed, in ms; only before the stream has begun,
            and when its Kafka is known.
        cluster: the id of the Kafka with which the topics of others were last compared; None: with addresses alone.
        used: when it was last looked at which topics the stream uses, in ms.
        checked: digest of the pods that the API server was last asked about.
        wrong: what it said against them.
        refused: whether the API server refused the router's last pod.
        suspended: whether the routing store was last told that the stream is suspended; None: that is not known.
        tried: which image need not be tried, see :func:`~spatialstream_operator.manifests.image_key`.
        secrets: Secrets that the stream may use, and when that was last seen, in ms.
    """

    applied: str = ""
    applied_at: int = 0
    figures: LoadMetrics = field(default_factory=LoadMetrics)
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
