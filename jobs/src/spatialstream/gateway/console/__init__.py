"""The web console: pages that show a stream, and the data that they need beyond the programming interface.

The pages are plain ES modules under ``static``; third-party code is under ``vendor``, where ``scripts/console.sh`` puts
it. The paths under ``/streams/{stream}/console`` are internal to the pages of the same release.
"""

from spatialstream.gateway.console.pages import Pages
from spatialstream.gateway.console.routes import Console

__all__ = ["Console", "Pages"]
