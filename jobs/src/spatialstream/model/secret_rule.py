"""Which Secrets of a Kubernetes cluster streams may use: those with a label, and those that an installation names.

A user who may create a SpatialStream chooses the servers to which its pods log in, and so can read every Secret that a
stream may name. A label, which only users with write access to the namespace's Secrets can set, says which ones these
are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ALLOWED_LABEL", "SecretRule"]

ALLOWED_LABEL = "spatialstream.dev/allowed"
"""Label of a Secret with which streams of its namespace may use it, if its value is ``true``."""


@dataclass(frozen=True, slots=True)
class SecretRule:
    """Which Secrets streams may use.

    Attributes:
        names: of Secrets that need no label, in every namespace; one that ends with ``*`` stands for all that begin so.
    """

    names: Sequence[str] = ()

    def is_named(self, name: str) -> bool:
        """Whether a Secret may be used whatever its labels are."""
        return any(matches(each, name) for each in self.names)

    def problem(self, name: str, labels: Mapping[str, Any] | None) -> str | None:
        """Why streams may not use a Secret; None if they may.

        Args:
            name: of the Secret.
            labels: of the Secret; None if there is no such Secret, or it has none.
        """
        if self.is_named(name) or (labels or {}).get(ALLOWED_LABEL) == "true":
            return None
        return (
            f"streams may not use the Secret {name}: give it the label {ALLOWED_LABEL}=true, or add its name to the "
            "chart's streams.secrets"
        )


def matches(pattern: str, name: str) -> bool:
    """Whether a name is the pattern, or begins as a pattern does that ends with ``*``."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
