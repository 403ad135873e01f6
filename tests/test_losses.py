"""Losses and clipping: numbers by hand, both ends, what is ignored, errors."""

import itertools

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

RNG = np.random.default_rng(2)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
P = np.exp(A) / np.exp(A).sum(-1, keepdims=True)
Q = np.exp(B) / np.exp(B).sum(-1, keepdims=True)


def gradient(f, *xs):
    return [g.tolist() for g in eg.make_vjp(lambda *a: eg.sum(f(*a)))(*xs)[1](1.0)]


def test_sigmoid_cross_entropy():
    loss = eg.sigmoid_cross_entropy
    x = np.array([0.0, 1000.0, -1000.0, 40.0, np.inf, -np.inf])
    z = np.array([0.3, 1.0, 1.0, 1.0, 1.0, 0.0])
    expected = [np.log(2), 0.0, 1000.0, np.exp(-40.0), 0.0, 0.0]
    np.testing.assert_allclose(loss(x, z).numpy(), expected, 1e-14)
    expected = [0.2, 0.0, -1.0, -np.exp(-40.0), 0.0, 0.0]
    dx = eg.gradients_function(lambda x: eg.sum(loss(x, z)))(x)[0].numpy()
    np.testing.assert_allclose(dx, expected, 1e-14)
    check_grads(loss, [A, P])
    assert loss(np.float32([1, 2]), np.array([0, 1])).dtype == "float32"
    assert eg.sigmoid_cross_entropy_with_logits(
        labels=0.9, logits=np.array(np.inf)
    ).item() == (np.inf)


def test_mean_of_softmax_cross_entropy():
    labels = np.array([2, 1, 0])
    each = -np.log(P[np.arange(3), labels])

    def f(x):
        return eg.softmax_cross_entropy(x, labels, mean=True)

    assert f(A).item() == pytest.approx(each.mean())
    (dx,) = eg.gradients_function(f)(A)
    np.testing.assert_allclose(dx.numpy(), (P - np.eye(4)[labels]) / 3, 1e-12, 1e-12)
    check_grads(f, [A])
    assert eg.softmax_cross_entropy(A[0], 2, mean=True).item() == pytest.approx(each[0])
    got = eg.softmax_cross_entropy(A, P, mean=True).item()
    assert got == pytest.approx(-(P * np.log(P)).sum() / 3)
    many = np.full((70_000, 2), 100.0, "float16")  # more than float16 counts to
    losses = eg.softmax_cross_entropy(many, np.zeros(70_000, int), mean=True)
    assert losses.dtype == "float16"
    assert losses.item() == pytest.approx(np.log(2), 1e-3)
    none = np.zeros(0, int)
    with eg.GradientTape() as tape:
        x = eg.zeros((0, 3))
        tape.watch(x)
        loss = eg.softmax_cross_entropy(x, none, mean=True)
    assert np.isnan(loss.item())
    assert tape.gradient(loss, x).shape == (0, 3)


def test_softmax_cross_entropy_with_an_ignored_label():
    loss = eg.softmax_cross_entropy
    logits = A.copy()
    labels = np.array([2, -1, 0])
    both = -(np.log(P)[0, 2] + np.log(P)[2, 0]) / 2
    assert loss(logits, labels, ignore_label=-1).item() == pytest.approx(both)
    logits[1, 0] = np.nan

    def f(x):
        return loss(x, labels, ignore_label=-1)

    assert f(logits).item() == pytest.approx(both)
    (dx,) = eg.gradients_function(f)(logits)
    assert dx.numpy()[1].tolist() == [0.0] * 4
    check_grads(f, [A])

    def nothing(x):
        return loss(x, [7, 7, 7], ignore_label=7)

    assert nothing(A).item() == 0
    assert gradient(nothing, A) == [np.zeros((3, 4)).tolist()]
    assert loss(A.astype("float16"), labels, ignore_label=-1).dtype == "float16"
    with pytest.raises(IndexError, match="got -1"):
        loss(A, labels, ignore_label=0)
    with pytest.raises(eg.errors.DTypeError, match="ignore_label"):
        loss(A, P, ignore_label=0)
    got = eg.softmax_cross_entropy_with_logits(labels=P, logits=B).numpy()
    np.testing.assert_allclose(got, -(P * np.log(Q)).sum(-1))


def test_distances():
    a, b = np.array([1.0, 2.0, 7.0]), np.array([1.5, 2.0, 3.0])
    assert eg.mse(a, b).item() == pytest.approx((0.25 + 16) / 3)
    assert eg.mae(a, b).item() == 1.5
    assert eg.huber(a, b, 2.0).item() == pytest.approx((0.125 + 6) / 3)
    assert gradient(lambda a: eg.huber(a, b, 2.0), a) == [[-0.5 / 3, 0.0, 2 / 3]]
    assert gradient(lambda a: eg.mae(a, b), a) == [[-1 / 3, 0.0, 1 / 3]]
    assert eg.mse(A, B, axis=1).shape == (3,)
    large = np.float32([1e30])
    assert eg.huber(large, 0.0).item() == pytest.approx(1e30)
    assert eg.hinge(np.array([0.5, -2.0]), np.array([1, -1])).item() == 0.25
    for f in (eg.mse, eg.mae, eg.huber, eg.hinge):
        check_grads(f, [A, B])
        assert f(A.astype("float16"), B.astype("float16")).dtype == "float16"


def test_probabilities():
    expected = (P * np.log(P / Q)).sum(-1)
    np.testing.assert_allclose(eg.kl_div(P, Q).numpy(), expected)
    check_grads(eg.kl_div, [P, Q])

    def f(p, q):
        return eg.kl_div(p, q)

    assert gradient(f, np.array([0.0, 1.0]), np.array([0.0, 1.0])) == [
        [0.0, 1.0],
        [0.0, -1.0],
    ]
    assert eg.kl_div(np.array([1.0]), np.array([0.0])).item() == np.inf
    labels = np.array([1, 0, 3])
    np.testing.assert_allclose(
        eg.nll(np.log(P), labels).numpy(), -np.log(P[np.arange(3), labels])
    )
    check_grads(lambda x: eg.nll(x, labels), [A])
    with pytest.raises(IndexError, match=r"nll: labels lie in \[0, 4\), got 4"):
        eg.nll(A, [0, 4, 1])


def test_cosine_similarity():
    lengths = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    expected = (A * B).sum(1) / lengths
    np.testing.assert_allclose(eg.cosine_similarity(A, B).numpy(), expected)
    check_grads(eg.cosine_similarity, [A, B])
    for scale in (1e-40, 1e-20, 1e30):
        x = np.float32([3 * scale, 4 * scale])
        assert eg.cosine_similarity(x, x).item() == pytest.approx(1.0, rel=1e-4)
    zero = np.zeros(2)
    assert eg.cosine_similarity(zero, A[0, :2]).item() == 0
    assert gradient(eg.cosine_similarity, zero, A[0, :2])[1] == [0.0, 0.0]


def all_alignments(probs, labels, blank):
    """The probability of a labelling as the sum over every path of frames."""
    total = 0.0
    for path in itertools.product(range(probs.shape[1]), repeat=len(probs)):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == list(labels):
            total += np.prod([row[c] for row, c in zip(probs, path, strict=True)])
    return total


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [[1], [1, 1], [], [1, 3], [3, 1, 3]])
def test_ctc_loss(labels, blank):
    x = RNG.normal(size=(1, 5, 4))
    probs = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    expected = -np.log(all_alignments(probs[0], labels, blank))
    names = np.array([labels], dtype=int).reshape(1, -1)

    def f(x):
        return eg.ctc_loss(eg.log_softmax(x), names, blank=blank)

    assert f(x).item() == pytest.approx(expected, rel=1e-12)
    check_grads(f, [x])
    batch = eg.ctc_loss(
        np.log(np.concatenate([probs, probs])),
        np.array([[*labels, 1, 3], [1, 3, *labels]]),
        logit_lengths=[5, 3],
        label_lengths=[len(labels), 1],
        blank=blank,
    )
    short = -np.log(all_alignments(probs[0, :3], [1], blank))
    np.testing.assert_allclose(batch.numpy(), [expected, short])


def test_ctc_loss_that_no_path_fits():
    x = np.zeros((1, 2, 3))

    def f(x):
        return eg.ctc_loss(x, [[1, 1]])

    assert f(x).item() == np.inf
    assert gradient(f, x) == [np.zeros((1, 2, 3)).tolist()]


def test_global_norm_and_clipping():
    a, b = np.array([3.0]), np.array([[4.0]])
    assert eg.global_norm([a, None, b]).item() == 5
    assert eg.global_norm([]).item() == 0
    (x, none, y), norm = eg.clip_by_global_norm([a, None, b], 1.0)
    assert x.tolist() == pytest.approx([0.6])
    assert y.tolist() == [pytest.approx([0.8])]
    assert (none, norm.item()) == (None, 5)
    kept, _ = eg.clip_by_global_norm([a, b], 6.0)
    assert [v.tolist() for v in kept] == [[3.0], [[4.0]]]
    zeros, norm = eg.clip_by_global_norm([0 * a, 0 * b], 1.0)
    assert (zeros[0].item(), norm.item()) == (0.0, 0.0)
    assert gradient(lambda x: eg.global_norm([x]), np.zeros(2)) == [[0.0, 0.0]]
    for scale in (1e-30, 1e30):
        huge = np.float32([3 * scale, 4 * scale])
        assert eg.global_norm([huge]).item() == pytest.approx(5 * scale)
        assert eg.clip_by_norm(huge, 1e-35).tolist() == pytest.approx([6e-36, 8e-36])
    assert eg.global_norm([np.array([3.0, 4j])]).item() == 5
    check_grads(lambda x, y: eg.global_norm([x, y]), [A, B])
    check_grads(lambda x, y: eg.clip_by_global_norm([x, y], 0.5)[0], [A, B])
    check_grads(lambda x: eg.clip_by_norm(x, 1.0, axes=1), [A])
    check_grads(lambda x: eg.clip_by_norm(x, 100.0), [A])
    assert eg.clip_by_norm(np.float16([3, 4]), 1.0).dtype == "float16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eg.mse(A, A[:, 0]), "mse: expected two arrays of one shape"),
        (lambda: eg.sigmoid_cross_entropy(A, A[0]), "sigmoid_cross_entropy: "),
        (lambda: eg.huber(A, B, 0.0), "huber: expected delta"),
        (lambda: eg.nll(A, A[:, 0]), "nll: expected integer labels"),
        (lambda: eg.ctc_loss(A, [[1]]), "ctc_loss: expected log_probs"),
        (lambda: eg.ctc_loss(A[None], [[1]], [9]), "ctc_loss: expected logit_lengths"),
        (lambda: eg.clip_by_norm(A, -1.0), "clip_by_norm: "),
    ],
)
def test_errors(call, message):
    with pytest.raises(eg.errors.ShapeError, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("shape", [(1,), (4096,), (4097,), (0,), (2, 3), (1, 1, 5)])
def test_the_mean_of_cross_entropies_is_that_of_its_losses(shape, dtype):
    rng = np.random.default_rng(0)
    logits = eg.tensor(rng.normal(size=(*shape, 3)).astype(dtype))
    labels = rng.integers(3, size=shape)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        found = eg.softmax_cross_entropy(logits, labels, mean=True)
        losses = eg.softmax_cross_entropy(logits, labels)
    assert found.shape == ()
    assert found.dtype == dtype
    eps = np.finfo(dtype).eps
    wide = losses.numpy().astype("f8")
    with np.errstate(invalid="ignore"):
        mean = wide.sum() / np.float64(wide.size)
    np.testing.assert_allclose(found.numpy(), mean, rtol=4 * eps)
    given = eg.full(shape, 1.0 / max(wide.size, 1), dtype)
    expected = tape.gradient(losses, logits, output_gradients=given).numpy()
    got = tape.gradient(found, logits).numpy()
    np.testing.assert_allclose(got, expected, rtol=4 * eps, atol=eps / 64)


@pytest.mark.parametrize("labels", [[3], [-1], [0, 3], [0, -1], [[0, 2], [1, -5]]])
@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_labels_outside_are_refused(labels, dtype):
    labels = np.array(labels, dtype)
    logits = np.zeros((*labels.shape, 3))
    wrong = {3, -1, -5} & set(labels.ravel().tolist())
    with pytest.raises(IndexError, match=rf"\[0, 3\), got {wrong.pop()}"):
        eg.softmax_cross_entropy(logits, labels)
