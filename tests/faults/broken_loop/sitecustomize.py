"""Makes the loop of the controller's gauges fail as soon as a file exists.

Python runs this module before the program if PYTHONPATH names this folder.
"""

import os
from pathlib import Path

from reconciler.controller.gauges import Gauges

_NOW = Path(os.environ["RETROFIT_TEST_BROKEN"])
_look = Gauges.look


def _break(gauges: Gauges) -> None:
    if _NOW.exists():
        raise ZeroDivisionError("a fault that a test wants")
    _look(gauges)


Gauges.look = _break  # type: ignore[method-assign, assignment]
