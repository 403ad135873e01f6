"""Devices without room: told once, nothing half done, and the program goes on."""

import itertools

import numpy as np
import pytest
import standin

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.errors import OutOfMemoryError


@pytest.fixture
def gpu():
    """The stand-in device."""
    with standin.installed() as found:
        yield found


def until_there_is_room(f):
    """Call f with room for no array, for one, and so on: the errors, and the result."""
    errors = []
    for room in itertools.count():
        try:
            with standin.full(after=room):
                return errors, f()
        except OutOfMemoryError as error:
            errors.append(error)


NO_ROOM = "standin:0 has no room for 4,096 bytes more; 1,000 bytes are in use"


def fails(f, name):
    """Whether f fails by that name until there is room; its result."""
    errors, result = until_there_is_room(f)
    assert errors
    for error in errors:
        assert str(error) == f"{name}: {NO_ROOM}"
        assert isinstance(error, MemoryError)
        assert isinstance(error.__cause__, standin.OutOfMemoryError)
    return result


VALUES = np.arange(6.0, dtype="f4").reshape(2, 3)

MAKERS = {
    "tensor": lambda: eg.tensor(VALUES),
    "asarray": lambda: eg.asarray(VALUES),
    "zeros": lambda: eg.zeros((2, 3)),
    "ones": lambda: eg.ones((2, 3)),
    "full": lambda: eg.full((2, 3), 7.0),
    "arange": lambda: eg.arange(6),
    "eye": lambda: eg.eye(3),
    "random.uniform": lambda: eg.random.uniform(-1.0, 1.0, (2, 3)),
    "random.normal": lambda: eg.random.normal(1.0, 2.0, (2, 3)),
    "random.permutation": lambda: eg.random.permutation(6),
}


@pytest.mark.parametrize("name", MAKERS)
def test_making_tensors(gpu, name):
    with gpu:
        made = fails(MAKERS[name], name)
        assert made.device == gpu


USES = {
    "zeros_like": lambda x: eg.zeros_like(x),
    "ones_like": lambda x: eg.ones_like(x),
    "full_like": lambda x: eg.full_like(x, 2.0),
    "linspace": lambda x: eg.linspace(x[0, 1], 3.0, 4),
    "add": lambda x: x + np.array(1.0),
    "matmul": lambda x: x @ x.T,
    "concatenate": lambda x: eg.concatenate([x, x]),
    "conv": lambda x: eg.conv1d(x[None], eg.ones_like(x[None])),
    "pad": lambda x: eg.pad(x, 1, constant_values=3.0),
    "interpolate": lambda x: eg.interpolate(x[None], 5, "linear"),
    "quantile": lambda x: eg.quantile(x, 0.3),
    "nanquantile": lambda x: eg.nanquantile(x, 0.3, 1),
    "sort": lambda x: eg.sort(x),
    "sort down": lambda x: eg.sort(x, descending=True),
    "argsort": lambda x: eg.argsort(x, 1, descending=True),
    "unique": lambda x: eg.unique(x),
    "nonzero": lambda x: eg.nonzero(x)[0],
    "choose": lambda x: eg.choose((x[0] * 5).astype("int64"), [x, -x], "wrap"),
    "compress": lambda x: eg.compress(x[0] > 0, x, 1),
    "at multiply": lambda x: x.at[(x[:, 1] * 0).astype("int64")].multiply(3.0),
    "take_along_axis": lambda x: eg.take_along_axis(x, x[:, :1].astype("int64") % 2, 1),
    "bincount": lambda x: eg.bincount(x[0].astype("int64")),
    "one_hot": lambda x: eg.one_hot(x[0].astype("int64"), 3),
    "cummax": lambda x: eg.cummax(x, 1),
    "pad median": lambda x: eg.pad(x, 1, "median"),
    "nll": lambda x: eg.nll(x, x[:, 0].astype("int64") % 2),
    "dropout": lambda x: eg.random.seed(1) or eg.dropout(x, 0.5),
    "attention": lambda x: eg.scaled_dot_product_attention(x, x, x, causal=True),
    "clip_by_global_norm": lambda x: eg.clip_by_global_norm([x], 1.0)[0][0],
    "embedding": lambda x: eg.embedding(x, x[:, 0].astype("int64") % 2),
    "segment_sum": lambda x: eg.segment_sum(x, x[:, 0].astype("int64") % 2, 2),
    "gather_nd": lambda x: eg.gather_nd(x, x[:, :2].astype("int64") % 2),
    "average": lambda x: eg.average(x, 1, x + 1.0),
    "var": lambda x: eg.var(x),
    "einsum": lambda x: eg.einsum("ij,kj->ik", x, x),
    "svd": lambda x: eg.linalg.svd(x)[1],
    "multi_dot": lambda x: eg.linalg.multi_dot([x, x.T, x]),
    "jvp": lambda x: eg.jvp(lambda x: x * x, (x,), (x,))[1],
    "hessian": lambda x: eg.hessian(lambda x: eg.sum(x * x * x))(x),
    "jacobian": lambda x: eg.jacobian(lambda x: eg.softmax(x))(x),
}


@pytest.mark.parametrize("name", USES)
def test_functions_of_several_ops_name_the_one_that_failed(gpu, name):
    x = eg.tensor(VALUES, device=gpu)
    errors, got = until_there_is_room(lambda: USES[name](x))
    assert errors
    assert all(str(error).endswith(f": {NO_ROOM}") for error in errors)
    expected = USES[name](eg.tensor(VALUES, device="cpu"))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), 1e-5)


def test_moving(gpu):
    x = eg.tensor(VALUES, device="cpu")
    there = fails(
        lambda: x.to(gpu),
        "to: x is (2, 3) float32; target=Device('standin:0'), origin=Device('cpu')",
    )
    assert there.tolist() == x.tolist()
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(there)
        y = there.to("cpu")
    assert fails(lambda: tape.gradient(y, there), "the gradient of to").device == gpu


def test_operands_and_seeds(gpu):
    x = eg.tensor(VALUES, device=gpu)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    for room in range(3):
        with (
            standin.full(after=room),
            pytest.raises(OutOfMemoryError, match="gradient"),
        ):
            tape.gradient(y, x)
    assert tape.gradient(y, x).tolist() == (2 * VALUES).tolist()
    with standin.full(), pytest.raises(OutOfMemoryError, match=r"^gradient: standin"):
        tape.gradient(y, x)
    with standin.full(), pytest.raises(OutOfMemoryError, match=r"^tensor: standin"):
        tape.gradient(y, x, VALUES)


def test_loading(gpu, tmp_path):
    eg.save(tmp_path / "file", {"w": VALUES, "b": VALUES[0]})
    loaded = fails(lambda: eg.load(tmp_path / "file", device=gpu), "load")
    assert loaded["w"].tolist() == VALUES.tolist()


def test_variables(gpu):
    made = fails(lambda: eg.Variable(VALUES, device=gpu), "tensor")
    for name in ("assign", "assign_add", "assign_sub"):
        with standin.full(), pytest.raises(OutOfMemoryError, match=rf"^{name}: "):
            getattr(made, name)(VALUES)
        assert made.tolist() == VALUES.tolist()
    delta = eg.tensor(VALUES, device=gpu)
    for name in ("assign_add", "assign_sub"):
        with standin.full(), pytest.raises(OutOfMemoryError, match=rf"^{name}: "):
            getattr(made, name)(delta)
        assert made.tolist() == VALUES.tolist()
    assert made.assign_add(VALUES).tolist() == (2 * VALUES).tolist()


OPTIMIZERS = {
    "sgd": lambda: eg.optim.SGD(0.5),
    "momentum": lambda: eg.optim.SGD(0.5, momentum=0.5, weight_decay=0.1),
    "adam": lambda: eg.optim.Adam(0.5),
    "adamw": lambda: eg.optim.AdamW(0.5),
}


class Training:
    """Variables of two dtypes, and steps that are made or not made at all."""

    def __init__(self, make, where, dtypes):
        self.variables = [eg.Variable(VALUES, dtype=d, device=where) for d in dtypes]
        self.pairs = [(w * 0.5 + 1.0, w) for w in self.variables]
        self.optimizer = make()

    def state(self):
        """The values of the variables, and what is kept of those that made a step."""
        optimizer = self.optimizer
        kept = dict(optimizer._states)
        for group in optimizer._groups:
            kept.update(group.states())
        states = {
            i: (kept[w.ref()][0], {k: v.get() for k, v in kept[w.ref()][1].items()})
            for i, w in enumerate(self.variables)
            if kept.get(w.ref(), (0,))[0]
        }
        return repr([[w.numpy() for w in self.variables], states])


@pytest.mark.parametrize(
    "dtypes", [["f4", "f4"], ["f4", "f8"], ["f2", "bfloat16"]], ids=str
)
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_made_or_not_at_all(gpu, monkeypatch, name, kernels, dtypes):
    if kernels and host_kernels.compiler() is None:
        pytest.skip("kernels are not compiled here")
    monkeypatch.setattr(gpu.backend, "fused", kernels)
    there, free = [Training(OPTIMIZERS[name], gpu, dtypes) for _ in range(2)]
    # the first, the same again, only one of the two, both in another order
    for pick in (slice(None), slice(None), slice(1), slice(None, None, -1)):
        pairs = there.pairs[pick]
        before, kept = there.state(), []

        def step(pairs=pairs, kept=kept):
            kept.append(there.state())
            there.optimizer.apply_gradients(pairs)

        errors, _ = until_there_is_room(step)
        assert errors
        assert {str(error) for error in errors} == {f"apply_gradients: {NO_ROOM}"}
        assert kept == [before] * len(kept)
        free.optimizer.apply_gradients(free.pairs[pick])
        assert there.state() == free.state()
        assert there.state() != before


class Failing(eg.optim.Adam):
    """Whose update fails before it writes anything."""

    def _update(self, group, slots, w, g, rate):
        raise KeyError


def test_a_step_that_fails_is_not_counted(gpu):
    w = eg.Variable(VALUES, device=gpu)
    optimizer = Failing()
    for _ in range(2):
        with pytest.raises(KeyError):
            optimizer.apply_gradients([(w * 1.0, w)])
    assert [group.step for group in optimizer._groups] == [0]


# The CPU

HUGE = 2**60  # bytes more than any machine can address


def huge():
    """A tensor that is one number seen over and over."""
    return eg.asarray(np.broadcast_to(np.float32(1), HUGE // 4))


def square():
    return huge().reshape((2**29, 2**29))


def pairs():
    w = eg.Variable(1.0, device="cpu")
    w._rebind(huge()._data)  # a Variable of its own would have no room
    return [(huge(), w)]


BEYOND = {
    "zeros": lambda: eg.zeros(HUGE, device="cpu"),
    "ones": lambda: eg.ones(HUGE, device="cpu"),
    "full": lambda: eg.full(HUGE, 1.0, device="cpu"),
    "zeros_like": lambda: eg.zeros_like(huge()),
    "eye": lambda: eg.eye(2**29, device="cpu"),
    "arange": lambda: eg.arange(2**57, device="cpu"),
    "random.uniform": lambda: eg.random.uniform(size=2**58, device="cpu"),
    "random.normal": lambda: eg.random.normal(size=2**58, device="cpu"),
    "random.permutation": lambda: eg.random.permutation(2**58, device="cpu"),
    "tensor": lambda: eg.tensor(huge()._data, device="cpu"),
    "exp": lambda: eg.exp(huge()),
    "add": lambda: huge() + 1.0,
    "matmul": lambda: square() @ square(),
    "concatenate": lambda: eg.concatenate([huge(), huge()]),
    "apply_gradients": lambda: eg.optim.Adam().apply_gradients(pairs()),
}


@pytest.mark.parametrize("name", BEYOND)
def test_the_cpu_too(name):
    with pytest.raises(OutOfMemoryError) as caught:
        BEYOND[name]()
    assert str(caught.value).startswith(f"{name}: ")
    assert "cpu has no room: Unable to allocate " in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert eg.zeros(2).tolist() == [0.0, 0.0]
