"""The gradient checks can fail: with the sign of any one rule flipped, they do.

Each rule is flipped on each of its two readers.  On bare buffers the first derivative
is wrong; on Tensors, under an outer tape, the first is right and the second wrong.
"""

import pytest
from op_cases import CASES, PARTS, is_list

from eagergrad.primitive import OPS
from eagergrad.testing import check_grads


def negated(dx):
    """-dx; None for an input that needs no gradient."""
    return None if dx is None else -dx


def flipped(rule):
    """A rule with the opposite sign."""

    def wrong(*args):
        dx = rule(*args)
        if isinstance(dx, (list, tuple)):
            return [negated(piece) for piece in dx]
        return -dx

    return wrong


def flipped_for_one(rule, i):
    """A joint rule with the opposite sign in the gradient of one argument."""

    def wrong(*args):
        return [negated(dx) if j == i else dx for j, dx in enumerate(rule(*args))]

    return wrong


def mutants(op):
    """Each way to make one sign wrong: a label, the rule's place, its replacement."""
    for i, rule in enumerate(op.rules):
        if rule is not None and not op.joint:
            yield str(i), i, flipped
        elif rule is not None:
            yield "all", i, flipped
            pieces = 2 if is_list(op) else op.arity
            for j in range(pieces if pieces > 1 else 0):
                yield f"of-{j}", i, lambda rule, j=j: flipped_for_one(rule, j)


MUTANTS = [
    pytest.param(op, i, flip, id=f"{op.name}-{label}")
    for op in OPS.values()
    if op.recorded
    for label, i, flip in mutants(op)
]


def check(op, modes=("reverse",)):
    """The op's own gradient check: that of test_gradients.py, in one mode."""
    through = PARTS.get(op.name, op.name)
    for case in CASES[through]:
        order = 3 if through in PARTS.values() else 2
        check_grads(case.of_sources, case.source_arrays, order, modes)


def changed(rules, i, flip):
    return tuple(flip(rule) if j == i else rule for j, rule in enumerate(rules))


class FlippedOnBuffers(dict):
    """The rules of an op for each type of buffer, one of them flipped."""

    def __init__(self, right, i, flip):
        self.change = lambda buffer_type: changed(right[buffer_type], i, flip)

    def __missing__(self, buffer_type):
        self[buffer_type] = self.change(buffer_type)
        return self[buffer_type]


@pytest.mark.parametrize(("op", "i", "flip"), MUTANTS)
def test_flipped_rule_on_buffers_is_found(op, i, flip):
    order = 2 if op.name in PARTS else 1
    with pytest.MonkeyPatch.context() as patch:
        for table in ("lowered", "composed_rules"):
            right = getattr(op, table)
            patch.setattr(op, table, FlippedOnBuffers(right, i, flip))
        with pytest.raises(AssertionError, match=f"order {order},.*expected.*got"):
            check(op)
    check(op)


@pytest.mark.parametrize(("op", "i", "flip"), MUTANTS)
def test_flipped_rule_on_tensors_is_found(op, i, flip):
    check(op)  # also makes the rules on buffers from the right ones
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "rules", changed(op.rules, i, flip))
        with pytest.raises(AssertionError, match=r"order [23],.*expected.*got"):
            check(op)
    check(op)


@pytest.mark.parametrize(
    ("op", "i", "flip"),
    [mutant for mutant in MUTANTS if mutant.values[0].form != "bilinear"],
)
def test_flipped_rule_is_found_in_forward_mode(op, i, flip):
    """All but the bilinear ops, each of which is its own JVP, take it from the rule."""
    check(op)  # also makes the rules on buffers from the right ones
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "rules", changed(op.rules, i, flip))
        with pytest.raises(AssertionError, match=r"forward: expected.*got"):
            check(op, ["forward"])
