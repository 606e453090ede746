"""What can be chosen about load balance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spatialstream.model.errors import SettingError

__all__ = ["FORMS", "BalanceSettings"]

FORMS = ("weighted", "printed")
"""How ĥ of Eqn 3 may be taken, see :attr:`BalanceSettings.printed`; the first is the default."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """When load counts as imbalanced, and how a tree is adjusted (SSTD, section 5; defaults of section 7.6).

    Attributes:
        imbalance: λ; there is load imbalance if Lmax / Lmin over the slots is larger (definition 4). More than 1.
        similarity: ε; a leaf is split by space if the queries of its quarters are at most this similar (ĥ of Eqn 3),
            and by text otherwise. From 0 to 1: ĥ lies between 0.25 and 1.
        leaves: FG makes no tree with more leaves than this, unless the tree has more already. At least 1.
        printed: whether ĥ is Eqn 3 as the paper prints it, where a rare type of query says as much as a frequent one.
            Otherwise types count by how probable they are.

    Raises:
        SettingError: a value makes no sense; names it.
    """

    imbalance: float = 6.0
    similarity: float = 0.5
    leaves: int = 1024
    printed: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not (math.isfinite(self.imbalance) and self.imbalance > 1.0):
            raise SettingError("imbalance", f"{self.imbalance} is no threshold of Lmax/Lmin; give more than 1")
        if not 0.0 <= self.similarity <= 1.0:
            raise SettingError("similarity", f"{self.similarity} is no similarity; give 0 to 1")
        if self.leaves < 1:
            raise SettingError("leaves", f"{self.leaves} is no number of leaves; give at least 1")
