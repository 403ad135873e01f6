"""The examples in the docstrings: run as written, with the public names at hand."""

import builtins
import doctest
import importlib
import pkgutil
import warnings

import numpy as np
import pytest

import eagergrad as eg

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(eg.__path__, "eagergrad.")
    if not name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    public = {k: v for k, v in vars(eg).items() if k[:1] != "_"}
    names = {k: v for k, v in public.items() if not hasattr(builtins, k)}
    names |= {"np": np, "eg": eg, "current": eg.device.__globals__["current"]}
    names |= vars(module)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=flags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        for test in doctest.DocTestFinder(exclude_empty=True).find(
            module, name, extraglobs=names
        ):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
