"""What was asked of the GPUs, counted: "this step makes at most N launches" is a test.

>>> COUNTERS.clear()
>>> COUNTERS
Counters(launches=0, allocations=0, copies=0, syncs=0, bytes=0)
"""

from __future__ import annotations


class Counters:
    """Counts since the last ``clear``, of this process.

    launches: kernels of this project, and products of matrices, that were started; what
    CuPy starts for a composed op is its own, and a graph is one, however many it
    starts.  allocations: buffers made for their results, and for what they keep between
    two launches.  copies: arrays copied between host and device, or between devices, of
    ``bytes`` bytes together.  syncs: how often the host waited for a device, which a
    copy to the host does.
    """

    __slots__ = ("allocations", "bytes", "copies", "launches", "syncs")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Count from zero again."""
        self.launches = self.allocations = self.copies = self.syncs = self.bytes = 0

    def __repr__(self) -> str:
        names = ("launches", "allocations", "copies", "syncs", "bytes")
        counts = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"{type(self).__name__}({counts})"


COUNTERS = Counters()
