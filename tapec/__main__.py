"""``python -m tapec``: see ``tapec.cli``."""

from __future__ import annotations

import sys

from tapec.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
