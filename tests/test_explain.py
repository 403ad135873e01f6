"""``tape.explain``: a sentence for each reason why a gradient is None, or is not."""

import inspect
import warnings

import numpy as np
import pytest

import eagergrad as eg

T = eg.GradientTape


def here():
    """``file:line`` of the caller."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno}"


def explained(tape, y, x, connected=False):
    """The explanation, of a gradient that is None unless ``connected``."""
    reason = tape.explain(y, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eg.DTypeWarning)
        assert (tape.gradient(y, x) is not None) == connected
    return reason


def test_source_that_was_not_watched():
    x = eg.tensor(3.0)
    with T() as tape:
        y = x * x
    reason = explained(tape, y, x)
    assert "not watched" in reason
    assert "tape.watch" in reason


def test_source_that_was_watched_after_its_use():
    x = eg.tensor(3.0)
    with T() as tape:
        y = x * x
        tape.watch(x)
    assert "computed before" in explained(tape, y, x)


def test_source_that_is_a_copy_of_what_was_watched():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    assert "that very tensor" in explained(tape, y, eg.tensor(3.0))


def test_source_that_is_not_trainable():
    w = eg.Variable(3.0, trainable=False)
    with T() as tape:
        y = w * w
    reason = explained(tape, y, w)
    assert "trainable=False" in reason
    assert "tape.watch" in reason


def test_variable_on_a_tape_that_does_not_watch_them():
    w = eg.Variable(3.0)
    with T(watch_accessed_variables=False) as tape:
        y = w * w
    assert "watch_accessed_variables=False" in explained(tape, y, w)


def test_variable_that_was_not_read():
    w, x = eg.Variable(3.0), eg.tensor(2.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    reason = explained(tape, y, w)
    assert "Variable" in reason
    assert "not read" in reason


def _numpy(x):
    return here(), eg.tensor(np.sin(x.numpy()))


def _item(x):
    return here(), eg.tensor(x.item())


def _float(x):
    return here(), eg.tensor(float(x))


def _asarray(x):
    return here(), eg.tensor(np.asarray(x) + 1)


def _tolist(x):
    return here(), eg.tensor(x.tolist())


def _cast(x):
    return here(), x.astype("int32") * 1.0


def _cut(x):
    return here(), eg.stop_gradient(x) * 1.0


LEAVES = {
    _numpy: "numpy()",
    _item: "item()",
    _float: "item()",
    _asarray: "NumPy",
    _tolist: "numpy()",
    _cast: "a cast to int32",
    _cut: "stop_gradient",
}


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("make", [eg.tensor, eg.Variable])
def test_value_that_left_the_tape(leave, make):
    x = make(3.0)
    with T() as tape:
        tape.watch(x)
        place, y = leave(x)
    reason = explained(tape, y, x)
    assert f"left the tape by {LEAVES[leave]} at {place}" in reason


@pytest.mark.parametrize("leave", LEAVES)
def test_value_of_the_source_that_left_the_tape(leave):
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        z = x * x
        place, y = leave(z)
    reason = explained(tape, y, x)
    assert f"left the tape by {LEAVES[leave]} at {place}" in reason


@pytest.mark.parametrize("leave", LEAVES)
def test_value_that_nobody_kept_left_the_tape(leave):
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        place, y = leave(x * x)
    reason = explained(tape, y, x)
    assert f"by {LEAVES[leave]} at {place}" in reason


def test_value_that_left_and_came_back_through_another_source():
    """The target is recorded, by way of z; the path from x was cut."""
    x, z = eg.tensor(3.0), eg.tensor(2.0)
    with T() as tape:
        tape.watch([x, z])
        place, y = here(), eg.stop_gradient(x) * z
    assert f"stop_gradient at {place}" in explained(tape, y, x)


def test_reading_a_value_does_not_hide_a_path():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
        y.numpy()
    reason = explained(tape, y, x, connected=True)
    assert "depends on the source" in reason


def test_source_of_an_integer_dtype():
    x = eg.tensor(3)
    with T() as tape, pytest.warns(eg.DTypeWarning):
        tape.watch(x)
    y = x * 2.0
    reason = explained(tape, y, x)
    assert "int64" in reason
    assert "floating" in reason


def test_target_of_an_integer_dtype():
    x = eg.tensor([3.0, 1.0])
    with T() as tape:
        tape.watch(x)
        y = eg.argmax(x)
    assert "the target has dtype int64" in explained(tape, y, x)


def test_target_that_was_computed_before_the_tape():
    x = eg.tensor(3.0)
    y = x * x
    with T() as tape:
        tape.watch(x)
    assert "computed before the tape" in explained(tape, y, x)


def test_target_that_was_computed_while_the_tape_was_stopped():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = x * x
    assert "outside its block" in explained(tape, y, x)


def test_no_path():
    x, z = eg.tensor(3.0), eg.tensor(2.0)
    with T() as tape:
        tape.watch([x, z])
        y = z * z
        x * x
    reason = explained(tape, y, x)
    assert "no path" in reason


def test_op_that_is_flat_everywhere():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = eg.sign(x)
    reason = explained(tape, y, x)
    assert reason
    assert "None" not in reason


def test_connected():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    assert "not None" in explained(tape, y, x, connected=True)


def test_connected_variable():
    w = eg.Variable(3.0)
    with T() as tape:
        y = w * w
    assert "not None" in explained(tape, y, w, connected=True)


def test_the_target_itself():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
    assert "not None" in tape.explain(x, x)
    with T() as tape:
        pass
    assert "ones" in explained(tape, x, x, connected=True)


def test_asking_leaves_the_tape_as_it_is():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    assert tape.explain(y, x) == tape.explain(y, x)
    assert tape.gradient(y, x).item() == 6.0


def test_tape_that_is_used_up():
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(RuntimeError, match=r"already used.*persistent=True"):
        tape.explain(y, x)


def test_tape_that_was_never_entered():
    with pytest.raises(RuntimeError, match="never entered"):
        T().explain(eg.tensor(1.0), eg.tensor(1.0))


def test_tape_that_is_persistent_explains_after_a_gradient():
    x, z = eg.tensor(3.0), eg.tensor(2.0)
    with T(persistent=True) as tape:
        tape.watch(x)
        y = x * z
    tape.gradient(y, x)
    assert "not watched" in explained(tape, y, z)


@pytest.mark.parametrize("wrong", [None, 3.0, "x", np.ones(2), [None]])
def test_what_is_no_tensor(wrong):
    x = eg.tensor(3.0)
    with T() as tape:
        tape.watch(x)
        y = x * x
    for pair in ((wrong, x), (y, wrong)):
        with pytest.raises(TypeError, match="expected tensors"):
            tape.explain(*pair)
    assert tape.gradient(y, x).item() == 6.0
