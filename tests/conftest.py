"""Which tests run where."""

import pytest

from eagergrad.device import NUMPY
from eagergrad.primitive import forget
from eagergrad.traced import TRACE


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that need a GPU, unless ``-m`` speaks of them.

    Asked for, they run, and fail on a machine without one.
    """
    if "gpu" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU: make gpu-test")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture
def composed():
    """Ops without kernels on the CPU: composed of NumPy's functions."""
    with pytest.MonkeyPatch.context() as patch:
        for backend in (NUMPY, TRACE):
            patch.setattr(backend, "fused", False)
        forget()
        yield
    forget()
