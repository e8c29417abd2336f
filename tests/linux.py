"""The mark of tests that need Linux.

Executables of hooks run there only, and only its /proc shows the processes of a program.
"""

import sys

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
