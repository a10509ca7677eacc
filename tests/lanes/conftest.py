"""Where numba is missing, there are no lanes to test."""

import pytest

pytest.importorskip("numba")
