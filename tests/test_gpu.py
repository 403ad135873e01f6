"""The public interface on an NVIDIA GPU, against the CPU: ``make gpu-test``.

Without a GPU these tests fail, they are not skipped; a plain run of pytest leaves them
out.  They need a C++ compiler too, for the CPU's kernels.
"""

import copy
import pickle
import sys

import numpy as np
import pytest
from kernel_operands import operands
from op_cases import ALL, SMOOTH, case_on, first, second

import eagergrad as eg
from eagergrad import cuda_kernels, host_kernels, kernels, primitive
from eagergrad.counters import COUNTERS
from eagergrad.errors import OutOfMemoryError
from eagergrad.gemm import gemm
from eagergrad.training import Config, train

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 3)).astype("float32")
B = RNG.standard_normal((3, 5)).astype("float32")
LABELS = np.array([0, 4, 2, 1])


def close(got, expected, rtol=1e-5, atol=1e-6):
    """Whether a tensor on the GPU has the values, dtype and shape of one on the CPU."""
    assert got.device == "cuda:0"
    assert expected.device == "cpu"
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=rtol, atol=atol)
    return True


def on_both(f, *arrays):
    """Compare the values and gradients of f on the GPU with those on the CPU."""
    results = []
    for device in ("cuda", "cpu"):
        sources = [eg.tensor(array, device=device) for array in arrays]
        with eg.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            y = f(*sources)
        results.append([y, *tape.gradient(y, sources)])
    for got, expected in zip(*results, strict=True):
        assert close(got, expected)


def agree(got, expected):
    """The values on the GPU are those of the CPU in float64, but for roundings."""
    assert got.device == "cuda:0"
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_op(case):
    there = case_on(case, eg.device("cuda"))
    y = there(*[eg.tensor(x, device="cuda") for x in case.arrays])
    expected = case(*[eg.tensor(x, device="cpu") for x in case.arrays])
    for pair in zip(eg.nest.flatten(y), eg.nest.flatten(expected), strict=True):
        agree(*pair)


@pytest.mark.parametrize("derivative", [first, second])
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_every_gradient(case, derivative):
    results = []
    for device in ("cuda", "cpu"):
        there = case_on(case, eg.device(device))
        arrays = [eg.tensor(x, device=device) for x in case.arrays]
        results.append(derivative(there, arrays, [arrays[i] for i in case.sources]))
    for got, expected in zip(*results, strict=True):
        if expected is None:
            assert got is None
        else:
            agree(got, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", [kernel.name for kernel in cuda_kernels.on_gpus()])
def test_every_kernel(name, dtype):
    """Against the CPU's kernel, which the tests hold against the composed op."""
    kernel = kernels.catalogue()[name]
    device = eg.device("cuda")
    given, results = operands(kernel, dtype)
    there = [
        eg.tensor(x, device=device)._data if isinstance(x, np.ndarray) else x
        for x in (*given, *results)
    ]
    got = primitive.kernel(name, device.backend)(*there)
    expected = host_kernels.compiled(name)(*given, *results)
    if kernel.outputs == 1:
        got, expected = [got], [expected]
    for y, z in zip(got, expected, strict=True):
        assert y.dtype == z.dtype
        eps = np.finfo(z.dtype).eps if z.dtype.kind == "f" else 0
        scale = max(1, abs(z.astype(float)).max())
        np.testing.assert_allclose(device.backend.get(y), z, 64 * eps, 64 * eps * scale)


def test_kernels_are_launched_and_nothing_waits():
    x = eg.tensor(A, device="cuda")
    with eg.GradientTape() as tape:
        tape.watch(x)
        COUNTERS.clear()
        y = eg.softplus(x)
        tape.gradient(y, x, x)
    assert (COUNTERS.launches, COUNTERS.allocations) == (2, 2)
    assert (COUNTERS.copies, COUNTERS.syncs) == (0, 0)


def test_the_module_is_kept():
    eg.softplus(eg.tensor(A, device="cuda"))
    assert all(map(cuda_kernels.cached, cuda_kernels.present()))


def test_what_no_kernel_serves_is_composed():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    on_both(lambda x: eg.softmax(x, 1) * eg.softplus(x[:, ::-1]), x)


def test_two_runs_are_bit_equal():
    def run():
        eg.random.seed(3)
        x = eg.random.normal(size=(64, 300), device="cuda")
        w = eg.Variable(eg.random.normal(size=(300, 50), device="cuda"))
        labels = eg.random.permutation(64, device="cuda") % 50
        index = eg.random.permutation(64, device="cuda") % 7
        adam = eg.optim.Adam(0.01)

        @eg.implicit_value_and_gradients
        def step():
            h = eg.take(eg.softplus(x @ w), index, axis=0)
            return eg.mean(eg.softmax_cross_entropy(h, labels))

        for _ in range(5):
            loss, pairs = step()
            adam.apply_gradients(pairs)
        return [loss.tolist(), w.read_value().tolist()]

    assert run() == run()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (lambda x: x[0], lambda y: y[0]),
        (lambda x: x[0, :, :5], lambda y: y[0, :5]),
        (lambda x: x[0, :, ::2], lambda y: y[0, ::2]),
        (lambda x: x[0].T, lambda y: y[0, :20, ::-1]),
        (lambda x: x, lambda y: y),
        (lambda x: x, lambda y: y[0]),
        (lambda x: x[:, None], lambda y: y),  # each by each
        (lambda x: x[:, 0], lambda y: y[0]),
        (lambda x: x, lambda y: y[0, :, 0]),
    ],
)
def test_products(a, b, dtype):
    """Small whole numbers, whose products every dtype has without rounding."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-2, 3, (3, 20, 30)), rng.integers(-2, 3, (3, 30, 40))
    expected = np.matmul(a(x), b(y))
    left, right = [eg.tensor(v.astype("f4"), dtype, device="cuda") for v in (x, y)]
    COUNTERS.clear()
    got = eg.matmul(a(left), b(right))
    assert COUNTERS.launches
    np.testing.assert_array_equal(got.astype("float64").numpy(), expected)


def test_float32_products_keep_their_bits_unless_told():
    x = eg.full((64, 64), 1 + 2.0**-12, device="cuda")
    one = eg.eye(64, device="cuda")
    assert (x @ one).tolist() == x.tolist()
    with eg.matmul_precision("tf32"):
        got = (x @ one).numpy()
    assert np.abs(got - 1.0).max() <= 2.0**-11  # before Ampere there is no TF32


def test_products_add_up_in_place():
    x, y = [eg.tensor(v, "float64", device="cuda")._data for v in (A, B)]
    driver = eg.device("cuda").backend.driver
    out = gemm(driver, x, y)
    gemm(driver, x, y, out=out, alpha=2.0, beta=3.0)
    expected = 5.0 * A.astype("f8") @ B.astype("f8")
    np.testing.assert_allclose(out.get(), expected, 1e-12)


def test_products_and_their_gradients_can_be_captured():
    import cupy

    x, w = eg.tensor(A, device="cuda"), eg.tensor(B, device="cuda")
    seed = eg.ones((4, 5), device="cuda")

    def step():
        with eg.GradientTape() as tape:
            tape.watch([x, w])
            y = x @ w
        return [y, *tape.gradient(y, [x, w], seed)]

    cupy.cuda.get_current_stream().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        expected = [t.tolist() for t in step()]
        stream.begin_capture()
        try:
            made = step()
        finally:
            graph = stream.end_capture()
        for t in made:
            t._data.fill(0)
        graph.launch(stream)
        stream.synchronize()
        assert [t.tolist() for t in made] == expected


def test_out_of_memory_is_told_and_passes():
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 2**24)
    try:
        x = eg.zeros(2**20, device="cuda")
        y = eg.broadcast_to(x, (64, 2**20))
        for name, make in {
            "zeros": lambda: eg.zeros((64, 2**20), device="cuda"),
            "random.uniform": lambda: eg.random.uniform(size=2**26, device="cuda"),
            "tensor": lambda: eg.tensor(np.zeros(2**26, "f4"), device="cuda"),
            "to": lambda: eg.zeros(2**26, device="cpu").to("cuda"),
        }.items():
            with pytest.raises(OutOfMemoryError, match=f"^{name}: .* bytes are in use"):
                make()
        with pytest.raises(OutOfMemoryError, match=r"softplus: .* bytes are in use"):
            eg.softplus(y)
        with pytest.raises(OutOfMemoryError, match=r"multiply: .* bytes are in use"):
            y * y
        assert eg.softplus(x).shape == (2**20,)
    finally:
        pool.set_limit(size=0)


def test_two_streams():
    import cupy

    x = eg.tensor(A, device="cuda")
    results = []
    for _ in range(2):
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        with stream:
            y = eg.softplus(x) * eg.softmax(x)
            stream.synchronize()
        results.append(y)
    here = eg.tensor(A, device="cpu")
    for got in results:
        assert close(got, eg.softplus(here) * eg.softmax(here))


def test_dlpack_shares_memory_with_pytorch():
    torch = pytest.importorskip("torch")
    array = torch.arange(6, dtype=torch.float32, device="cuda")
    x = eg.from_dlpack(array)
    array += 1
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    back = torch.from_dlpack(x * 2.0)
    assert back.is_cuda
    assert back.tolist() == [2, 4, 6, 8, 10, 12]


def test_the_gpu_is_the_default_device(monkeypatch):
    monkeypatch.setattr(sys.modules["eagergrad.device"], "_default", None)
    monkeypatch.delenv("EAGERGRAD_DEVICE", raising=False)
    assert eg.tensor(1.0).device == "cuda:0"


@pytest.mark.parametrize(
    "make",
    [
        lambda d: eg.tensor([[1.5, 2.0], [3.0, 4.0]], device=d),
        lambda d: eg.asarray(np.arange(3, dtype="int8"), device=d),
        lambda d: eg.zeros((2, 3), device=d),
        lambda d: eg.ones((), "float64", device=d),
        lambda d: eg.full((2, 2), 7, device=d),
        lambda d: eg.arange(0, 1, 0.1, device=d),
        lambda d: eg.eye(3, device=d),
        lambda d: eg.zeros_like(eg.tensor([1, 2], device=d)),
        lambda d: eg.tensor([True, False], device=d),
        lambda d: eg.tensor(1 + 2j, device=d),
    ],
)
def test_creation(make):
    assert close(make("cuda"), make("cpu"), rtol=0, atol=0)
    with eg.device("cuda"):
        assert eg.zeros(1).device == "cuda:0"
        with eg.device("cpu"):
            assert eg.zeros(1).device == "cpu"


@pytest.mark.parametrize(
    "f",
    [
        lambda a: 2.0 * a + a * a - a / 3.0,
        lambda a: eg.exp(a) + eg.tanh(a) * eg.sigmoid(a),
        lambda a: eg.log(eg.softplus(a)) ** 2,
        lambda a: eg.relu(a) + eg.absolute(a) + eg.maximum(a, 0.5),
        lambda a: eg.where(a > 0, eg.sqrt(eg.absolute(a)), a),
        lambda a: eg.sum(a, axis=0) / eg.mean(a * a, axis=0),
        lambda a: eg.max(a, axis=1) - eg.min(a),
        lambda a: eg.logsumexp(a, axis=1),
        lambda a: eg.softmax(a) * eg.log_softmax(a),
        lambda a: a.T.reshape((2, 6))[:, 1:4],
        lambda a: eg.concatenate([a, a * 2.0], axis=1)[..., None],
        lambda a: eg.stack([a, -a])[1],
        lambda a: a[np.array([0, 0, 2])] + eg.take(a, [1, 1, 3], axis=0),
        lambda a: eg.astype(eg.astype(a, "float64") * 2.0, "float32"),
        lambda a: a.to("cpu").to("cuda" if a.device.kind == "cuda" else "cpu") * a,
    ],
)
def test_functions_of_one_array(f):
    on_both(f, A)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a @ b,
        lambda a, b: eg.tanh(a @ b) @ b.T,
        lambda a, b: a[:, :, None] * b - a[:, :1, None] / eg.exp(b),
        lambda a, b: eg.mean(eg.softmax_cross_entropy(a @ b, labels(a))),
    ],
)
def test_functions_of_two_arrays(f):
    on_both(f, A, B)


def labels(like):
    return eg.tensor(LABELS, device=like.device)


def test_float16_accumulates_in_float32():
    x = eg.full(4096, 1.0, "float16", device="cuda")
    assert eg.sum(x).item() == 4096.0
    assert eg.sum(x).dtype == np.float16


def test_second_derivatives_and_jacobians():
    def slope(a):
        return eg.gradients_function(lambda x: eg.sum(eg.tanh(x) ** 3))(a)[0]

    on_both(slope, A)
    x = {d: eg.tensor(A[0], device=d) for d in ("cuda", "cpu")}
    jacobians = {}
    for d, source in x.items():
        with eg.GradientTape() as tape:
            tape.watch(source)
            y = eg.softmax(source)
        jacobians[d] = tape.jacobian(y, source)
    assert close(jacobians["cuda"], jacobians["cpu"])


def test_custom_gradients():
    @eg.custom_gradient
    def logexp(x):
        e = eg.exp(x)
        return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    on_both(logexp, A)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: eg.optim.SGD(0.1, momentum=0.9, weight_decay=0.01),
        lambda: eg.optim.Adam(0.1),
        lambda: eg.optim.AdamW(0.1),
    ],
)
def test_training_steps(optimizer):
    trained = {}
    for device in ("cuda", "cpu"):
        with eg.device(device):
            x = eg.tensor(A)
            w, b = eg.Variable(B), eg.Variable(eg.zeros(5))
            half = eg.Variable([1.0, 2.0], dtype="float16")

            @eg.implicit_value_and_gradients
            def step(x=x, w=w, b=b, half=half):
                loss = eg.mean(eg.softmax_cross_entropy(x @ w + b, labels(x)))
                return loss + eg.astype(eg.sum(half * half), "float32")

            rule = optimizer()
            for _ in range(3):
                loss, pairs = step()
                assert {g.device for g, _ in pairs} == {eg.device(device)}
                rule.apply_gradients(pairs)
            trained[device] = [loss, w.read_value(), b.read_value()]
            assert half.dtype == np.float16
    for got, expected in zip(*trained.values(), strict=True):
        assert close(got, expected, rtol=1e-4, atol=1e-5)


def test_devices_do_not_mix():
    x, y = eg.tensor([1.0], device="cuda"), eg.tensor([1.0], device="cpu")
    for mix in (lambda: x + y, lambda: y @ x, lambda: eg.concatenate([x, y])):
        with pytest.raises(eg.errors.DeviceError, match=r"cuda:0|cpu"):
            mix()
    with pytest.raises(eg.errors.DeviceError):
        eg.Variable(x).assign(y)
    with pytest.raises(eg.errors.DeviceError):
        eg.optim.SGD(0.1).apply_gradients([(y, eg.Variable(x))])
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(x)
    with pytest.raises(eg.errors.DeviceError, match="this machine has"):
        eg.device("cuda:99")


def test_values_leave_when_asked():
    x = eg.tensor(A, device="cuda")
    assert type(x.numpy()) is np.ndarray
    assert x.numpy().tolist() == A.tolist() == x.tolist() == x.to("cpu").tolist()
    assert x.to("cuda").device == x.to("cpu").to("cuda:0").device == "cuda:0"
    assert eg.sum(x * 0.0 + 1.0).item() == A.size
    assert bool(eg.all(x == x))
    assert "device='cuda:0'" in repr(x)
    for same in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert same.device == "cuda:0"
        assert same.tolist() == A.tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_numbers_have_the_cpus_bits(dtype):
    draws = {}
    for device in ("cuda", "cpu"):
        eg.random.seed(7)
        draws[device] = [
            eg.random.uniform(size=(100, 33), dtype=dtype, device=device),
            eg.random.permutation(1000, device=device),
            eg.random.normal(size=1000, dtype=dtype, device=device),
        ]
    for got, expected in zip(draws["cuda"][:2], draws["cpu"][:2], strict=True):
        assert close(got, expected, rtol=0, atol=0)
    np.testing.assert_array_max_ulp(
        draws["cuda"][2].numpy(), draws["cpu"][2].numpy(), maxulp=4
    )


def test_dlpack_shares_memory_with_cupy():
    import cupy

    array = cupy.arange(6, dtype="float32")
    x = eg.from_dlpack(array)
    assert x.device == "cuda:0"
    array += 1
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    back = cupy.from_dlpack(x * 2.0)
    assert isinstance(back, cupy.ndarray)
    assert back.tolist() == [2, 4, 6, 8, 10, 12]


def test_the_current_device_is_cupys_too():
    import cupy

    last = cupy.cuda.runtime.getDeviceCount() - 1
    before = cupy.cuda.Device().id
    with eg.device(f"cuda:{last}"):
        assert cupy.cuda.Device().id == last
        drawn = eg.random.normal(1.0, 2.0, 5)
        assert drawn.device == eg.zeros(3).device == f"cuda:{last}"
    assert cupy.cuda.Device().id == before


def test_save_and_load(tmp_path):
    eg.save(tmp_path / "model", {"w": eg.tensor(A, device="cuda")})
    assert eg.load(tmp_path / "model", device="cuda")["w"].device == "cuda:0"
    assert eg.load(tmp_path / "model", device="cpu")["w"].tolist() == A.tolist()


def test_digits_are_learned():
    result = train(Config(device="cuda", epochs=5))
    assert result.device == "cuda:0"
    assert result.test_accuracy > 0.9
