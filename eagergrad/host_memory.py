"""How much of the memory that arrays gave back a process keeps, on the CPU.

A training step allocates and frees the same arrays again and again.  glibc gives memory
back to the system when some 100 kB lie free at a heap's end (later, twice the largest
array so far), and the system zeroes every page that is asked for anew, which takes
longer than most ops on it.  With the limits below it keeps what a step of a small model
frees.  Other C libraries have no such limits; ``MALLOC_TRIM_THRESHOLD_``,
``MALLOC_MMAP_THRESHOLD_`` or ``GLIBC_TUNABLES`` in the environment is left as it is.

Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
import sys

KEPT = 256 << 20  # bytes
LARGEST = 32 << 20  # of an array that comes from a heap: no more is taken
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of <malloc.h>
NAMES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep() -> str:
    """Set the limits of this process; say what it keeps, or who decides."""
    for name in NAMES:
        if name in os.environ:
            return f"as {name} says"
    mallopt = None
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return "as the C library decides"
    # the first of them to be set ends glibc's own guesses for both
    if mallopt(MMAP_THRESHOLD, LARGEST) and mallopt(TRIM_THRESHOLD, KEPT):
        return f"up to {KEPT >> 20} MiB, for the next arrays"
    return "as the C library decides"


RETAINED = keep()
