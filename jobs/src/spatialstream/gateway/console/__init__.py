"""The console: pages that show a stream to people, and what they need besides the interface for programs.

The pages are plain ES modules under ``static``; what they are made of besides is under ``vendor``, where
``scripts/console.sh`` puts it. What is served under ``/streams/{stream}/console`` is for these pages, of this release.
"""

from spatialstream.gateway.console.routes import Console

__all__ = ["Console"]
