"""Settings of load balance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spatialstream.model.errors import SettingError

__all__ = ["DKM", "EVERYWHERE", "FORMS", "NEAREST", "SETTLE", "BalanceSettings"]

FORMS = ("weighted", "printed")
"""Forms of ĥ of Eqn 3, see :attr:`BalanceSettings.printed`; the first is the default."""

SETTLE, EVERYWHERE, DKM = NEAREST = "settle", "everywhere", "dkm"
"""Where CKQs are: on every slot until they settle, and then where their circles are (SSTD, section 6.3), which is the
default; on every slot for good; or each on one slot, to which objects go as copies (DkM-SKS, 2020), as long as the
stream exists. Answers are the same."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """The threshold of load imbalance, and parameters of tree adjustment (SSTD, section 5; defaults of section 7.6).

    Attributes:
        imbalance: λ; load is imbalanced if Lmax / Lmin over the slots is larger (definition 4). Greater than 1.
        similarity: ε; a leaf is split by space if the queries of its quarters are at most this similar (ĥ of Eqn 3),
            and by text otherwise. From 0 to 1; ĥ is between 0.25 and 1.
        leaves: maximum number of leaves that FG creates, unless the tree already has more. At least 1.
        printed: whether ĥ is Eqn 3 as printed in the paper, which gives a rare type of query the same influence as a
            frequent one. Otherwise types are weighted by their probabilities.

    Raises:
        SettingError: a value is invalid; the message names it.
    """

    imbalance: float = 6.0
    similarity: float = 0.5
    leaves: int = 1024
    printed: bool = False

    def __post_init__(self) -> None:
        """Validate the values."""
        if not (math.isfinite(self.imbalance) and self.imbalance > 1.0):
            raise SettingError("imbalance", f"{self.imbalance} is not a threshold of Lmax/Lmin; give more than 1")
        if not 0.0 <= self.similarity <= 1.0:
            raise SettingError("similarity", f"{self.similarity} is not a similarity; give 0 to 1")
        if self.leaves < 1:
            raise SettingError("leaves", f"{self.leaves} is not a number of leaves; give at least 1")
