"""Random numbers from a seed and a counter: what ``eg.random`` offers."""

from .ops.random import GENERATOR as GENERATOR
from .ops.random import Generator as Generator
from .ops.random import normal as normal
from .ops.random import permutation as permutation
from .ops.random import seed as seed
from .ops.random import uniform as uniform

__all__ = sorted(name for name in globals() if not name.startswith("_"))
