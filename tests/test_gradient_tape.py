"""GradientTape, method by method: what happens at the edges of each."""

import gc
import threading
import warnings
import weakref
from collections import namedtuple

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import rows
from eagergrad.primitive import OPS, primitive

C = eg.constant
V = eg.Variable
T = eg.GradientTape

Pt = namedtuple("Pt", "a b")


class Layers(list):
    """A subclass of list, as frameworks have them."""


def values(grads):
    """Gradients as Python numbers and lists, in the structure they came in."""
    return eg.nest.map_structure(lambda g: None if g is None else g.tolist(), grads)


def in_thread(f):
    """What f returns, or the exception it raises, when another thread runs it."""
    results = []

    def run():
        try:
            results.append(f())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def squared(x, persistent=False):
    """A tape that has recorded y = x * x, and y."""
    with T(persistent) as tape:
        tape.watch(x)
        y = x * x
    return tape, y


# Making, entering and leaving a tape


@pytest.mark.parametrize(
    "use",
    [
        lambda t, x: t.gradient(x, x),
        lambda t, x: t.jacobian(x, x),
        lambda t, x: t.watch(x),
        lambda t, x: t.reset(),
        lambda t, x: t.entries(),
        lambda t, x: t.stop_recording().__enter__(),
    ],
    ids=["gradient", "jacobian", "watch", "reset", "entries", "stop_recording"],
)
def test_tape_that_was_never_entered(use):
    with pytest.raises(RuntimeError, match="never entered"):
        use(T(), C(1.0))


def test_tape_that_was_never_entered_has_seen_no_variables():
    assert T().watched_variables() == ()


def test_making_a_tape_records_nothing():
    T()
    assert not eg.tape.could_possibly_record()


def test_enter_returns_the_tape():
    t = T()
    with t as entered:
        assert entered is t


@pytest.mark.parametrize("persistent", [False, True])
def test_gradient_frees_what_was_saved_unless_persistent(persistent):
    x = C(np.ones(3))
    gc.disable()
    try:
        with T(persistent) as t:
            t.watch(x)
            h = eg.exp(x)
            y = h * h
        saved = weakref.ref(h._data)
        del h
        assert saved() is not None
        t.gradient(y, x)
        assert (saved() is not None) is persistent
        del t
        assert saved() is None
    finally:
        gc.enable()


def test_watch_accessed_variables_is_a_setting_of_each_tape():
    v = V(2.0)
    with T() as outer, T(watch_accessed_variables=False) as inner:
        y = v * v
    assert inner.gradient(y, v) is None
    assert outer.gradient(y, v).item() == 4.0


def test_watch_of_a_variable_works_without_watching_reads():
    v = V(2.0)
    with T(watch_accessed_variables=False) as t:
        t.watch(v)
        y = v * v
    assert t.gradient(y, v).item() == 4.0


def test_failed_second_entry_leaves_the_tape_recording():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        with pytest.raises(ValueError, match="already recording"):
            t.__enter__()
        y = x * x
    assert not eg.tape.could_possibly_record()
    assert t.gradient(y, x).item() == 6.0


def test_ops_between_two_entries_are_not_recorded():
    x = C(3.0)
    t = T(persistent=True)
    with t:
        t.watch(x)
        y = 2 * x
    between = 2 * y
    with t:
        z = 3 * between
    assert t.gradient(between, x) is None
    assert t.gradient(z, x) is None
    assert t.gradient(y, x).item() == 2.0


def test_extra_exit_does_nothing():
    t, y = squared(x := C(3.0))
    t.__exit__(None, None, None)
    assert t.gradient(y, x).item() == 6.0


def test_tape_used_up_in_its_block_can_be_entered_again():
    x = C(3.0)
    t = T()
    with t:
        t.watch(x)
        y = x * x
        t.gradient(y, x)
    with t:
        t.watch(x)
        z = 5 * x
    assert t.gradient(z, x).item() == 5.0


def test_watch_from_another_thread_works_or_raises():
    x = C(3.0)
    with T() as t:
        raised = in_thread(lambda: t.watch(x))
        y = x * x
    assert isinstance(raised, RuntimeError) or t.gradient(y, x).item() == 6.0


def test_gradient_on_another_thread():
    t, y = squared(x := C(3.0))
    assert in_thread(lambda: t.gradient(y, x)).item() == 6.0


def test_two_threads_with_a_tape_each():
    x = C(3.0)
    barrier = threading.Barrier(2, timeout=10)

    def derivative(n):
        with T() as t:
            t.watch(x)
            barrier.wait()
            y = x**n
            barrier.wait()
        return t.gradient(y, x).item()

    found = []
    other = threading.Thread(target=lambda: found.append(derivative(3)))
    other.start()
    here = derivative(2)
    other.join()
    assert (here, found) == (6.0, [27.0])


def test_tape_held_open_by_a_generator_records_its_caller():
    x = C(3.0)

    def steps():
        with T() as t:
            t.watch(x)
            y = x * x
            yield
            z = y + x
        yield t.gradient(z, x).item()

    generator = steps()
    next(generator)
    assert eg.tape.could_possibly_record()
    x * 100.0
    assert next(generator) == 7.0


# watch


def test_watch_takes_a_structure():
    a, b, v = C(2.0), C(3.0), V(4.0, trainable=False)
    with T() as t:
        t.watch({"a": a, "rest": (b, [v])})
        y = a * b * v
    assert values(t.gradient(y, [a, b, v])) == [12.0, 8.0, 6.0]


@pytest.mark.parametrize(
    ("bad", "name"),
    [(1.0, "float"), (1, "int"), (np.ones(2), "ndarray"), (None, "None")],
)
def test_watch_of_what_is_no_tensor(bad, name):
    with T() as t, pytest.raises(ValueError, match=name):
        t.watch(bad)


@pytest.mark.parametrize("data", [3, [True, False]])
def test_watch_of_an_integer_or_bool_warns(data):
    x = C(data)
    with T() as t:
        with pytest.warns(eg.DTypeWarning, match=str(x.dtype)) as caught:
            t.watch(x)
        y = x * 2.0
    assert caught[0].filename == __file__
    with pytest.warns(eg.DTypeWarning):
        assert t.gradient(y, x) is None


def test_watch_of_an_integer_warns_once_per_line():
    with T() as t, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            t.watch(C(3))
        t.watch(C(3))
    assert len(caught) == 2


def test_watched_intermediate_without_a_recorded_parent():
    x = C(3.0)
    with T() as t:
        h = x * x
        t.watch(h)
        y = h * h
    assert values(t.gradient(y, [x, h])) == [None, 18.0]


def test_watched_intermediate_keeps_its_history():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        h = x * x
        t.watch(h)
        y = h * h
    assert values(t.gradient(y, [x, h])) == [108.0, 18.0]


def test_watch_after_the_op_is_too_late():
    x = C(3.0)
    with T(persistent=True) as t:
        y = x * x
        t.watch(x)
    assert t.gradient(y, x) is None
    assert "watch" in t.explain(y, x) or "not recorded" in t.explain(y, x)


def test_watch_inside_stop_recording_takes_effect_after_it():
    x = C(3.0)
    with T() as t:
        with t.stop_recording():
            t.watch(x)
        y = x * x
    assert t.gradient(y, x).item() == 6.0


def test_watch_after_the_tape_was_used_up():
    t, y = squared(x := C(3.0))
    t.gradient(y, x)
    with pytest.raises(RuntimeError, match="already used"):
        t.watch(x)


def test_watch_overrides_trainable_false():
    v = V(3.0, trainable=False)
    with T() as t:
        t.watch(v)
        y = v * v
    (watched,) = t.watched_variables()
    assert watched is v
    assert t.gradient(y, v).item() == 6.0


# Which events watch a variable


@pytest.mark.parametrize(
    "read",
    [
        lambda v: v * 2,
        lambda v: v.read_value(),
        lambda v: v.value(),
        eg.convert_to_tensor,
        lambda v: v.numpy(),
        lambda v: v.assign(5.0),
        lambda v: v.assign_add(1.0),
        lambda v: v.assign_sub(1.0),
    ],
    ids=[
        "op",
        "read_value",
        "value",
        "convert_to_tensor",
        "numpy",
        "assign",
        "assign_add",
        "assign_sub",
    ],
)
def test_events_that_watch_a_variable(read):
    v, fixed = V(3.0), V(3.0, trainable=False)
    with T() as t:
        read(v)
        read(fixed)
    assert [id(x) for x in t.watched_variables()] == [id(v)]


@pytest.mark.parametrize(
    "read", [lambda v: v.read_value(), lambda v: v.value(), eg.convert_to_tensor]
)
def test_gradient_flows_through_a_read(read):
    v = V(3.0)
    with T() as t:
        r = read(v)
        y = r * r
    assert t.gradient(y, v).item() == 6.0


def test_reading_while_stopped_does_not_watch():
    v = V(3.0)
    with T() as t:
        with t.stop_recording():
            v * v
        assert t.watched_variables() == ()
        y = v * v
    assert t.gradient(y, v).item() == 6.0
    assert len(t.watched_variables()) == 1


def test_reading_while_all_tapes_are_stopped_does_not_watch():
    v = V(3.0)
    with T() as t, eg.tape.stop_recording():
        v * v
    assert t.watched_variables() == ()


def test_watched_variables_come_in_order_of_construction():
    v0, v1, v2 = V(1.0), V(1.0), V(1.0)
    with T() as t:
        v2 * v0
        v1 * v2
    assert [id(v) for v in t.watched_variables()] == [id(v0), id(v1), id(v2)]


def test_reset_forgets_variables_until_they_are_read_again():
    v = V(3.0)
    with T() as t:
        v * v
        t.reset()
        assert t.watched_variables() == ()
        y = v * v
    assert len(t.watched_variables()) == 1
    assert t.gradient(y, v).item() == 6.0


# stop_recording and reset


def test_stop_recording_stops_one_tape_only():
    x = C(3.0)
    with T() as outer, T() as inner:
        outer.watch(x)
        inner.watch(x)
        with inner.stop_recording():
            y = x * x
    assert inner.gradient(y, x) is None
    assert outer.gradient(y, x).item() == 6.0


def test_value_made_while_stopped_is_a_constant():
    x = C(2.0)
    with T(persistent=True) as t:
        t.watch(x)
        with t.stop_recording():
            y = x * x
        z = x * y
    assert t.gradient(y, x) is None
    assert values(t.gradient(z, [x, y])) == [4.0, None]


def test_stop_recording_after_the_block():
    t, _y = squared(C(3.0))
    with pytest.raises(RuntimeError, match="not recording"), t.stop_recording():
        pass


def test_inner_gradient_while_the_outer_tape_is_stopped():
    x = C(3.0)
    with T() as outer:
        outer.watch(x)
        with T() as inner:
            inner.watch(x)
            y = x * x
        with outer.stop_recording():
            g = inner.gradient(y, x)
        z = g * x
    assert g.item() == 6.0
    assert outer.gradient(z, x).item() == 6.0


def test_leaving_the_block_while_stopped():
    x = C(3.0)
    t = T()
    with t:
        t.watch(x)
        y = x * x
        pause = t.stop_recording()
        pause.__enter__()
    pause.__exit__(None, None, None)
    assert not eg.tape.could_possibly_record()
    assert t.gradient(y, x).item() == 6.0


def test_gradient_while_stopped_does_not_start_recording_again():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        with t.stop_recording():
            g = t.gradient(y, x)
        assert not eg.tape.could_possibly_record()
    assert g.item() == 6.0


def test_reset_goes_on_recording():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        t.reset()
        t.watch(x)
        z = y + x * x
    assert t.gradient(z, x).item() == 6.0


def test_reset_after_the_block():
    t, y = squared(x := C(3.0), persistent=True)
    t.reset()
    assert t.gradient(y, x) is None


def test_value_from_before_reset_is_a_constant():
    v = V(3.0)
    with T() as t:
        a = v * v
        t.reset()
        loss = a + v
    assert t.gradient(loss, v).item() == 1.0


def test_reset_while_stopped():
    x = C(3.0)
    with T() as t:
        with t.stop_recording():
            t.reset()
            x * x
        t.watch(x)
        y = x * x
    assert not eg.tape.could_possibly_record()
    assert t.gradient(y, x).item() == 6.0


# gradient: structures of targets and sources


@pytest.mark.parametrize(
    ("pack", "expected"),
    [
        (lambda a, b: a, 3.0),
        (lambda a, b: [a, b], [3.0, 2.0]),
        (lambda a, b: (a, b), (3.0, 2.0)),
        (lambda a, b: {"z": a, "a": b}, {"z": 3.0, "a": 2.0}),
        (lambda a, b: Pt(a, b), Pt(3.0, 2.0)),
        (lambda a, b: Layers([a, b]), Layers([3.0, 2.0])),
        (lambda a, b: [], []),
    ],
    ids=["bare", "list", "tuple", "dict", "namedtuple", "list subclass", "empty"],
)
def test_result_is_packed_like_the_sources(pack, expected):
    a, b = C(2.0), C(3.0)
    with T() as t:
        t.watch([a, b])
        y = a * b
    result = values(t.gradient(y, pack(a, b)))
    assert result == expected
    assert type(result) is type(expected)


def test_targets_in_a_dict_are_summed():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        targets = {"square": x**2, "inverse": 1 / x}
    assert t.gradient(targets, x).item() == 3.75


def test_vector_target():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * C([3.0, 4.0])
    assert t.gradient(y, x).item() == 7.0


def test_same_target_twice():
    t, y = squared(x := C(3.0))
    assert t.gradient([y, y], x).item() == 12.0


def test_target_upstream_of_another():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * x
        targets = [y, 3 * y]
    assert t.gradient(targets, x).item() == 16.0


def test_source_in_mid_path():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        z = y * y
    assert values(t.gradient(z, [x, y])) == [108.0, 18.0]


def test_source_in_mid_path_alone():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        z = y * y
    assert t.gradient(z, y).item() == 18.0


@pytest.mark.parametrize("data", [3.0, [1.0, 2.0], 1 + 2j])
def test_target_that_is_a_source_gives_ones(data):
    x = C(data)
    with T() as t:
        pass
    g = t.gradient(x, x)
    assert g.dtype == x.dtype
    np.testing.assert_array_equal(g.numpy(), np.ones(x.shape))


def test_integer_target_that_is_a_source_gives_none():
    x = C(3)
    with T() as t:
        pass
    with pytest.warns(eg.DTypeWarning):
        assert t.gradient(x, x) is None


@pytest.mark.parametrize("trainable", [True, False])
def test_variable_as_target(trainable):
    v = V(3.0, trainable=trainable)
    with T() as t:
        pass
    assert t.gradient(v, v).item() == 1.0


def test_variable_that_was_read_as_target():
    v = V(3.0)
    with T() as t:
        y = v * v
    assert t.gradient([v, y], v).item() == 7.0


def test_target_computed_before_the_tape():
    x, v = C(3.0), V(2.0)
    y = x * x * v
    with T(persistent=True) as t:
        t.watch(x)
        v * v
    assert values(t.gradient(y, [x, v])) == [None, None]
    assert "before the tape" in t.explain(y, x)


@pytest.mark.parametrize("bad", [None, 3.0, [None], "text"])
def test_target_that_is_no_tensor(bad):
    t, _y = squared(x := C(3.0))
    with pytest.raises(TypeError, match="target"):
        t.gradient(bad, x)


@pytest.mark.parametrize("bad", [None, 3.0, [None], {1.0}, np.ones(2)])
def test_source_that_is_no_tensor(bad):
    t, y = squared(C(3.0))
    with pytest.raises(TypeError, match="source"):
        t.gradient(y, bad)


def test_generator_as_sources():
    t, y = squared(x := C(3.0))
    with pytest.raises(TypeError, match="generator"):
        t.gradient(y, (s for s in [x]))


def test_wrong_argument_does_not_use_the_tape_up():
    t, y = squared(x := C(3.0))
    with pytest.raises(TypeError):
        t.gradient(y, 3.0)
    with pytest.raises(TypeError):
        t.gradient(None, x)
    with pytest.raises(ValueError, match="seed"):
        t.gradient(y, x, output_gradients=[C(1.0), C(1.0)])
    assert t.gradient(y, x).item() == 6.0


def test_no_targets():
    t, _y = squared(x := C(3.0))
    assert t.gradient([], [x, x]) == [None, None]


# gradient: unconnected sources


def test_unconnected_source_gives_none():
    t, y = squared(C(3.0))
    assert values(t.gradient(y, [C(1.0), V(1.0)])) == [None, None]


@pytest.mark.parametrize("option", ["zero", eg.UnconnectedGradients.ZERO])
@pytest.mark.parametrize(
    "data", [np.ones((2, 1), np.float16), np.ones(3), 2 + 1j, [1, 2], [True, False]]
)
@pytest.mark.parametrize("make", [C, V])
def test_unconnected_source_gives_zeros_on_demand(option, data, make):
    t, y = squared(C(3.0))
    source = make(data)
    g = t.gradient(y, source, unconnected_gradients=option)
    assert g.dtype == source.dtype
    np.testing.assert_array_equal(g.numpy(), np.zeros(source.shape))
    assert g.shape == source.shape


def test_unknown_option_does_not_use_the_tape_up():
    t, y = squared(x := C(3.0))
    with pytest.raises(ValueError, match="'nothing'"):
        t.gradient(y, x, unconnected_gradients="nothing")
    assert t.gradient(y, x).item() == 6.0


# gradient: inside and outside of blocks


def test_gradient_inside_the_block_uses_the_tape_up():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        t.gradient(y, x)
        x * x
        with pytest.raises(RuntimeError, match="already used"):
            t.gradient(y, x)


def test_higher_orders_from_one_persistent_tape():
    x = C(3.0)
    with T(persistent=True) as t:
        t.watch(x)
        y = x * x * x
        first = t.gradient(y, x)
        second = t.gradient(first, x)
    third = t.gradient(second, x)
    assert values([first, second, third]) == [27.0, 18.0, 6.0]


def test_gradient_outside_the_block_is_not_recorded():
    t, y = squared(x := C(3.0), persistent=True)
    g = t.gradient(y, x)
    assert t.gradient(g, x) is None


def test_inner_gradient_must_be_taken_inside_the_outer_block():
    x = C(3.0)
    with T() as outer:
        outer.watch(x)
        with T() as inner:
            inner.watch(x)
            y = x * x
    g = inner.gradient(y, x)
    assert outer.gradient(g, x) is None


@pytest.mark.parametrize("trainable", [True, False])
def test_jacobian_by_one_factor_makes_no_rows_of_the_other(trainable, monkeypatch):
    made = []
    monkeypatch.setattr(
        rows, "matmul", lambda a, b: made.append((a.shape, b.shape)) or eg.matmul(a, b)
    )
    x = C(np.arange(6.0).reshape(2, 3))
    w = eg.Variable(np.arange(12.0).reshape(3, 4), trainable=trainable)
    with T() as t:
        t.watch(x)
        y = x @ w * w[0]
    jacobian = t.jacobian(y, x)
    assert made == [((8, 2, 4), (4, 3))]
    expected = np.einsum("ik,lj,j->ijkl", np.eye(2), w.numpy(), w.numpy()[0])
    np.testing.assert_array_equal(jacobian.numpy(), expected)


def test_second_call_after_a_jacobian():
    t, y = squared(x := C(3.0))
    t.jacobian(y, x)
    with pytest.raises(RuntimeError, match="already used"):
        t.gradient(y, x)


class RuleError(Exception):
    """What a rule of the user's raises."""


def failing_once(x):
    failures = [RuleError("from the rule")]

    @eg.custom_gradient
    def square(x):
        def rule(dy):
            if failures:
                raise failures.pop()
            return dy * 2 * x

        return x * x, rule

    return square(x)


@pytest.mark.parametrize("persistent", [False, True])
def test_rule_that_raises(persistent):
    x = C(3.0)
    with T(persistent) as t:
        t.watch(x)
        y = failing_once(x)
    with pytest.raises(RuleError, match="from the rule"):
        t.gradient(y, x)
    assert not eg.tape.could_possibly_record()
    if persistent:
        assert t.gradient(y, x).item() == 6.0
    else:
        with pytest.raises(RuntimeError, match="already used"):
            t.gradient(y, x)


def test_rule_that_raises_inside_an_outer_block():
    x = C(3.0)
    with T() as outer:
        outer.watch(x)
        with T() as inner:
            inner.watch(x)
            y = failing_once(x)
        with pytest.raises(RuleError):
            inner.gradient(y, x)
        assert eg.tape.could_possibly_record()
        z = x * x
    assert not eg.tape.could_possibly_record()
    assert outer.gradient(z, x).item() == 6.0


# gradient: seeds


def test_seeds_are_matched_by_sorted_key():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        targets = {"b": x * x, "a": 2 * x}
    seeds = {"a": C(1.0), "b": C(10.0)}
    assert t.gradient(targets, x, output_gradients=seeds).item() == 62.0


def test_seeds_in_a_list_for_targets_in_a_dict():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        targets = {"b": x * x, "a": 2 * x}
    assert t.gradient(targets, x, output_gradients=[1.0, 10.0]).item() == 62.0


@pytest.mark.parametrize("seed", [[1.0, 10.0], (1.0, 10.0), np.array([1.0, 10.0])])
def test_numbers_as_seed_of_one_vector(seed):
    t, y = squared(x := C([1.0, 2.0]))
    assert values(t.gradient(y, x, output_gradients=seed)) == [2.0, 40.0]


def test_seed_of_one_vector_in_a_list():
    t, y = squared(x := C([1.0, 2.0]))
    seeds = [C([1.0, 10.0])]
    assert values(t.gradient([y], x, output_gradients=seeds)) == [2.0, 40.0]


def test_seed_none():
    t, y = squared(x := C(3.0))
    assert t.gradient([y], x, output_gradients=[None]).item() == 6.0


@pytest.mark.parametrize("seed", [np.float64(2.0), np.array(2.0), 2, 2.0])
def test_seed_is_cast_to_the_dtype_of_the_target(seed):
    t, y = squared(x := C(3.0))
    g = t.gradient(y, x, output_gradients=seed)
    assert g.dtype == np.float32
    assert g.item() == 12.0


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_seed_that_is_a_tensor_of_another_dtype(dtype):
    t, y = squared(x := C(3.0))
    with pytest.raises(ValueError, match="seed 0"):
        t.gradient(y, x, output_gradients=eg.ones((), dtype))


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 2), (2, 2)])
def test_seed_of_another_shape(shape):
    t, y = squared(x := C([1.0, 2.0]))
    with pytest.raises(ValueError, match="seed 0"):
        t.gradient(y, x, output_gradients=eg.ones(shape))


def test_seed_that_is_a_variable():
    x, w = C(2.0), V(5.0)
    with T() as outer:
        with T(watch_accessed_variables=False) as inner:
            inner.watch(x)
            y = x * x * x
        g = inner.gradient(y, x, output_gradients=w)
    assert g.item() == 60.0
    assert outer.gradient(g, w).item() == 12.0


def test_seed_of_a_target_that_is_its_own_source():
    x = C(3.0)
    with T() as t:
        t.watch(x)
    assert t.gradient(x, x, output_gradients=C(7.0)).item() == 7.0


# gradient: dtypes, rules, results


def test_gradient_has_the_dtype_of_its_source():
    a, b = C(3.0), C(np.float64(2.0))
    with T() as t:
        t.watch([a, b])
        y = a * b
    da, db = t.gradient(y, [a, b])
    assert y.dtype == np.float64
    assert (da.dtype, db.dtype) == (np.float32, np.float64)
    assert values([da, db]) == [2.0, 3.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_seed_of_ones_has_the_dtype_of_the_target(dtype):
    t, y = squared(x := C(np.ones(2, dtype)))
    g = t.gradient(y, x)
    assert g.dtype == dtype
    np.testing.assert_array_equal(g.numpy(), 2 * np.ones(2))


def test_gather_gives_a_dense_gradient():
    table = V(np.ones((3, 2), np.float32))
    with T() as t:
        y = eg.take(table, [2, 2], axis=0) * 2.0
    g = t.gradient(y, table)
    assert type(g) is eg.Tensor
    assert values(g) == [[0.0, 0.0], [0.0, 0.0], [4.0, 4.0]]


@pytest.fixture
def without_rule():
    @primitive()
    def cubed(xp, x):
        return x * x * x

    yield cubed
    del OPS["cubed"]


def test_op_without_a_rule(without_rule):
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = without_rule(x)
    with pytest.raises(LookupError, match="cubed") as caught:
        t.gradient(y, x)
    assert "test_gradient_tape.py" in str(caught.value)


@pytest.mark.parametrize(
    "f",
    [
        eg.argmax,
        eg.argmin,
        eg.floor,
        eg.ceil,
        eg.round,
        eg.sign,
        lambda x: x > 0,
        lambda x: x == x,
        lambda x: x // 2,
        lambda x: eg.cast(x, eg.int32),
        eg.isfinite,
        eg.any,
    ],
)
def test_op_that_is_not_differentiable(f):
    x = C([1.5, 2.5])
    with T() as t:
        t.watch(x)
        y = f(x)
    assert t.gradient(y, x) is None


def test_integer_hop_ends_the_path():
    x = C([1.5, 2.5])
    with T() as t:
        t.watch(x)
        whole = eg.cast(x, eg.int64)
        y = x * eg.cast(whole, eg.float32)
    assert values(t.gradient(y, x)) == [1.0, 2.0]


def test_gradients_that_share_a_buffer_do_not_change_each_other():
    a, b = C([1.0, 2.0]), C([3.0, 4.0])
    with T(persistent=True) as t:
        t.watch([a, b])
        y = a + b
        z = y + a
    da, db = t.gradient(y, [a, b])
    more = t.gradient(z, [a, b])
    assert values([da, db]) == [[1.0, 1.0], [1.0, 1.0]]
    assert values(more) == [[2.0, 2.0], [1.0, 1.0]]


def test_gradients_in_hand_never_change():
    x = C([1.0, 2.0])
    with T(persistent=True) as t:
        t.watch(x)
        y = x + x
        z = y + x + x + y
    first = t.gradient(y, [x, y])
    seed = C([1.0, 1.0])
    t.gradient([z, y], [x, y], output_gradients=[seed, seed])
    assert values(first) == [[2.0, 2.0], [1.0, 1.0]]
    assert values(seed) == [1.0, 1.0]


def test_gradient_that_reaches_a_source_in_many_steps():
    x = C([1.0, 2.0])
    with T() as t:
        t.watch(x)
        y = x
        for _ in range(5):
            y = y + x
        total = y
    g = t.gradient(total, [x, y])
    assert values(g) == [[6.0, 6.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 1), (3,)),
        ((), (2, 3)),
        ((1, 1), (4, 2, 3)),
        ((3,), (2, 1)),
        ((0, 1), (1, 2)),
    ],
)
def test_broadcast_is_summed_back(a, b):
    x, y = eg.ones(a), eg.full(b, 2.0)
    with T() as t:
        t.watch([x, y])
        z = x * y
    dx, dy = t.gradient(z, [x, y])
    assert (dx.shape, dy.shape) == (a, b)
    np.testing.assert_array_equal(dx.numpy(), 2.0 * z.size / max(x.size, 1))
    np.testing.assert_array_equal(dy.numpy(), z.size / max(y.size, 1))


@pytest.mark.parametrize("use", [True, False], ids=["gradient", "dropped"])
def test_deep_graph_needs_no_recursion(use):
    x = C(1.0)
    with T() as t:
        t.watch(x)
        y = x
        for _ in range(100_000):
            y = y + 1.0
    if use:
        assert t.gradient(y, x).item() == 1.0
    del t, y


def test_each_tape_watches_variables_by_its_own_setting():
    v = eg.Variable(2.0)
    for outer, inner in ((False, True), (True, False)):
        with eg.GradientTape(watch_accessed_variables=outer) as a:
            with eg.GradientTape(watch_accessed_variables=inner) as b:
                y = v * v
        found = [tape.gradient(y, v) for tape in (a, b)]
        assert [g is not None for g in found] == [outer, inner]
        assert found[inner].item() == 4.0


def test_a_tape_within_a_gradient_given_by_hand_watches_variables():
    v = eg.Variable(3.0)

    @eg.custom_gradient
    def f(x):
        with eg.GradientTape() as tape:
            y = v * v
        g = tape.gradient(y, v)
        return x * g, lambda dy, variables: (dy, [None])

    assert f(eg.tensor(1.0)).item() == 6.0
