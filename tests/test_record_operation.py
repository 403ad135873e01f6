"""The tape made public: recording by hand, and stopping the recording."""

import threading

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.tape import (
    could_possibly_record,
    record_operation,
    should_record_backprop,
    stop_recording,
)


def values(structure):
    """The numbers of a structure of tensors; None stays None."""
    return eg.nest.map_structure(lambda t: t if t is None else t.tolist(), structure)


def recorded(rule, count=1):
    """The gradients by ``count`` inputs of an operation with this rule."""
    inputs = [eg.constant(float(i)) for i in range(count)]
    with eg.GradientTape() as tape:
        tape.watch(inputs)
        y = eg.constant(5.0)
        record_operation("by_hand", [y], inputs, rule)
    return values(tape.gradient(y, inputs))


# record_operation


def test_rule_gets_tensors():
    def rule(dy):
        assert isinstance(dy, eg.Tensor)
        return [42 * dy]

    assert recorded(rule) == [42.0]


def test_every_tape_that_watches_an_input_records():
    x, w = eg.constant(1.0), eg.constant(2.0)
    with (
        eg.GradientTape() as first,
        eg.GradientTape() as second,
        eg.GradientTape() as third,
    ):
        first.watch(x)
        second.watch([x, w])
        y = eg.constant(5.0)
        record_operation("by_hand", [y], [x, w], lambda dy: [10 * dy, 20 * dy])
    assert values(third.gradient(y, [x, w])) == [None, None]
    assert values(second.gradient(y, [x, w])) == [10.0, 20.0]
    assert values(first.gradient(y, [x, w])) == [10.0, None]


def test_unused_outputs_get_zeros():
    seen = []

    def rule(d1, d2):
        seen.append((d1.item(), d2.tolist(), d2.dtype))
        return [d1]

    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y, z = eg.constant(5.0), eg.zeros((1, 2), "float64")
        record_operation("by_hand", [y, z], [x], rule)
    assert tape.gradient(3 * y, x) is None
    with eg.GradientTape() as tape:
        tape.watch(x)
        y, z = eg.constant(5.0), eg.zeros((1, 2), "float64")
        record_operation("by_hand", [y, z], [x], rule)
        loss = 3 * y
    assert tape.gradient(loss, x).item() == 3.0
    assert seen == [(3.0, [[0.0, 0.0]], np.float64)]


@pytest.mark.parametrize("returned", [0, 1, 3])
def test_wrong_number_of_gradients(returned):
    with pytest.raises(ValueError, match=f"by_hand: .*expected 2, got {returned}"):
        recorded(lambda dy: [dy] * returned, count=2)


@pytest.mark.parametrize("returned", [lambda dy: dy, lambda dy: None])
def test_rule_must_return_a_sequence(returned):
    with pytest.raises(TypeError, match=r"by_hand: .*list or tuple"):
        recorded(returned)


@pytest.mark.parametrize("wrap", [list, tuple])
def test_rule_may_return_none_for_an_input(wrap):
    assert recorded(lambda dy: wrap([None])) == [None]
    assert recorded(lambda dy: wrap([dy, None]), count=2) == [1.0, None]


def test_wrong_shape():
    with pytest.raises(ValueError, match=r"expected \(\) for input 0, got \(2,\)"):
        recorded(lambda dy: [eg.zeros(2)])


def test_nothing_watched_nothing_called():
    def rule(dy):
        raise AssertionError("called")

    x, y = eg.constant(1.0), eg.constant(5.0)
    with eg.GradientTape() as tape:
        record_operation("by_hand", [y], [x], rule)
        assert tape.entries() == []
    assert tape.gradient(y, x) is None


def test_recording_replaces_the_watch_of_an_output():
    x, y = eg.constant(1.0), eg.constant(5.0)
    with eg.GradientTape() as tape:
        tape.watch([x, y])
        record_operation("by_hand", [y], [x], lambda dy: [10 * dy])
        z = 3 * y
    assert values(tape.gradient(z, [x, y])) == [30.0, 3.0]


def test_late_entry_in_a_longer_chain():
    x, y = eg.constant(1.0), eg.constant(2.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        a = y * y
        b = eg.sin(x)
        c = a * b
        record_operation("late", [y], [x], lambda dy: [10 * dy])
        d = c + y
    expected = 2 * 2 * 10 * np.sin(1.0) + 4 * np.cos(1.0) + 10
    for _ in range(2):
        assert tape.gradient(d, x).item() == pytest.approx(expected, rel=1e-6)


def test_exception_in_the_rule_passes():
    def rule(dy):
        raise KeyError("from the rule")

    with pytest.raises(KeyError, match="from the rule"):
        recorded(rule)


def test_higher_orders_follow():
    def cube(x):
        y = eg.constant(x.item() ** 3)
        record_operation("cube", [y], [x], lambda dy: [dy * 3 * x * x])
        return y

    x = eg.constant(2.0)
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = cube(x)
        g = inner.gradient(y, x)
    assert g.item() == 12.0
    assert outer.gradient(g, x).item() == 12.0


@pytest.mark.parametrize(
    ("outputs", "inputs"), [([5.0], [eg.constant(1.0)]), ([eg.constant(1.0)], [5.0])]
)
def test_only_tensors_are_recorded(outputs, inputs):
    with pytest.raises(TypeError, match=r"by_hand.* 0 is a float"):
        record_operation("by_hand", outputs, inputs, lambda dy: [dy])


def test_custom_gradient_by_hand():
    def custom(f):
        def wrapped(*args):
            inputs = [eg.convert_to_tensor(x) for x in args]
            with stop_recording():
                result, gradient_function = f(*inputs)
                flat = [eg.identity(y) for y in eg.nest.flatten(result)]

            def backward(*dys):
                return eg.nest.flatten(gradient_function(*dys))

            record_operation(f.__name__, flat, inputs, backward)
            return eg.nest.pack_sequence_as(result, flat)

        return wrapped

    @custom
    def logexp(x):
        e = eg.exp(x)
        return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    grad = eg.gradients_function(logexp)
    second = eg.gradients_function(lambda x: grad(x)[0])
    assert logexp(0.0).item() == pytest.approx(0.6931472)
    assert values(grad(0.0)) == [0.5]
    assert values(second(0.0)) == [0.25]
    assert values(eg.gradients_function(lambda x: 3 * logexp(x))(0.0)) == [1.5]


# stop_recording


def test_stop_recording_nests():
    x = eg.constant(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        with stop_recording():
            with stop_recording():
                y = x * x
            z = x * x
        w = x * x
    assert values(tape.gradient([y, z], [x])) == [None]
    with eg.GradientTape() as tape:
        tape.watch(x)
        with stop_recording(), stop_recording():
            y = x * x
        w = y * x
    assert tape.gradient(w, x).item() == 9.0


def test_stop_recording_ends_after_an_exception():
    x = eg.constant(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(KeyError), stop_recording():
            raise KeyError("inside")
        y = x * x
    assert tape.gradient(y, x).item() == 6.0
    assert not could_possibly_record()


def test_tape_that_stays_open_after_the_block_records_again():
    x = eg.constant(3.0)
    tape = eg.GradientTape()
    with stop_recording():
        tape.__enter__()
        tape.watch(x)
        lost = x * x
    y = x * x
    tape.__exit__(None, None, None)
    assert values(tape.gradient([lost, y], [x])) == [6.0]


def test_tape_that_ends_inside_the_block():
    x = eg.constant(3.0)
    tape = eg.GradientTape()
    tape.__enter__()
    tape.watch(x)
    y = x * x
    with stop_recording():
        tape.__exit__(None, None, None)
    assert not could_possibly_record()
    assert tape.gradient(y, x).item() == 6.0


def test_stop_recording_holds_for_one_thread():
    results = []

    def other():
        x = eg.constant(3.0)
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        results.append(tape.gradient(y, x).item())

    with stop_recording():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert results == [6.0]


# What a tape would record


def test_could_possibly_record():
    assert not could_possibly_record()
    with eg.GradientTape():
        assert could_possibly_record()
        with stop_recording():
            assert not could_possibly_record()
        assert could_possibly_record()
    assert not could_possibly_record()


def test_should_record_backprop():
    x, w = eg.constant(1.0), eg.constant(2.0)
    assert not should_record_backprop([x])
    with eg.GradientTape() as tape:
        tape.watch(x)
        assert should_record_backprop([w, x])
        assert not should_record_backprop([w])
        assert not should_record_backprop([])
        with stop_recording():
            assert not should_record_backprop([x])
    assert not should_record_backprop([x])
