"""Every rule of the registry: against differences, in every dtype, on both readers.

A new op is tested by existing; see ``op_cases.py`` for what it may have to add there.
"""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_cases import CASES, FLAT, PARTS, SMOOTH, draw, pair

import eagergrad as eg
from eagergrad.primitive import OPS
from eagergrad.testing import check_grads

SHAPES = [(), (0,), (1,), (3,), (2, 3), (2, 1), (1, 1), (0, 3), (4, 1, 3), (1, 2, 1)]


def seed_like(y):
    """A cotangent without equal elements."""
    c = 0.5 + np.arange(y.size).reshape(y.shape) % 7 / 4
    return eg.tensor((c * (1 - 2j) if y.dtype.kind == "c" else c).astype(y.dtype))


def gradients(case, arrays, recorded=False):
    """The gradients of a call by its sources; under an outer tape if ``recorded``."""
    xs = [eg.tensor(x) for x in arrays]
    sources = [xs[i] for i in case.sources]
    with eg.GradientTape() as outer:
        if recorded:
            outer.watch(sources)
        with eg.GradientTape() as tape:
            tape.watch(sources)
            y = case(*xs)
        if recorded:
            return tape.gradient(y, sources, seed_like(y))
    return tape.gradient(y, sources, seed_like(y))


def test_every_op_with_a_rule_is_checked():
    checked = {case.op.name for case in SMOOTH}
    with_rule = {op.name for op in OPS.values() if op.recorded and any(op.rules)}
    assert with_rule - checked == set(PARTS)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_against_differences(case):
    order = 3 if case.op.name in PARTS.values() else 2
    check_grads(case.of_sources, case.source_arrays, order)


def watching(op, monkeypatch):
    """A list of the calls of an op's rules: pairs of a rule's number and arguments."""
    made = []

    def watched(i, rule):
        def call(*args):
            made.append((i, args))
            return rule(*args)

        return rule and call

    for rules in op.lowered, op.composed_rules:
        found = [watched(i, rule) for i, rule in enumerate(rules[np.ndarray])]
        monkeypatch.setitem(rules, np.ndarray, tuple(found))
    return made


@pytest.mark.parametrize(
    "case", [case for case in SMOOTH if len(case.sources) > 1], ids=str
)
def test_only_gradients_that_are_asked_for_are_made(case, monkeypatch):
    """By the input alone, or beside layers that are frozen."""
    op = case.op
    xs = [
        eg.Variable(x) if i in case.sources else eg.tensor(x)
        for i, x in enumerate(case.arrays)
    ]
    expected = gradients(case, case.arrays)
    made = watching(op, monkeypatch)
    for i, whole in zip(case.sources, expected, strict=True):
        frozen = [
            x if j == i or j not in case.sources else eg.Variable(x, trainable=False)
            for j, x in enumerate(xs)
        ]
        for operands in xs, frozen:
            with eg.GradientTape() as tape:
                y = case(*operands)
            made.clear()
            got = tape.gradient(y, operands[i], seed_like(y))
            np.testing.assert_allclose(got.numpy(), whole.numpy(), rtol=1e-12)
            if not op.joint:
                assert {j for j, _ in made} == {i}
            elif "like" in op.reads[0]:
                ((_, (_, *read)),) = made
                like = read[op.reads[0].index("like")]
                assert [j for j, node in enumerate(like) if node] == [i]


def test_the_sweep_goes_only_where_a_source_is(monkeypatch):
    w, v = eg.Variable([[2.0, 1.0], [0.5, 3.0]]), eg.Variable([1.0, -1.0])
    calls = []

    @eg.custom_gradient
    def noted(x):
        return x, lambda dy: calls.append(dy) or dy

    def layers(x):
        h = eg.tanh(x @ w)
        return h, eg.sum(noted(h) * v)

    x = eg.tensor([[0.3, 0.4]])
    made = watching(OPS["tanh"], monkeypatch)
    for persistent in True, False:
        with eg.GradientTape(persistent) as tape:
            h, y = layers(x)
        assert tape.gradient(y, v).tolist() == h[0].numpy().tolist()
        assert not made
        assert not calls
    with eg.GradientTape(persistent=True) as tape:
        h, y = layers(x)
    assert tape.gradient(y, h).tolist() == [[1.0, -1.0]]
    assert not made
    assert len(calls) == 1
    assert tape.gradient(y, w) is not None
    assert len(made) == 1


@pytest.mark.parametrize("case", FLAT, ids=str)
def test_ops_that_are_flat_end_the_path(case):
    """Comparisons, rounding, argmax: None, as in TensorFlow, and nothing is kept."""
    xs = [eg.tensor(x) for x in case.arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = case(*xs)
    assert tape.entries() == []
    assert tape.gradient(y, xs) == [None] * len(xs)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_in_other_dtypes(case, dtype):
    """The calculus is checked in float64; here only the arithmetic."""
    arrays = case.cast(dtype)
    widened = zip(arrays, case.arrays, strict=True)
    exact = gradients(case, [x.astype(wide.dtype) for x, wide in widened])
    for i, g, e in zip(case.sources, gradients(case, arrays), exact, strict=True):
        assert g.dtype == arrays[i].dtype
        assert g.shape == arrays[i].shape
        rtol = 32 * np.finfo(dtype).eps
        scale = abs(e.numpy()).max(initial=1)
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol, rtol * scale)


@pytest.mark.parametrize("case", [c for c in SMOOTH if len(c.sources) > 1], ids=str)
def test_each_gradient_has_the_dtype_of_its_source(case):
    kinds = ["float32", "float64", "float16"]
    arrays = list(case.arrays)
    for i, kind in zip(case.sources, kinds, strict=False):
        arrays[i] = arrays[i].astype(kind)
    grads = gradients(case, arrays)
    for i, g in zip(case.sources, grads, strict=True):
        assert g.dtype == arrays[i].dtype
        assert g.shape == arrays[i].shape


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", SMOOTH, ids=str)
@pytest.mark.usefixtures("composed")
def test_rule_on_tensors_equals_rule_on_buffers(case, dtype):
    """One code object, two readers: bare buffers, and Tensors under an outer tape."""
    arrays = case.cast(dtype)
    bare, recorded = gradients(case, arrays), gradients(case, arrays, recorded=True)
    for g, h in zip(bare, recorded, strict=True):
        assert g.dtype == h.dtype
        assert g.shape == h.shape
        assert g.numpy().tobytes() == h.numpy().tobytes()


def bytes_named(case, xs, y):
    """The bytes of what the rules name in their parameters, each buffer once."""
    op = case.op
    values = {name: x._data for name, x in zip(op.arrays, xs, strict=False)}
    values.update(zip(op.params, case.params, strict=False), y=y._data)
    if "kept" in op.params:
        values["kept"] = op.forward(np, *(x._data for x in xs), *case.params)[1]
    rules = [op.rules[0]] if op.joint else [op.rules[i] for i in case.sources]
    names = {name for rule in rules for name in inspect.signature(rule).parameters}
    saved, pending = {}, [values.get(name) for name in sorted(names)]
    while pending:
        value = pending.pop()
        if isinstance(value, tuple):
            pending.extend(value)
        elif hasattr(value, "nbytes"):
            saved[id(value)] = value.nbytes
    return sum(saved.values())


@pytest.mark.parametrize("case", [c for c in SMOOTH if not c.op.several], ids=str)
def test_tape_keeps_what_the_rules_name_and_no_more(case):
    xs = [eg.tensor(x) for x in case.arrays]
    with eg.GradientTape() as tape:
        tape.watch([xs[i] for i in case.sources])
        y = case(*xs)
    (entry,) = tape.entries()
    assert entry.name == case.op.name
    assert entry.bytes == bytes_named(case, xs, y)


def test_what_some_ops_keep():
    """The same in numbers, for float64 arrays of 6 elements."""
    a, b = (eg.tensor(x) for x in pair((2, 3), (2, 3)))
    kept = {}
    for name in ("add", "multiply", "divide", "maximum"):
        with eg.GradientTape() as tape:
            tape.watch([a, b])
            y = getattr(eg, name)(a, b)
        kept[name] = tape.entries()[0].bytes
    for name in ("exp", "sin", "relu", "negative", "sum", "reshape", "max"):
        with eg.GradientTape() as tape:
            tape.watch(a)
            y = eg.reshape(a, 6) if name == "reshape" else getattr(eg, name)(a)
        kept[name] = tape.entries()[0].bytes
    assert y is not None
    assert kept == {
        "add": 0,
        "multiply": 96,
        "divide": 96,
        "maximum": 96,
        "exp": 48,  # the output
        "sin": 48,  # the input
        "relu": 48,
        "negative": 0,
        "sum": 0,
        "reshape": 0,
        "max": 56,  # the input and the output
    }


def test_a_constant_operand_is_not_kept_for_nobody():
    """Only the rules of watched inputs save: x * c keeps c alone."""
    x, c = eg.tensor(draw((2, 3))), eg.tensor(draw((1000,)).reshape(1000, 1, 1))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * c
    assert y.shape == (1000, 2, 3)
    assert tape.entries()[0].bytes == 8000


# ------------------------------------------------------------------------ broadcasting


def broadcast(first, second):
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        return None


def summed(g, shape):
    """The sum of g over the axes along which ``shape`` was broadcast, by NumPy."""
    extra = g.ndim - len(shape)
    g = g.sum(axis=tuple(range(extra)))
    short = tuple(i for i, n in enumerate(shape) if n == 1)
    return g.sum(axis=short, keepdims=True).reshape(shape)


PAIRS = [(a, b) for a in SHAPES for b in SHAPES if broadcast(a, b) is not None]


BINARY = [op for op in OPS.values() if op.arity == 2 and op.form == "elementwise"]


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_broadcast_gradients_are_summed(op):
    for shapes in PAIRS:
        shape = broadcast(*shapes)
        a, b = (abs(x) + 0.3 for x in pair(*shapes))
        case = CASES[op.name][0]._replace(arrays=(a, b))
        full = [np.broadcast_to(x, shape).copy() for x in (a, b)]
        found = gradients(case, [a, b])
        expected = gradients(case, full)
        assert len(found) == len(case.sources)
        for i, g, whole in zip(case.sources, found, expected, strict=True):
            assert g.shape == shapes[i]
            whole = summed(whole.numpy(), shapes[i])
            np.testing.assert_allclose(g.numpy(), whole, 1e-13)


def test_broadcast_gradients_of_three_arrays_are_summed():
    case = CASES["where"][0]
    for shapes in PAIRS:
        a, b = pair(*shapes)
        for cond_shape in [(), (3,), (2, 1)]:
            shape = broadcast(cond_shape, broadcast(*shapes))
            if shape is None:
                continue
            cond = draw(cond_shape) > 0
            found = gradients(case, [cond, a, b])
            whole = seed_like(np.empty(shape)).numpy()
            parts = [np.where(cond, whole, 0), np.where(cond, 0, whole)]
            for g, part, x in zip(found, parts, (a, b), strict=True):
                np.testing.assert_array_equal(g.numpy(), summed(part, x.shape))


exhaustive = settings(max_examples=60, deadline=None, derandomize=True)


def transposed(f, x):
    """The gradient of a linear f, and the seed it came from."""
    x = eg.tensor(x)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    seed = seed_like(y)
    return tape.gradient(y, x, seed).numpy(), seed.numpy()


@exhaustive
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3))
def test_any_broadcast(found):
    for shape, other in (found.input_shapes, found.input_shapes[::-1]):
        ones = np.ones(other)
        grad, seed = transposed(lambda x, ones=ones: x + ones, draw(shape))
        np.testing.assert_array_equal(grad, summed(seed, shape))
        grad, seed = transposed(
            lambda x: eg.broadcast_to(x, found.result_shape), draw(shape)
        )
        np.testing.assert_array_equal(grad, summed(seed, shape))


@exhaustive
@given(st.data())
def test_any_index(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    near = hnp.arrays(np.int64, (2, 1), elements=st.integers(-1, 0))  # with repeats
    index = data.draw(
        hnp.basic_indices(shape, allow_newaxis=True)
        | hnp.integer_array_indices(shape)
        | hnp.arrays(np.bool_, shape)
        | st.tuples(near, st.just(...))
        | st.tuples(st.just(...), near)
    )
    grad, seed = transposed(lambda x: x[index], draw(shape))
    expected = np.zeros(shape)
    np.add.at(expected, index, seed)
    np.testing.assert_array_equal(grad, expected)


@exhaustive
@given(st.data())
def test_any_transpose_and_reshape(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    axes = data.draw(st.permutations(range(len(shape))))
    signed = [i - len(shape) if data.draw(st.booleans()) else i for i in axes]
    grad, seed = transposed(lambda x: eg.transpose(x, signed), draw(shape))
    np.testing.assert_array_equal(grad, seed.transpose(np.argsort(axes)))
    lengths = data.draw(st.permutations([1, *shape]))
    grad, seed = transposed(lambda x: x.reshape(lengths), draw(shape))
    np.testing.assert_array_equal(grad, seed.reshape(shape))


@exhaustive
@given(st.data())
def test_any_reduction(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1))) if shape else ()
    axes, keep = tuple(axes), data.draw(st.booleans())
    axes = tuple(i - len(shape) if data.draw(st.booleans()) else i for i in axes)
    places = {i % len(shape) for i in axes}
    kept = tuple(1 if i in places else n for i, n in enumerate(shape))
    grad, seed = transposed(lambda x: eg.sum(x, axes, keep), draw(shape))
    np.testing.assert_array_equal(grad, np.broadcast_to(seed.reshape(kept), shape))
