"""How this program is called here, for messages that tell a person what to type."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["program"]


def program() -> str:
    """What to type to call this program here: its name where the shell finds it, and otherwise where it is."""
    called = Path(sys.argv[0])
    if called.name != "spatialstream" or not called.is_file():
        return f"{shlex.quote(sys.executable)} -m spatialstream"
    found = shutil.which("spatialstream")
    if found is not None and Path(found).resolve() == called.resolve():
        return "spatialstream"
    return shlex.quote(str(called))
