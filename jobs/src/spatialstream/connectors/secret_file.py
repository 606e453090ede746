"""Fetches the secret of Spark's processes for an executor, if the checkpoint is no folder that it could mount.

Usage: python -m spatialstream.connectors.secret_file CHECKPOINT FILE

The driver has put it into the checkpoint, under the name of the file, before it started any executor.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spatialstream.connectors.disk import private_file
from spatialstream.connectors.places import storage_at
from spatialstream.model.errors import SpatialStreamError

__all__ = ["bring"]


def bring(checkpoint: str, path: Path) -> None:
    """Write the file.

    Raises:
        Missing: the checkpoint has no file of its name.
        NoStorage: the checkpoint cannot be reached, or denies access.
        OSError: the file cannot be written.
    """
    secret = storage_at(checkpoint, "checkpoint").get(path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    private_file(path, secret.to_pybytes())


if __name__ == "__main__":
    try:
        bring(sys.argv[1], Path(sys.argv[2]))
    except (SpatialStreamError, OSError) as error:
        sys.exit(f"spatialstream: the secret of Spark's processes: {error}")
