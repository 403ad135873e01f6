"""The gradient checks can fail: with the sign of any one rule flipped, they do.

Each rule is flipped on each of its two readers.  On bare buffers the first derivative
is wrong; on Tensors, under an outer tape, the first is right and the second wrong.
"""

import pytest
from op_cases import CASES, PARTS

from eagergrad.primitive import OPS
from eagergrad.testing import check_grads


def flipped(rule):
    """A rule with the opposite sign."""

    def wrong(*args):
        dx = rule(*args)
        return [-piece for piece in dx] if isinstance(dx, list) else -dx

    return wrong


def flipped_for_one(rule, i):
    """A joint rule with the opposite sign in the gradient of one argument."""

    def wrong(*args):
        return [-dx if j == i else dx for j, dx in enumerate(rule(*args))]

    return wrong


def mutants(op):
    """Each way to make one sign wrong: a label, the rule's place, what to make of it."""
    for i, rule in enumerate(op.rules):
        if rule is not None and not op.joint:
            yield str(i), i, flipped
        elif rule is not None:
            yield "all", i, flipped
            for j in range(2):
                yield f"of-{j}", i, lambda rule, j=j: flipped_for_one(rule, j)


MUTANTS = [
    pytest.param(op, i, flip, id=f"{op.name}-{label}")
    for op in OPS.values()
    if op.recorded
    for label, i, flip in mutants(op)
]


def check(op):
    """The op's own gradient check: that of test_gradients.py."""
    through = PARTS.get(op.name, op.name)
    for case in CASES[through]:
        order = 3 if through in PARTS.values() else 2
        check_grads(case.of_sources, case.source_arrays, order)


def changed(rules, i, flip):
    return tuple(flip(rule) if j == i else rule for j, rule in enumerate(rules))


@pytest.mark.parametrize(("op", "i", "flip"), MUTANTS)
def test_flipped_rule_on_buffers_is_found(op, i, flip, monkeypatch):
    rules = op.lower()
    monkeypatch.setattr(op, "lowered", changed(rules, i, flip))
    order = 2 if op.name in PARTS else 1
    with pytest.raises(AssertionError, match=f"order {order},.*expected.*got"):
        check(op)
    monkeypatch.undo()
    assert op.lowered == rules
    check(op)


@pytest.mark.parametrize(("op", "i", "flip"), MUTANTS)
def test_flipped_rule_on_tensors_is_found(op, i, flip, monkeypatch):
    rules = op.rules
    op.lower()  # from the right rules, before they are changed
    monkeypatch.setattr(op, "rules", changed(rules, i, flip))
    with pytest.raises(AssertionError, match=r"order [23],.*expected.*got"):
        check(op)
    monkeypatch.undo()
    assert op.rules is rules
    check(op)
