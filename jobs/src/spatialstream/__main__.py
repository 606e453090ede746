"""Entry point of ``python -m spatialstream``."""

import sys

from spatialstream.cli import main

sys.exit(main())
