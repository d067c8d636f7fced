"""Imported first by every program here: says in one line that cascade is not installed.

The programs import cascade at their top, where nothing of their own could catch that it is missing.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("cascade") is None:
    program = Path(sys.argv[0]).name
    print(
        f"{program}: cascade isn't installed for {sys.executable}; in its checkout, run: "
        f"{sys.executable} -m pip install -e .",
        file=sys.stderr,
    )
    sys.exit(2)
