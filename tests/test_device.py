"""Devices: their names, which is current, and that a library's own one follows."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import device as as_device
from eagergrad.device import BACKENDS, BUFFERS, CudaBackend, current, report
from eagergrad.errors import DeviceError


class Array(np.ndarray):
    """An array that remembers which device was current when it was made."""

    def __array_finalize__(self, base):
        self.made_on = Driver.current

    @property
    def device(self):
        return SimpleNamespace(id=self.made_on)


class Driver:
    """CUDA's current device, and CuPy's context manager for it."""

    current = 0

    def __init__(self, index):
        self.index = index

    def __enter__(self):
        self.before, Driver.current = Driver.current, self.index

    def __exit__(self, *exc):
        Driver.current = self.before


class FakeCupy:
    """As much of CuPy as creation and random draws need, on a machine with two GPUs."""

    ndarray = Array
    __version__ = "0"
    cuda = SimpleNamespace(
        Device=Driver,
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 2,
            getDeviceProperties=lambda i: {"name": b"Fake", "totalGlobalMem": 2**30},
        ),
    )

    def __getattr__(self, name):
        def call(*args, **options):
            got = getattr(np, name)(*args, **options)
            return got.view(Array) if isinstance(got, np.ndarray) else got

        return call

    def asnumpy(self, x):
        return np.array(x)


@pytest.fixture
def cupy(monkeypatch):
    backend = CudaBackend(FakeCupy())
    backend.fused = False  # it launches nothing
    monkeypatch.setitem(BACKENDS, "cuda", backend)
    monkeypatch.setitem(BUFFERS, Array, backend)
    return backend.xp


def test_the_librarys_current_device_follows(cupy):
    with as_device("cuda:1") as one:
        assert (Driver.current, current()) == (1, one)
        with as_device("cpu"):
            assert current() == "cpu"
            with as_device("cuda:0"), one:
                assert (Driver.current, current()) == (1, one)
        assert (Driver.current, current()) == (1, one)
    assert Driver.current == 0
    with pytest.raises(KeyError), one:
        raise KeyError
    assert Driver.current == 0
    assert current() != one


@pytest.mark.parametrize(
    "make",
    [
        lambda **at: eg.tensor([1.0, 2.0], **at),
        lambda **at: eg.zeros((2, 3), **at),
        lambda **at: eg.full(3, 7, **at),
        lambda **at: eg.arange(5, **at),
        lambda **at: eg.eye(2, **at),
        lambda **at: eg.random.uniform(2.0, 3.0, size=5, **at),
        lambda **at: eg.random.normal(1.0, 2.0, (2, 2), **at),
        lambda **at: eg.random.permutation(5, **at),
        lambda **at: eg.Variable(eg.zeros(2, device="cuda:0"), **at),
    ],
)
def test_what_is_made_is_made_on_the_device(cupy, make):
    assert make(device="cuda:1").device == "cuda:1"
    assert make(device="cuda:0").device == "cuda:0"
    assert Driver.current == 0


def test_zeros_like_are_on_the_device_of_their_model(cupy):
    x = eg.tensor([1.0], device="cuda:1")
    assert eg.zeros_like(x).device == eg.full_like(x, 2).device == "cuda:1"


def test_optimizers_work_on_the_device_of_the_variables(cupy):
    variables = [eg.Variable([1.0], device=d) for d in ("cuda:1", "cpu", "cuda:0")]
    adam = eg.optim.Adam(0.5)
    for _ in range(2):
        adam.apply_gradients(
            [(eg.tensor([1.0], device=v.device), v) for v in variables]
        )
    assert [str(v.device) for v in variables] == ["cuda:1", "cpu", "cuda:0"]
    assert [v.item() for v in variables] == pytest.approx([0.0] * 3, abs=1e-6)
    g = eg.tensor([1.0], device="cuda:1")
    with pytest.raises(DeviceError, match=r"on cuda:1, its variable on cuda:0"):
        adam.apply_gradients([(g, variables[2])])


def test_variables_are_updated_on_their_device(cupy):
    v = eg.Variable([1.0], device="cuda:1")
    v.assign_add([2.0]).assign_sub([0.5])
    assert (v.device, v.item()) == ("cuda:1", 2.5)


def test_report_lists_the_gpus(cupy):
    rows = dict(report())
    assert rows["cuda:0"] == rows["cuda:1"] == "Fake, 1 GiB"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "device 'gpu' is unknown; there are: cpu, cuda"),
        ("cpu:1", "device 'cpu:1' is unknown"),
        ("cuda:x", "expected KIND:NUMBER, got 'cuda:x'"),
        ("cuda:2", "device 'cuda:2' is not available: this machine has 2 CUDA"),
        (3, "expected a name"),
    ],
)
def test_names_that_mean_nothing(cupy, name, message):
    with pytest.raises(DeviceError, match=message):
        as_device(name)


def test_the_environment_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys.modules["eagergrad.device"], "_default", None)
    monkeypatch.setenv("EAGERGRAD_DEVICE", "gpu")
    with pytest.raises(
        DeviceError, match=r"^EAGERGRAD_DEVICE: device 'gpu' is unknown"
    ):
        eg.zeros(1)
    assert dict(report())["default device"].startswith("none: EAGERGRAD_DEVICE: ")
    assert eg.zeros(1, device="cpu").device == "cpu"
    monkeypatch.setenv("EAGERGRAD_DEVICE", "cpu")
    assert current() == "cpu"
