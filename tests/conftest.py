"""Which tests run where."""

import pytest


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
