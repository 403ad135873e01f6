"""Optimizers: their rules by hand, the state they keep, and what they never touch."""

import itertools

import numpy as np
import pytest
import standin

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.optim import SGD, Adam, AdamW

GRADIENTS = [2.0, -1.0, 0.5]


def trajectory(optimizer, start=1.0, gradients=GRADIENTS, dtype="float64"):
    """The values of one variable after each step."""
    w = eg.Variable([start], dtype=dtype)
    values = []
    for g in gradients:
        optimizer.apply_gradients([(eg.tensor([g], dtype=dtype), w)])
        assert w.dtype == np.dtype(dtype)
        values.append(w.item())
    return values


def by_hand(update, start=1.0):
    w, values = start, []
    for t, g in enumerate(GRADIENTS, 1):
        w -= update(w, g, t)
        values.append(w)
    return values


def adam_by_hand(lr=0.1, decay=0.0, b1=0.9, b2=0.999, epsilon=1e-8):
    mu = nu = 0.0

    def update(w, g, t):
        nonlocal mu, nu
        mu = b1 * mu + (1 - b1) * g
        nu = b2 * nu + (1 - b2) * g * g
        step = mu / (1 - b1**t) / ((nu / (1 - b2**t)) ** 0.5 + epsilon)
        return lr * step + lr * decay * w

    return by_hand(update)


def sgd_by_hand(lr=0.1, momentum=0.0, decay=0.0):
    v = 0.0

    def update(w, g, t):
        nonlocal v
        v = momentum * v + g + decay * w
        return lr * v

    return by_hand(update)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (SGD(0.1), sgd_by_hand()),
        (SGD(0.1, momentum=0.9), sgd_by_hand(momentum=0.9)),
        (SGD(0.1, weight_decay=0.5), sgd_by_hand(decay=0.5)),
        (SGD(0.1, 0.9, 0.5), sgd_by_hand(momentum=0.9, decay=0.5)),
        (Adam(0.1), adam_by_hand()),
        (Adam(0.1), [0.9000000005, 0.8733662967024314, 0.8393233821389424]),
        (Adam(0.2, 0.5, 0.75, 0.1), adam_by_hand(0.2, 0, 0.5, 0.75, 0.1)),
        (AdamW(0.1), adam_by_hand(decay=0.01)),
        (AdamW(0.1, weight_decay=0.5), adam_by_hand(decay=0.5)),
    ],
    ids=repr,
)
def test_update_rules(optimizer, expected):
    assert trajectory(optimizer) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize("make", [SGD, Adam, AdamW])
@pytest.mark.parametrize("rate", [0.1, np.float64(0.1), eg.tensor(0.1)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_is_kept(make, dtype, rate):
    expected = trajectory(make(0.1), dtype="float64")
    got = trajectory(make(rate), dtype=dtype)
    assert got == pytest.approx(expected, rel=1e-3 if dtype == "float16" else 1e-6)


def test_half_types_keep_their_state_in_float32():
    # The square of a gradient of 1e-4 is 0 in float16.
    values = trajectory(Adam(0.5), gradients=[1e-4] * 2, dtype="float16")
    assert values == pytest.approx([0.5, 0.0], abs=1e-3)


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert trajectory(SGD(0.5), dtype=bfloat16) == [0.0, 0.5, 0.25]
    assert trajectory(Adam(0.5), gradients=[3.0], dtype=bfloat16) == [0.5]


def test_large_variables_are_updated_in_blocks(monkeypatch):
    g = np.linspace(-1, 1, 1000).reshape(10, 100)
    whole, blocks = eg.Variable(np.ones_like(g)), eg.Variable(np.ones_like(g))
    for w, length in ((whole, 2**16), (blocks, 64)):
        monkeypatch.setattr(eg.optim, "_BLOCK", length)
        adam = Adam(0.1)
        for _ in range(3):
            adam.apply_gradients([(g, w)])
    assert whole.tolist() == blocks.tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("make", [lambda: SGD(0.1), lambda: SGD(0.1, 0.9), Adam, AdamW])
def test_large_variables_are_updated_as_small_ones_are(make, dtype, monkeypatch):
    gradients = [np.linspace(-1, 1, n, dtype=dtype) for n in (1, 40, 7)]
    found = []
    for large in (2**14, 1):
        monkeypatch.setattr(eg.optim, "_LARGE", large)
        optimizer = make()
        variables = [eg.Variable(g + 1) for g in gradients]
        for _ in range(3):
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        found.append([w.tolist() for w in variables])
        assert {w.dtype for w in variables} == {np.dtype(dtype)}
    assert found[0] == found[1]


def test_pairs_as_implicit_gradients_returns_them():
    w, b = eg.Variable([[1.0, 2.0]]), eg.Variable(3.0)
    step = eg.implicit_value_and_gradients(lambda: eg.sum(w * w) + b * b)
    value, pairs = step()
    assert value.item() == 14.0
    SGD(0.25).apply_gradients(pairs)
    assert w.tolist() == [[0.5, 1.0]]
    assert b.item() == 1.5
    assert type(b._data) is np.ndarray


def test_zip_of_a_tapes_gradients():
    variables = [eg.Variable([1.0]), eg.Variable([2.0])]
    with eg.GradientTape() as tape:
        y = eg.sum(variables[0] * variables[1])
    SGD(1.0).apply_gradients(zip(tape.gradient(y, variables), variables, strict=True))
    assert [v.item() for v in variables] == [-1.0, 1.0]


def test_gradients_may_be_arrays_and_variables_empty():
    w, none = eg.Variable([1.0, 2.0]), eg.Variable(np.zeros((0, 3), "float32"))
    Adam(0.5).apply_gradients([(np.ones(2, "float32"), w), (none.read_value(), none)])
    assert w.tolist() == pytest.approx([0.5, 1.5])
    assert none.shape == (0, 3)


@pytest.mark.parametrize("make", [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.1)])
def test_a_variable_without_a_gradient_keeps_its_state(make):
    """A step that leaves a variable out changes nothing about its next one."""
    g = eg.tensor([1.0], dtype="float64")
    w, other, alone = (eg.Variable([1.0], dtype="float64") for _ in range(3))
    optimizer, reference = make(), make()
    optimizer.apply_gradients([(g, other)])
    for _ in range(3):
        optimizer.apply_gradients([(g, w), (g, other)])
        optimizer.apply_gradients([(None, w), (g, other)])
        optimizer.apply_gradients([(g, other)])
        reference.apply_gradients([(g, alone)])
        assert w.tolist() == pytest.approx(alone.tolist(), rel=1e-15)
    for _ in range(7):
        reference.apply_gradients([(g, alone)])
    assert other.tolist() == pytest.approx(alone.tolist(), rel=1e-15)


def test_order_dtypes_and_new_variables_do_not_matter():
    start = {"a": [1.0, 2.0], "b": 3.0, "c": [[4.0]], "d": [5.0]}
    dtypes = {"a": "float32", "b": "float64", "c": "float16", "d": "float32"}
    orders = ["abcd", "dcba", "bd", "bdac", "ca"]

    def make():
        return {k: eg.Variable(v, dtype=dtypes[k]) for k, v in start.items()}

    together, apart = make(), make()
    adam, each = Adam(0.1), {k: Adam(0.1) for k in start}
    for factor, order in enumerate(orders, 1):
        g = {k: eg.ones_like(v) * factor for k, v in together.items()}
        adam.apply_gradients([(g[k], together[k]) for k in order])
        for k in order:
            each[k].apply_gradients([(g[k], apart[k])])
    for k in start:
        assert together[k].dtype == np.dtype(dtypes[k])
        assert together[k].tolist() == apart[k].tolist()


def test_a_value_assigned_between_steps_is_picked_up():
    w, b = eg.Variable([1.0]), eg.Variable([1.0])
    sgd = SGD(0.5)
    pairs = [(eg.tensor([1.0]), w), (eg.tensor([1.0]), b)]
    sgd.apply_gradients(pairs)
    w.assign([10.0])
    sgd.apply_gradients(pairs)
    b.assign_add([2.0])
    other = SGD(1.0)
    other.apply_gradients(pairs)
    sgd.apply_gradients(pairs)
    assert w.tolist() == [8.0]
    assert b.tolist() == [0.5]


def test_snapshots_and_tapes_keep_the_old_values():
    w = eg.Variable([3.0])
    optimizer = Adam(0.5)
    with eg.GradientTape(persistent=True) as tape:
        y = w * w
    snapshots = []
    for _ in range(4):
        snapshots.append((w.read_value(), np.asarray(w), w[:], w.tolist()))
        optimizer.apply_gradients([(tape.gradient(y, w), w)])
        for *snapshot, value in snapshots:
            assert [x.tolist() for x in snapshot] == [value] * 3
        assert tape.gradient(y, w).tolist() == [6.0]


def test_gradients_are_not_written_to():
    g = eg.tensor([2.0])
    for optimizer in (SGD(0.1, 0.9, 0.1), AdamW(0.1)):
        w = eg.Variable([1.0])
        optimizer.apply_gradients([(g, w)])
        optimizer.apply_gradients([(g, w)])
        assert g.tolist() == [2.0]


@pytest.mark.parametrize("count", [3, 30])
def test_one_update_for_all_variables(count):
    updates = []

    class Counted(Adam):
        def _update(self, group, slots, w, g, factors):
            updates.append(g.size)
            return super()._update(group, slots, w, g, factors)

    adam = Counted(0.1)
    pairs = [(eg.ones((2, i)), eg.Variable(eg.ones((2, i)))) for i in range(count)]
    adam.apply_gradients(pairs)
    adam.apply_gradients(pairs)
    assert updates == [count * (count - 1)] * 2


@pytest.mark.parametrize("optimizer", [SGD(0.1), SGD(0.05, momentum=0.8), Adam(0.2)])
def test_the_minimum_of_a_quadratic_is_reached(optimizer):
    target = eg.tensor([[1.0, -2.0], [3.0, 0.5]])
    w = eg.Variable(eg.zeros((2, 2)))
    step = eg.implicit_gradients(lambda: eg.sum((w - target) ** 2))
    for _ in range(300):
        optimizer.apply_gradients(step())
    assert w.numpy() == pytest.approx(target.numpy(), abs=1e-3)


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_stays_in_its_place(optimizer, bad):
    w = eg.Variable([1.0, 1.0])
    for _ in range(2):
        optimizer.apply_gradients([(eg.tensor([bad, 1.0]), w)])
    assert not np.isfinite(w.tolist()[0])
    assert np.isfinite(w.tolist()[1])


def test_the_learning_rate_may_change():
    w, sgd = eg.Variable([1.0]), SGD(0.5)
    for rate in (0.25, 0.5):
        sgd.learning_rate = rate
        sgd.apply_gradients([(eg.tensor([1.0]), w)])
    assert w.tolist() == [0.25]


def test_repr():
    assert repr(SGD(0.1)) == "SGD(learning_rate=0.1, momentum=0.0, weight_decay=0.0)"
    expected = "learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-08"
    assert repr(Adam()) == f"Adam({expected})"
    assert repr(AdamW()) == f"AdamW({expected}, weight_decay=0.01)"


W = eg.Variable([1.0], name="w")
INTEGER = eg.Variable([1])


@pytest.mark.parametrize(
    ("pairs", "error", "match"),
    [
        ([], ValueError, "Adam: no gradient"),
        ([(None, W)], ValueError, "all of them are None"),
        ([(eg.ones(2), W)], ValueError, r"shape \(2,\), its variable w \(1,\)"),
        ([(eg.ones(()), W)], ValueError, "shape"),
        ([(eg.ones(1, "float64"), W)], TypeError, "float64, its variable w float32"),
        ([(INTEGER, INTEGER)], TypeError, "floating"),
        ([(W, eg.ones(1))], TypeError, "got a Tensor for the variable"),
        ([(eg.ones(1), W), (eg.ones(1), W)], ValueError, "appears twice"),
        ([(eg.ones(1), W), (eg.ones(2), W)], ValueError, "shape"),
    ],
)
def test_errors_come_before_anything_is_changed(pairs, error, match):
    v = eg.Variable([1.0])
    adam, reference = Adam(0.1), Adam(0.1)
    g = eg.ones(1)
    adam.apply_gradients([(g, v)])
    with pytest.raises(error, match=match):
        adam.apply_gradients(pairs)
    adam.apply_gradients([(g, v)])
    other = eg.Variable([1.0])
    for _ in range(2):
        reference.apply_gradients([(g, other)])
    assert v.tolist() == other.tolist()
    assert W.tolist() == [1.0]


@pytest.mark.parametrize(
    "make", [lambda: SGD(0.1, 0.9, 0.1), lambda: Adam(0.1), lambda: AdamW(0.1)]
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_devices_give_the_same_numbers_and_copy_nothing(make, dtype):
    start = np.array([[1.0, -2.0]]), np.array(0.5)
    with standin.installed() as gpu:
        results = []
        for device in (gpu, "cpu"):
            variables = [eg.Variable(x, dtype=dtype, device=device) for x in start]
            pairs = [(v * 2.0, v) for v in variables]
            rule = make()
            standin.COUNTS.clear()
            for _ in range(3):
                rule.apply_gradients(pairs)
            assert standin.COUNTS["to_host"] == standin.COUNTS["to_device"] == 0
            assert all(v.device == device for v in variables)
            results.append([v.tolist() for v in variables])
    assert results[0] == results[1]


HOLDERS = {
    "the value": lambda w: w.read_value(),
    "a view of it": lambda w: eg.transpose(w),
    "a part of it": lambda w: w[3:5],
    "NumPy": lambda w: np.asarray(w),
    "DLPack": lambda w: eg.from_dlpack(eg.stop_gradient(w)),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("make", [lambda: SGD(0.1), lambda: Adam(0.1)])
def test_large_values_are_written_over_unless_they_are_held(make, hold):
    variables = [eg.Variable(np.full((200, 300), 2.0, "f4")), eg.Variable(np.ones(9))]
    w, optimizer = variables[0], make()
    pairs = [(eg.ones(v.shape, v.dtype), v) for v in variables]
    places, held = [], None
    for i in range(9):
        optimizer.apply_gradients(pairs)
        places.append(w._data.ctypes.data)
        if i == 4:
            held = hold(w)
            before = np.array(held)
    np.testing.assert_array_equal(np.asarray(held), before)
    moved = [x != y for x, y in itertools.pairwise(places)]
    in_place = host_kernels.problem() is None
    expected = [False] * 4 + [True] + [False] * 3
    assert moved == (expected if in_place else [True] * 8)


def test_a_gradient_is_that_of_the_values_which_were_read_though_those_are_large():
    w, optimizer = eg.Variable(np.full(50_000, 3.0, "f4")), SGD(1.0)
    for _ in range(3):
        with eg.GradientTape() as tape:
            y = eg.sum(0.5 * w * w)
        optimizer.apply_gradients([(eg.ones(w.shape), w)])
        was = w.numpy() + 1.0
        np.testing.assert_array_equal(tape.gradient(y, w).numpy(), was)
    with eg.GradientTape() as tape:
        y = eg.sum(0.5 * w * w)
    (g,) = tape.gradient(y, [w])
    optimizer.apply_gradients([(g, w)])  # the gradient may be the values themselves
    np.testing.assert_array_equal(w.numpy(), 0.0)
