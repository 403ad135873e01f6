"""Loss scaling: its course by hand, steps that are not made, and captured ones."""

from contextlib import nullcontext

import numpy as np
import pytest
import standin
from standin import COUNTS
from test_function import all_same, same

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.counters import COUNTERS
from eagergrad.errors import DeviceError
from eagergrad.optim import SGD, Adam, AdamW, LossScale
from eagergrad.primitive import forget
from eagergrad.traced import TRACE

OPTIMIZERS = {
    "SGD": lambda: SGD(0.1, weight_decay=0.01),
    "momentum": lambda: SGD(0.1, momentum=0.9),
    "Adam": lambda: Adam(0.01),
    "AdamW": lambda: AdamW(0.01, weight_decay=0.1),
}
optimizers = pytest.mark.parametrize("name", OPTIMIZERS)
hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="kernels are not compiled here"
)


@pytest.fixture(params=["cpu", "standin", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    with standin.installed() if request.param == "standin" else nullcontext() as found:
        yield found or eg.device(request.param)


@pytest.fixture(params=["as they are", "composed"])
def kernels(request, device):
    if request.param == "as they are":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for backend in {device.backend, TRACE}:
            patch.setattr(backend, "fused", False)
        forget()
        yield
    forget()


def steps(optimizer, scale, gradients, dtype="float32"):
    """The values of a variable of one number after each step of scaled gradients."""
    w = eg.Variable([1.0, -2.0], dtype=dtype, device=scale.state.device)
    values = []
    for g in gradients:
        g = eg.tensor([g, 1.0], dtype=dtype, device=w.device)
        optimizer.apply_gradients([(g, w)], loss_scale=scale)
        values.append(w.tolist())
    return values


def test_the_course_of_a_scale(device, kernels):
    scale = LossScale(8.0, growth_interval=2, device=device)
    found = []
    for g in (1.0, 1.0, 1.0, np.inf, 1.0, np.nan, -np.inf, np.nan, np.inf, 1.0, 1.0):
        steps(SGD(0.1), scale, [g])
        found.append(scale.state.tolist()[:3])
    assert found == [
        [8.0, 1.0, 1.0],
        [16.0, 0.0, 1.0],
        [16.0, 1.0, 1.0],
        [8.0, 0.0, 0.0],
        [8.0, 1.0, 1.0],
        [4.0, 0.0, 0.0],
        [2.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],  # no less than 1
        [1.0, 1.0, 1.0],
        [2.0, 0.0, 1.0],
    ]
    assert scale.value.item() == 2.0
    assert scale.value.shape == ()


def test_a_fixed_scale(device, kernels):
    scale = LossScale(0.5, growth_interval=None, device=device)
    values = steps(SGD(0.25), scale, [1.0, np.inf, 2.0])
    assert values == [[0.5, -2.5], [0.5, -2.5], [-0.5, -3.0]]
    assert scale.value.item() == 0.5


def test_a_scale_does_not_grow_beyond_float32(device, kernels):
    scale = LossScale(2.0**127, 1, device=device)
    steps(SGD(0.0), scale, [1.0])
    assert scale.value.item() == 2.0**127


def test_the_default_doubles_after_2000_steps():
    scale = LossScale(device="cpu")
    assert scale.value.item() == 2.0**15
    scale.state.assign([2.0**15, 1998.0, 1.0, 2.0**-15])
    steps(SGD(0.0), scale, [1.0])
    assert scale.value.item() == 2.0**15
    steps(SGD(0.0), scale, [1.0])
    assert scale.value.item() == 2.0**16


@optimizers
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_steps_are_those_without_a_scale_but_for_skipped_ones(
    name, dtype, device, kernels
):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    scale = LossScale(16.0, growth_interval=None, device=device)
    gradients = [2.0, np.inf, -1.0, np.nan, np.nan, 0.5, 3.0]
    got = steps(OPTIMIZERS[name](), scale, [16 * g for g in gradients], dtype)
    plain = OPTIMIZERS[name]()
    w = eg.Variable([1.0, -2.0], dtype=dtype, device=device)
    rtol = {"float64": 1e-6, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    for g, values in zip(gradients, got, strict=True):
        if np.isfinite(g):
            g = eg.tensor([g, 1.0 / 16], dtype=dtype, device=device)
            plain.apply_gradients([(g, w)])
        np.testing.assert_allclose(values, w.tolist(), rtol)


@optimizers
def test_a_skipped_step_leaves_every_bit(name, device, kernels):
    """Also of a negative 0, an infinite value, and the state."""
    w = eg.Variable([-0.0, np.inf, 1.0], device=device)
    other = eg.Variable([[3.0]], dtype="float16", device=device)
    optimizer, scale = OPTIMIZERS[name](), LossScale(4.0, device=device)
    g, small = eg.tensor([-0.0, 1.0, 2.0], device=device), other * 0.5
    optimizer.apply_gradients([(g, w), (small, other)], loss_scale=scale)

    def bits():
        arrays = [w.numpy(), other.numpy()]
        for group in optimizer._groups:
            kept = [x for x in (*group.slots.values(), group.count) if x is not None]
            arrays += [eg.tensor(x, device=device).numpy() for x in kept]
        return [x.tobytes() for x in arrays], [x.step for x in optimizer._groups]

    before = bits()
    for pairs in (
        [(g * np.inf, w), (small, other)],
        [(g, w), (small * np.nan, other)],  # one is enough
    ):
        optimizer.apply_gradients(pairs, loss_scale=scale)
        assert bits() == before
    optimizer.apply_gradients([(g, w), (small, other)], loss_scale=scale)
    assert bits() != before


def test_variables_that_missed_other_steps(device, kernels):
    """Each counts those that were made of its own."""
    adam, scale = Adam(0.1), LossScale(1.0, None, device=device)
    a, b, alone = (eg.Variable([1.0], device=device) for _ in range(3))
    good, bad = (eg.tensor([g], device=device) for g in (0.5, np.inf))
    adam.apply_gradients([(bad, a)], loss_scale=scale)
    adam.apply_gradients([(good, b)], loss_scale=scale)
    for _ in range(3):
        adam.apply_gradients([(good, b), (good, a)], loss_scale=scale)
    adam.apply_gradients([(good, a)])  # without a scale, from then on
    adam.apply_gradients([(good, a), (good, b)])
    rule = Adam(0.1)
    for _ in range(5):
        rule.apply_gradients([(good, alone)])
    assert a.tolist() == pytest.approx(alone.tolist(), rel=1e-6)
    assert b.tolist() == pytest.approx(alone.tolist(), rel=1e-6)


@pytest.mark.parametrize("exponent", [17, 20])
def test_large_gradients_are_looked_at_to_the_last(exponent, device, kernels):
    n = 2**exponent + 3
    scale = LossScale(4.0, device=device)
    w = eg.Variable(np.zeros(n, "float32"), device=device)
    for place in (0, n // 3, n - 1):
        g = np.ones(n, "float32")
        g[place] = np.inf
        g = eg.tensor(g, device=device)
        SGD(1.0).apply_gradients([(g, w)], loss_scale=scale)
        assert scale.state.tolist()[2] == 0.0
    scale = LossScale(4.0, device=device)
    g = eg.tensor(np.full(n, -8.0, "float32"), device=device)
    SGD(1.0).apply_gradients([(g, w)], loss_scale=scale)
    assert set(w.tolist()) == {2.0}


class Net:
    """Two layers of one dtype, whose scale starts beyond float16."""

    def __init__(self, name, dtype, device):
        draw = np.random.default_rng(1)
        self.weights = [
            eg.Variable(draw.normal(0, 0.5, shape).astype(dtype), device=device)
            for shape in ((5, 7), (7,), (7, 3))
        ]
        self.optimizer = OPTIMIZERS[name]()
        self.scale = LossScale(2.0**17, growth_interval=5, device=device)

    def step(self, x, labels):
        w1, b1, w2 = (w.astype("float16") for w in self.weights)
        h = eg.tanh(x @ w1 + b1) @ w2
        return eg.mean(eg.softmax_cross_entropy(h, labels))

    def train(self, x, labels):
        with eg.GradientTape() as tape:
            loss = self.step(x, labels)
            scaled = self.scale.scaled(loss)
        pairs = zip(tape.gradient(scaled, self.weights), self.weights, strict=True)
        self.optimizer.apply_gradients(pairs, loss_scale=self.scale)
        return loss, self.scale.value

    def values(self):
        return [self.scale.state.read_value(), *[w.read_value() for w in self.weights]]


@optimizers
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_50_captured_steps_equal_50_eager_ones(name, dtype, device, kernels):
    """With steps that are skipped, at the start and whenever the scale has grown."""
    eager, net = Net(name, dtype, device), Net(name, dtype, device)
    train = eg.function(net.train, exact=True)
    draw, made = np.random.default_rng(2), []
    for i in range(50):
        x = eg.tensor(draw.normal(size=(4, 5)).astype("float16"), device=device)
        labels = eg.tensor(draw.integers(3, size=4), device=device)
        for side in (eager, net):
            side.optimizer.learning_rate = 0.05 / (1 + i)
        for got, expected in zip(train(x, labels), eager.train(x, labels), strict=True):
            same(got, expected)
        all_same(net.values(), eager.values())
        made.append(eager.scale.state.tolist()[2])
    assert made[0] == 0.0  # the scale is no float16
    assert 2 < made.count(0.0) < 20
    assert len(train.programs()) == 1


@hosted
@optimizers
def test_what_a_scaled_step_launches(name):
    """One kernel looks at the gradients, one moves the scale, one counts for Adam."""
    with standin.installed() as gpu:
        weights = [eg.Variable(np.ones(5, "float32"), device=gpu) for _ in range(4)]
        optimizer, scale = OPTIMIZERS[name](), LossScale(device=gpu)
        pairs = [(w * 0.5, w) for w in weights]
        optimizer.apply_gradients(pairs, loss_scale=scale)
        COUNTERS.clear()
        before = COUNTS.copy()
        optimizer.apply_gradients(pairs, loss_scale=scale)
        others = (COUNTS - before)["launches"]
        assert COUNTERS.launches == (4 if "Adam" in name else 3)
        assert others == len(pairs)  # CuPy lays the gradients side by side
        assert (COUNTERS.copies, COUNTERS.syncs) == (0, 0)


def trained(scale, steps=60):
    """How far a float16 weight is from 1, where its gradients are some 1e-9 at most."""
    w, sgd = eg.Variable(0.0, dtype="float16"), SGD(2.0**26)
    for _ in range(steps):
        with eg.GradientTape() as tape:
            loss = 2.0**-30 * eg.square(w - 1.0).astype("float32")
            y = loss if scale is None else scale.scaled(loss)
        sgd.apply_gradients([(tape.gradient(y, w), w)], loss_scale=scale)
    return abs(w.item() - 1.0)


def test_gradients_that_float16_loses():
    """The weight stays at 0 without a scale, and comes to 1 with one."""
    assert trained(None) == 1.0
    assert trained(LossScale(2.0**15)) < 0.01


def test_settings_may_change_between_replays(device, kernels):
    """Also what a program for a GPU has as constants."""
    eager, captured = (AdamW(0.1, weight_decay=0.1) for _ in range(2))
    w, twin = (eg.Variable([1.0, -2.0], device=device) for _ in range(2))
    scale, other = (LossScale(4.0, 1, device=device) for _ in range(2))
    train = eg.function(
        lambda g: captured.apply_gradients([(g, w)], loss_scale=scale), exact=True
    )
    g = eg.tensor([2.0, -3.0], device=device)
    for i in range(12):
        if i == 4:
            captured.weight_decay = eager.weight_decay = 0.5
        if i == 8:
            scale.growth_interval = other.growth_interval = None
        train(g)
        eager.apply_gradients([(g, twin)], loss_scale=other)
        same(w.read_value(), twin.read_value())
        same(scale.state.read_value(), other.state.read_value())
    assert scale.value.item() == 4.0 * 2**8


def test_clipping_of_scaled_gradients(device):
    """By the global norm, in units of the scale: as without it."""
    scale = LossScale(2.0**10, None, device=device)
    w = eg.Variable([0.0, 0.0], device=device)
    g = eg.tensor([3.0 * 2**10, 4.0 * 2**10], device=device)
    clipped, _ = eg.clip_by_global_norm([g], 1.0 * scale.value)
    SGD(1.0).apply_gradients(zip(clipped, [w], strict=True), loss_scale=scale)
    assert w.tolist() == pytest.approx([-0.6, -0.8], rel=1e-6)
    clipped, _ = eg.clip_by_global_norm([g * np.inf], 1.0 * scale.value)
    SGD(1.0).apply_gradients(zip(clipped, [w], strict=True), loss_scale=scale)
    assert scale.state.tolist()[2] == 0.0
    assert w.tolist() == pytest.approx([-0.6, -0.8], rel=1e-6)


def test_the_state_is_saved_and_loaded(tmp_path):
    scale = LossScale(8.0, 3, device="cpu")
    steps(SGD(0.1), scale, [1.0, 1.0])
    eg.save(tmp_path / "scale", {"scale": scale.state})
    other = LossScale(growth_interval=3, device="cpu")
    other.state.assign(eg.load(tmp_path / "scale", "cpu")["scale"])
    steps(SGD(0.1), other, [1.0])
    assert other.state.tolist()[:3] == [16.0, 0.0, 1.0]


def test_a_float16_loss_may_be_large():
    scale = LossScale(device="cpu")
    y = scale.scaled(eg.tensor(100.0, dtype="float16"))
    assert y.dtype == np.float32
    assert y.item() == 100.0 * 2**15


def test_a_rule_of_ones_own_is_composed(device):
    """Factors that depend on the step are those of the steps made."""

    class Fading(SGD):
        def _factors(self, step, rate):
            return rate / step, 0.0

    scale = LossScale(1.0, None, device=device)
    values = steps(Fading(1.0), scale, [1.0, np.inf, 1.0, 1.0])
    expected = [0.0, 0.0, -0.5, -0.5 - 1 / 3]
    assert [v[0] for v in values] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ((0.0,), ValueError, "LossScale: expected a positive, finite initial_scale"),
        ((-1.0,), ValueError, "got -1.0"),
        ((np.inf,), ValueError, "finite"),
        ((np.nan,), ValueError, "finite"),
        ((1e60,), ValueError, "finite"),
        (("8",), TypeError, "a number for initial_scale, got str"),
        ((True,), TypeError, "got bool"),
        ((8.0, 0), ValueError, "growth_interval of at least 1 step, got 0"),
        ((8.0, 2.5), TypeError, "a number for growth_interval, got float"),
    ],
)
def test_settings_that_are_refused(settings, error, match):
    with pytest.raises(error, match=match):
        LossScale(*settings)


def test_a_scale_elsewhere_is_refused_before_anything_is_changed():
    with standin.installed() as gpu:
        w, scale = eg.Variable([1.0], device=gpu), LossScale(device="cpu")
        with pytest.raises(
            DeviceError, match=r"standin:0, the loss scale on cpu; make"
        ):
            SGD(1.0).apply_gradients([(w * 1.0, w)], loss_scale=scale)
        assert w.tolist() == [1.0]
    w = eg.Variable([1.0], device="cpu")
    with pytest.raises(TypeError, match="expected a LossScale, got float"):
        SGD(1.0).apply_gradients([(eg.ones(1), w)], loss_scale=8.0)


def test_repr():
    text = "LossScale(initial_scale=8.0, growth_interval=3)"
    assert repr(LossScale(8.0, 3, device="cpu")) == text


@pytest.mark.parametrize("make", [lambda: SGD(0.5), lambda: Adam(0.1)])
def test_large_variables_that_nobody_else_holds(make):
    def trained(size):
        w, optimizer, scale = eg.Variable(np.ones(size, "f4")), make(), LossScale(4.0)
        for i in range(5):
            g = eg.full((size,), 4.0 * (i + 1.0))
            optimizer.apply_gradients([(g, w)], loss_scale=scale)
        plain = eg.full((size,), 1.0)
        optimizer.apply_gradients([(plain, w)])
        return w.numpy()

    np.testing.assert_array_equal(trained(50_000), trained(10)[0])
