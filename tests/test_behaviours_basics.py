"""The tape's behaviour row by row: structure of results, life cycle, variables.

The numbers in the names are those of the table the rows come from.
"""

import threading
from collections import namedtuple

import numpy as np
import pytest

import eagergrad as eg

C = eg.constant
V = eg.Variable
T = eg.GradientTape

Pt = namedtuple("Pt", "x1 x2")


def values(grads):
    """Gradients as Python numbers and lists, in the structure they came in."""
    return eg.nest.map_structure(lambda g: None if g is None else g.tolist(), grads)


def in_thread(f):
    """What f returns when another thread runs it."""
    results = []
    thread = threading.Thread(target=lambda: results.append(f()))
    thread.start()
    thread.join()
    return results[0]


# Basics and structure


def test_1_square():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    assert t.gradient(y, x).item() == 6.0


def test_2_variable_is_watched_when_read():
    v = V(1.0)
    with T() as t:
        y = v * v
    assert t.gradient(y, v).item() == 2.0


def test_4_four_kinds_of_source():
    x0, x1, x2, x3 = V(3.0), V(3.0, trainable=False), V(2.0) + 1, C(3.0)
    with T() as t:
        y = x0**2 + x1**2 + x2**2
    assert values(t.gradient(y, [x0, x1, x2, x3])) == [6.0, None, None, None]


def test_5_watching_twice_counts_once():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        t.watch(x)
        y = x * x
    assert t.gradient(y, x).item() == 6.0


def test_6_target_that_is_the_watched_source():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x
    assert t.gradient(y, x).item() == 1.0


def test_8_target_list_includes_the_source():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * x
    assert t.gradient([x, y], x).item() == 5.0


def test_9_two_sources_three_targets():
    x, y = C(3.0), C(5.0)
    with T() as t:
        t.watch([x, y])
        z = y * y
    assert values(t.gradient([x, y, z], [x, y])) == [1.0, 11.0]


def test_10_unwatched_identity():
    x = C(3.0)
    with T() as t:
        pass
    assert t.gradient(x, x).item() == 1.0


def test_12_identity_of_a_matrix():
    a = eg.full((2, 2), 2.0)
    with T() as t:
        t.watch(a)
    assert values(t.gradient(a, [a])[0]) == [[1.0, 1.0], [1.0, 1.0]]


def test_13_repeated_source():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = 2 * x
    assert values(t.gradient(y, [x, x])) == [2.0, 2.0]


def test_14_repeated_source_then_mixed():
    x, y = C(3.0), C(5.0)
    with T(persistent=True) as t:
        t.watch([x, y])
        z = x * x + x * y
    assert values(t.gradient(z, [x, x])) == [11.0, 11.0]
    assert values(t.gradient(z, [y, x])) == [3.0, 11.0]


def test_16_list_with_a_dict():
    x1, x2, x3 = C(1.0), C(2.0), C(3.0)
    with T() as t:
        t.watch([x1, x2, x3])
        y = x1 + 2 * x2 + 3 * x3
    grads = t.gradient(y, [x1, {"x2": x2, "x3": x3}])
    assert values(grads) == [1.0, {"x2": 2.0, "x3": 3.0}]


def test_17_namedtuple_is_kept():
    point = Pt(C(3.0), C(4.0))
    with T() as t:
        t.watch(point)
        y = point.x1 * point.x2
    grads = t.gradient(y, point)
    assert type(grads) is Pt
    assert values(grads) == Pt(4.0, 3.0)


def test_18_dict_keeps_the_order_of_its_keys():
    x1, x2 = C(1.0), C(2.0)
    with T() as t:
        t.watch([x1, x2])
        y = x1 + 2 * x2
    grads = t.gradient(y, {"z": x1, "a": x2})
    assert list(grads) == ["z", "a"]
    assert values(grads) == {"z": 1.0, "a": 2.0}


def test_20_empty_sources():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    assert t.gradient(y, []) == []


def test_21_empty_targets():
    x = C(3.0)
    with T() as t:
        t.watch(x)
    assert t.gradient([], x) is None


def test_22_nested_targets():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        target = (2 * x, [x * x, {"k": x * x * x}])
    assert t.gradient(target, x).item() == 18.0


def test_24_vector_target_is_summed():
    x = V(2.0)
    with T() as t:
        y = x * [3.0, 4.0]
    assert t.gradient(y, x).item() == 7.0


def test_25_target_feeds_another_target():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * x
        z = 3 * y
    assert t.gradient([y, z], x).item() == 16.0


def test_26_seeds_of_targets_in_mid_path():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * x
        z = 3 * y
    grads = t.gradient([y, z], [x, y], output_gradients=[C(10.0), C(1.0)])
    assert values(grads) == [52.0, 13.0]


def test_28_diamond():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        a = 3 * x
        b = a * a
        c = a + 1
        y = b * c
    assert values(t.gradient(y, [x, a, b, c])) == [360.0, 120.0, 7.0, 36.0]


def test_29_fifth_power_by_multiplying():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        y = x * x * x * x * x
    assert t.gradient(y, x).item() == 80.0


def test_30_wide_fan_in():
    x = C(1.0)
    with T() as t:
        t.watch(x)
        y = eg.sum(eg.stack([x * float(i) for i in range(100)]))
    assert t.gradient(y, x).item() == 4950.0


def test_32_equal_constants_are_not_shared():
    a, b = C(3.0), C(3.0)
    with T() as t:
        t.watch([a, b])
        y = a + b
    assert t.gradient(y, a).item() == 1.0


@pytest.mark.parametrize("make", [C, V])
def test_33_constants_and_variables_alike(make):
    a, b = make(2.0), make(2.0)
    with T() as t:
        t.watch([a, b])
        y = a * a * a
        z = b * b
    assert values(t.gradient([y, z], [a, b])) == [12.0, 4.0]


def test_34_ops_without_effect_make_new_tensors():
    x = C(1.0)
    x1, x3 = eg.identity(x), x * 1
    with T() as t:
        t.watch([x, x1, x3])
        loss = 2 * x + 3 * x1 + 3 * x3
    assert values(t.gradient(loss, [x, x1, x3])) == [2.0, 3.0, 3.0]


def test_36_zeros_for_an_unused_variable():
    x, y = V([2.0, 2.0]), V(1.0)
    with T() as t:
        z = y * y
    assert values(t.gradient(z, x, unconnected_gradients="zero")) == [0.0, 0.0]


def test_37_zeros_for_an_unused_integer():
    x, y = C([1, 2]), V(1.0)
    with T() as t:
        z = y * y
    g = t.gradient(z, x, unconnected_gradients="zero")
    assert g.dtype == np.int64
    assert values(g) == [0, 0]


@pytest.mark.parametrize("option", [eg.UnconnectedGradients.ZERO, "zero"])
def test_38_enum_and_text_say_the_same(option):
    x, y = V([2.0, 2.0]), V(1.0)
    with T() as t:
        z = y * y
    assert values(t.gradient(z, x, unconnected_gradients=option)) == [0.0, 0.0]


def test_40_target_is_none():
    x = C(3.0)
    with T() as t:
        t.watch(x)
    with pytest.raises(TypeError, match="target"):
        t.gradient(None, x)


def test_41_source_is_a_python_float():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    with pytest.raises(TypeError, match="source"):
        t.gradient(y, 3.0)


def test_42_watching_an_array():
    with T() as t, pytest.raises(ValueError, match="ndarray"):
        t.watch(np.array(1.0))


def test_44_watch_checks_all_before_it_watches_any():
    x = C(3.0)
    with T() as t:
        with pytest.raises(ValueError, match="float"):
            t.watch([x, 5.0])
        y = x * x
    assert t.gradient(y, x) is None


def test_45_broadcasting():
    a, b = C([[1.0], [2.0]]), C([10.0, 20.0, 30.0])
    with T() as t:
        t.watch([a, b])
        y = a * b
    assert values(t.gradient(y, [a, b])) == [[[60.0], [60.0]], [3.0, 3.0, 3.0]]


def test_46_matmul():
    a, b = C([[1.0, 2.0], [3.0, 4.0]]), C([[5.0, 6.0], [7.0, 8.0]])
    with T() as t:
        t.watch([a, b])
        y = a @ b
    da, db = t.gradient(y, [a, b])
    assert values(da) == [[11.0, 15.0], [11.0, 15.0]]
    assert values(db) == [[4.0, 4.0], [6.0, 6.0]]


def test_48_concat():
    a, b = C([1.0, 2.0]), C([3.0])
    with T() as t:
        t.watch([a, b])
        y = eg.concat([a, b]) * [1.0, 10.0, 100.0]
    assert values(t.gradient(y, [a, b])) == [[1.0, 10.0], [100.0]]


def test_49_affine_and_mean_square():
    w, b = V([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), V([0.0, 0.0])
    x = C([[1.0, 2.0, 3.0]])
    with T() as t:
        loss = eg.mean((x @ w + b) ** 2)
    dw, db = t.gradient(loss, [w, b])
    assert loss.item() == 634.0
    assert values(dw) == [[22.0, 28.0], [44.0, 56.0], [66.0, 84.0]]
    assert values(db) == [22.0, 28.0]


def test_50_cast_keeps_the_dtype_of_the_source():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = eg.cast(x, eg.float64) ** 2
    g = t.gradient(y, x)
    assert y.dtype == np.float64
    assert g.dtype == np.float32
    assert g.item() == 6.0


# Life cycle of a tape


def test_52_second_call():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    t.gradient(y, x)
    with pytest.raises(RuntimeError, match="persistent"):
        t.gradient(y, x)


def test_53_persistent_tape_in_any_order():
    x = C(3.0)
    with T(persistent=True) as t:
        t.watch(x)
        y = x * x
        z = y * y
    assert t.gradient(z, x).item() == 108.0
    assert t.gradient(y, x).item() == 6.0
    assert t.gradient(z, x).item() == 108.0


def test_54_gradient_inside_its_own_block():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
        g = t.gradient(y, x)
        assert not eg.tape.could_possibly_record()
    assert g.item() == 6.0


def test_56_gradient_taken_outside_is_not_recorded():
    x = C(3.0)
    with T(persistent=True) as t:
        t.watch(x)
        y = x * x
    g = t.gradient(y, x)
    assert t.gradient(g, x) is None


def test_57_entering_twice():
    with T() as t, pytest.raises(ValueError, match="already recording"), t:
        pass


def test_58_entering_again_resumes():
    x = C(3.0)
    t = T()
    with t:
        t.watch(x)
        y = 2 * x
    with t:
        z = 2 * y
    assert t.gradient(z, x).item() == 4.0


def test_60_entering_after_gradient_starts_anew():
    x = C(3.0)
    t = T()
    with t:
        t.watch(x)
        y = 2 * x
    t.gradient(y, x)
    with t:
        t.watch(x)
        z = 5 * x
    assert t.gradient(z, x).item() == 5.0


def test_61_exception_in_the_block():
    x = C(3.0)
    t = T()

    def interrupted():
        with t:
            t.watch(x)
            made.append(x * x)
            raise KeyError

    made = []
    with pytest.raises(KeyError):
        interrupted()
    (y,) = made
    assert not eg.tape.could_possibly_record()
    assert t.gradient(y, x).item() == 6.0


def test_62_exits_out_of_order():
    x = C(3.0)
    a, b = T(), T()
    a.__enter__()
    b.__enter__()
    a.watch(x)
    b.watch(x)
    a.__exit__(None, None, None)
    y = x * x
    b.__exit__(None, None, None)
    assert a.gradient(y, x) is None
    assert b.gradient(y, x).item() == 6.0


def test_64_stop_then_go_on():
    v = V(1.0)
    with T(persistent=True) as t:
        x2 = 2 * v
        with t.stop_recording():
            y = x2 * x2
        z = x2 * x2
    assert t.gradient(y, x2) is None
    assert t.gradient(z, x2).item() == 4.0


def test_65_stop_inside_stop():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        with t.stop_recording():
            with t.stop_recording():
                pass
            constant = x * x
        y = x * x + constant
    assert t.gradient(y, x).item() == 6.0


def test_66_stop_ends_with_an_exception():
    x = C(2.0)
    with T() as t:
        t.watch(x)
        with pytest.raises(KeyError), t.stop_recording():
            raise KeyError
        y = x * x
    assert t.gradient(y, x).item() == 4.0


def test_68_stopped_part_of_a_sum():
    x, y = C(2.0), C(3.0)
    with T() as t:
        t.watch([x, y])
        x_sq = x * x
        with t.stop_recording():
            y_sq = y * y
        z = x_sq + y_sq
    assert values(t.gradient(z, {"x": x, "y": y})) == {"x": 4.0, "y": None}


def test_69_reset_with_a_variable():
    v = V(1.0)
    with T() as t:
        loss = v * v
        t.reset()
        loss = loss + v * v
    assert t.gradient(loss, v).item() == 2.0


def test_70_reset_forgets_watches():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        t.reset()
        y = x * x
    assert t.gradient(y, x) is None


def test_72_watched_variables_in_order_of_construction():
    v0, v1 = V(1.0), V(2.0)
    with T() as t:
        v1 * v0
    watched = t.watched_variables()
    assert type(watched) is tuple
    assert [id(v) for v in watched] == [id(v0), id(v1)]


def test_73_watched_variables_after_gradient():
    v = V(3.0)
    with T() as t:
        y = v * v
    t.gradient(y, v)
    (watched,) = t.watched_variables()
    assert watched is v


def test_74_creation_is_not_access():
    with T() as t:
        V(4.0)
    assert t.watched_variables() == ()


def test_76_selective_watching():
    x1, x2 = V(1.0), V(1.0)
    with T(watch_accessed_variables=False) as t:
        t.watch(x2)
        y = x1**2
        z = x2**3
    assert values(t.gradient([y, z], [x1, x2])) == [None, 3.0]
    (watched,) = t.watched_variables()
    assert watched is x2


def test_77_softplus_with_selective_watching():
    x0, x1 = V(0.0), V(10.0)
    with T(watch_accessed_variables=False) as t:
        t.watch(x1)
        y = eg.sum(eg.sin(x0) + eg.softplus(x1))
    grads = t.gradient(y, {"x0": x0, "x1": x1})
    assert grads["x0"] is None
    assert grads["x1"].item() == pytest.approx(0.99995458, rel=1e-7)


def test_78_variable_that_is_not_trainable_watched_by_hand():
    v = V(3.0, trainable=False)
    with T() as t:
        t.watch(v)
        y = v * v
    assert t.gradient(y, v).item() == 6.0


def raising_once(x):
    """x squared, by a rule that fails the first time."""
    failures = [ZeroDivisionError("the rule failed")]

    @eg.custom_gradient
    def square(x):
        def rule(dy):
            if failures:
                raise failures.pop()
            return dy * 2 * x

        return x * x, rule

    return square(x)


def test_80_rule_raises_on_a_tape_for_one_use():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = raising_once(x)
    with pytest.raises(ZeroDivisionError, match="the rule failed"):
        t.gradient(y, x)
    with pytest.raises(RuntimeError, match="already used"):
        t.gradient(y, x)


def test_81_persistent_is_a_truth_value():
    x = C(3.0)
    with T(persistent=1) as t:
        t.watch(x)
        y = x * x
    assert t.gradient(y, x).item() == 6.0
    assert t.gradient(y, x).item() == 6.0


def test_82_ops_on_another_thread():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = in_thread(lambda: x * x)
    assert t.gradient(y, x) is None


def test_84_tape_used_on_another_thread():
    x = C(3.0)
    t = T()

    def recorded():
        with t:
            t.watch(x)
            return x * x

    y = in_thread(recorded)
    assert t.gradient(y, x).item() == 6.0


def test_85_module_level_stop_is_per_thread():
    def derivative():
        x = C(3.0)
        with T() as t:
            t.watch(x)
            y = x * x
        return t.gradient(y, x).item()

    with eg.tape.stop_recording():
        assert in_thread(derivative) == 6.0


# Variables and state


def test_86_assign_between_reads():
    v = V(3.0)
    with T(persistent=True) as t:
        y = v * v
        v.assign(10.0)
        z = v * v
    assert t.gradient(y, v).item() == 6.0
    assert t.gradient(z, v).item() == 20.0


def test_88_assign_after_the_block():
    v = V(3.0)
    with T() as t:
        y = v * v
    v.assign(10.0)
    assert t.gradient(y, v).item() == 6.0


def test_89_assign_cuts_the_path():
    x, v = C(2.0), V(0.0)
    with T() as t:
        t.watch(x)
        v.assign(3 * x)
        y = v * v
    assert values(t.gradient(y, [x, v])) == [None, 12.0]


def test_90_assign_add_cuts_the_path():
    x0, x1 = V(3.0), V(0.0)
    with T() as t:
        x1.assign_add(x0)
        y = x1 * x1
    assert t.gradient(y, x0) is None
    assert y.item() == 9.0


def test_92_replaced_variable():
    x = V(2.0)
    found = []
    for _ in range(2):
        with T() as t:
            y = x + 1
        found.append(values(t.gradient(y, x)))
        x = x + 1
    assert found == [1.0, None]


def test_93_through_numpy():
    v = V([1.0, 2.0])
    with T() as t:
        y = eg.sum(C(np.square(v.numpy())))
    assert t.gradient(y, v) is None


def test_94_snapshot():
    v = V([1.0, 2.0])
    r = v.read_value()
    v.assign([5.0, 6.0])
    assert values(r) == [1.0, 2.0]


def test_96_python_max_over_variables():
    variables = [V(2.0), V(3.0), V(5.0)]
    with T() as t:
        y = max(variables)
    assert values(t.gradient(y, variables)) == [None, None, 1.0]


def test_97_control_flow_picks_a_variable():
    x, v0, v1 = C(1.0), V(2.0), V(2.0)
    with T(persistent=True) as t:
        t.watch(x)
        r = v0 if x > 0.0 else v1**2
    assert values(t.gradient(r, [v0, v1])) == [1.0, None]
    assert t.gradient(r, x) is None


def test_98_python_loop():
    x = C(1.0)
    with T() as t:
        t.watch(x)
        y = x
        while y < 100:
            y = 2 * x * y
    assert y.item() == 128.0
    assert t.gradient(y, x).item() == 1024.0


def test_100_inner_update_with_assign():
    w = V(1.5)
    with T() as outer:
        with T() as inner:
            loss = (w - 3) ** 2
        g = inner.gradient(loss, w)
        w.assign_sub(0.1 * g)
        loss = (w - 3) ** 2
    # -1.92 would be the derivative through the inner step
    assert outer.gradient(loss, w).item() == pytest.approx(-2.4, rel=1e-6)


def test_101_list_of_tensors_is_stacked():
    a, b = C(2.0), C(3.0)
    with T() as t:
        t.watch([a, b])
        s = eg.convert_to_tensor([a, b])
        y = eg.sum(s**2)
    assert values(t.gradient(y, [a, b])) == [4.0, 6.0]


def test_102_three_steps_of_descent():
    w, b = V(5.0), V(10.0)
    xs = C([0.0, 1.0, 2.0, 3.0])
    ys = 3 * xs + 2
    losses = []
    for _ in range(3):
        with T() as t:
            loss = eg.mean((w * xs + b - ys) ** 2)
        dw, db = t.gradient(loss, [w, b])
        w.assign_sub(0.01 * dw)
        b.assign_sub(0.01 * db)
        losses.append(loss.item())
    assert losses == pytest.approx([126.0, 107.5246, 92.0029], rel=1e-6)
    assert w.item() == pytest.approx(3.95680, rel=1e-6)
    assert b.item() == pytest.approx(9.38609, rel=1e-6)
