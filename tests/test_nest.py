"""Structures: what is one, in which order it is read, what packing gives back."""

import subprocess
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import FrozenInstanceError, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagergrad import nest

Point = namedtuple("Point", "y x")  # fields that are not in sorted order


class Layers(list):
    """A subclass of list, as frameworks have them."""


@nest.register
@dataclass
class Model:
    weight: Any
    bias: Any


@dataclass
class Plain:
    value: Any


# Container types and the order of reading


@pytest.mark.parametrize(
    ("structure", "leaves"),
    [
        ([1, 2], [1, 2]),
        ((1, [2, (3,)]), [1, 2, 3]),
        (Point(1, 2), [1, 2]),
        ({"z": 1, "a": 2}, [2, 1]),
        (OrderedDict([("z", 1), ("a", 2)]), [2, 1]),
        (defaultdict(list, z=1, a=[2, 3]), [2, 3, 1]),
        (MappingProxyType({"z": 1, "a": 2}), [2, 1]),
        (UserDict(z=1, a=2), [2, 1]),
        ({2: "b", 1: "a"}, ["a", "b"]),
        (Layers([1, [2]]), [1, 2]),
        (range(3), [0, 1, 2]),
        (Model(1, {"b": 2}), [1, 2]),
        ([{"w": 1}, {"w": 2}], [1, 2]),
        ([], []),
        ({}, []),
        ((), []),
        ([[], {}, ((),)], []),
    ],
)
def test_flatten_lists_the_leaves_in_order(structure, leaves):
    assert nest.is_nested(structure)
    assert nest.flatten(structure) == leaves


@pytest.mark.parametrize(
    "leaf",
    [
        None,
        "text",
        b"bytes",
        1,
        2.5,
        True,
        1j,
        np.float32(1),
        np.arange(3),
        {1, 2},
        frozenset(),
        (i for i in range(3)),
        {"a": 1}.values(),
        Plain([1, 2]),
        Model,
        object(),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_everything_else_is_a_leaf(leaf):
    assert not nest.is_nested(leaf)
    (only,) = nest.flatten(leaf)
    assert only is leaf
    assert nest.pack_sequence_as(leaf, ["new"]) == "new"


def test_flatten_of_leaves_copies_the_list():
    leaves = [1, 2]
    flat = nest.flatten(leaves)
    flat.append(3)
    assert leaves == [1, 2]


def test_flatten_refuses_keys_that_cannot_be_sorted():
    with pytest.raises(TypeError, match=r"must be sortable, got \['a', 1\]"):
        nest.flatten([{"a": 0, 1: 0}])
    with pytest.raises(TypeError, match="sortable"):
        nest.pack_sequence_as({"a": 0, 1: 0}, [1, 2])


def test_module_needs_the_standard_library_only():
    code = (
        "import importlib.util as u, sys; "
        f"spec = u.spec_from_file_location('nest', {nest.__file__!r}); "
        "module = u.module_from_spec(spec); sys.modules['nest'] = module; "
        "spec.loader.exec_module(module); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# Packing


@pytest.mark.parametrize(
    ("structure", "packed"),
    [
        ([0, (0, [0])], [1, (2, [3])]),
        (Point(0, [0]), Point(1, [2])),
        (Layers([0]), Layers([1])),
        (range(2), [1, 2]),
        (defaultdict(list, b=0, a=0), defaultdict(list, b=2, a=1)),
        (OrderedDict(b=0, a=0), OrderedDict(b=2, a=1)),
        (MappingProxyType({"b": 0, "a": 0}), MappingProxyType({"b": 2, "a": 1})),
        (UserDict(b=0, a=0), UserDict(b=2, a=1)),
        (Counter(b=5, a=5), Counter(b=2, a=1)),
        (Model([0], 0), Model([1], 2)),
        ({}, {}),
    ],
    ids=lambda structure: type(structure).__name__,
)
def test_pack_keeps_the_container_types(structure, packed):
    leaves = list(range(1, 1 + len(nest.flatten(structure))))
    result = nest.pack_sequence_as(structure, leaves)
    assert result == packed
    assert type(result) is type(packed)


def test_pack_keeps_key_order_and_default_factory():
    result = nest.pack_sequence_as({"z": 0, "a": 0}, [1, 2])
    assert list(result.items()) == [("z", 2), ("a", 1)]
    assert nest.pack_sequence_as(defaultdict(list, a=0), [1])["missing"] == []


def test_pack_takes_any_sequence():
    assert nest.pack_sequence_as([0, 0], (1, 2)) == [1, 2]
    assert nest.pack_sequence_as((0, 0), range(2)) == (0, 1)


def test_pack_leaves_the_structure_and_the_values_alone():
    structure, values = {"a": [0]}, [[1, 2]]
    packed = nest.pack_sequence_as(structure, values)
    assert packed == {"a": [[1, 2]]}
    assert structure == {"a": [0]}
    assert packed["a"][0] is values[0]


@pytest.mark.parametrize("values", [[], [1], [1, 2, 3, 4]])
def test_pack_refuses_another_number_of_values(values):
    message = f"has 3 leaves, flat_sequence has {len(values)}"
    with pytest.raises(ValueError, match=message):
        nest.pack_sequence_as({"a": [0, 0], "b": 0}, values)


@pytest.mark.parametrize("values", [[], [1, 2]])
def test_pack_of_a_leaf_refuses_anything_but_one_value(values):
    with pytest.raises(ValueError, match=f"has 1 leaf, .* has {len(values)}"):
        nest.pack_sequence_as("leaf", values)


@pytest.mark.parametrize(
    "values", [np.arange(2), 1, "ab", b"ab", {1, 2}, {0: 1, 1: 2}, iter([1, 2]), None]
)
def test_pack_refuses_what_is_not_a_sequence(values):
    with pytest.raises(TypeError, match=f"got {type(values).__name__}"):
        nest.pack_sequence_as([0, 0], values)


structures = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=2)
    | st.sets(st.integers(), max_size=2),
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), children, max_size=3)
        | st.builds(Point, children, children)
        | st.builds(Model, children, children)
    ),
    max_leaves=12,
)


@given(structures)
def test_pack_is_the_inverse_of_flatten(structure):
    leaves = nest.flatten(structure)
    assert not any(map(nest.is_nested, leaves))
    assert nest.pack_sequence_as(structure, leaves) == structure
    numbered = nest.pack_sequence_as(structure, range(len(leaves)))
    assert nest.flatten(numbered) == list(range(len(leaves)))
    nest.assert_same_structure(structure, numbered)


# map_structure


def test_map_takes_one_structure_or_several():
    assert nest.map_structure(str, [1, (2, None)]) == ["1", ("2", "None")]
    assert nest.map_structure(
        lambda a, b: a - b, {"y": 5, "x": 3}, {"x": 1, "y": 2}
    ) == {
        "y": 3,
        "x": 2,
    }
    assert nest.map_structure(lambda a, b: a + b, 1, 2) == 3
    assert nest.map_structure(str, []) == []


def test_map_calls_in_flattening_order():
    seen = []
    nest.map_structure(seen.append, {"b": 1, "a": [2, 3]})
    assert seen == [2, 3, 1]


def test_map_returns_the_first_structure_type():
    result = nest.map_structure(max, (1, 5), [4, 2], check_types=False)
    assert result == (4, 5)


def test_map_refuses_other_structures():
    with pytest.raises(
        TypeError, match="map_structure: at the root: tuple against list"
    ):
        nest.map_structure(max, (1, 2), [1, 2])
    with pytest.raises(ValueError, match="length 2 against list of length 1"):
        nest.map_structure(max, [1, 2], [1, 2], [1])
    with pytest.raises(ValueError, match="at least one structure"):
        nest.map_structure(max)


def test_map_passes_errors_of_the_function_on():
    with pytest.raises(ZeroDivisionError):
        nest.map_structure(lambda x: 1 / x, [1, 0])


# assert_same_structure


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, "leaf"),
        (None, np.arange(3)),
        ([1, (2, 3)], [[4, 5, 6].pop(), ("b", None)]),
        ({"a": 1, "b": 2}, {"b": 0, "a": 0}),
        ({"a": 1}, OrderedDict(a=2)),
        (defaultdict(list, a=1), MappingProxyType({"a": 1})),
        ([1], Layers([2])),
        (Point(1, 2), namedtuple("Point", "y x")(3, 4)),
        (Model(1, [2]), Model("a", ["b"])),
        ([], []),
    ],
)
def test_same_structures_pass(a, b):
    nest.assert_same_structure(a, b)
    nest.assert_same_structure(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 2], (3, 4)),
        (range(2), [3, 4]),
        (Point(1, 2), (3, 4)),
        (Point(1, 2), namedtuple("Other", "y x")(3, 4)),
        (Point(1, 2), namedtuple("Point", "x y")(3, 4)),
        (Point(1, 2), {"y": 3, "x": 4}),
        (Model(1, 2), [1, 2]),
        ({0: 1}, [1]),
    ],
)
def test_container_types_count_unless_told_otherwise(a, b):
    with pytest.raises(TypeError, match=r"check_types=False"):
        nest.assert_same_structure([a], [b])
    nest.assert_same_structure([a], [b], check_types=False)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1], "at the root: list of length 2 against list of length 1"),
        ({"a": [(1, 2)]}, {"a": [(1,)]}, r"at \['a'\]\[0\]: tuple of length 2 against"),
        ({"a": 1}, {"a": 1, "b": 2}, "dict of length 1 against dict of length 2"),
        ([{"a": 1}], [{"b": 1}], r"at \[0\]: keys \['a'\] against keys \['b'\]"),
        ([1], [[1]], r"at \[0\]: leaf \(int\) against structure \(list\)"),
        ([[]], [None], r"at \[0\]: structure \(list\) against leaf \(NoneType\)"),
        (Point(1, [2]), Point(1, [2, 3]), r"at \.x: list of length 1"),
        (Model([1], 2), Model([], 2), r"at \.weight: list of length 1"),
    ],
)
@pytest.mark.parametrize("check_types", [True, False])
def test_other_shapes_are_refused_by_place(a, b, message, check_types):
    with pytest.raises(ValueError, match=message):
        nest.assert_same_structure(a, b, check_types=check_types)


# register


def test_register_is_needed_and_can_come_late():
    @dataclass
    class Late:
        x: int

    assert nest.flatten([Late(1)]) == [Late(1)]
    assert nest.register(Late) is Late
    assert nest.flatten([Late(1)]) == [1]


def test_register_leaves_subclasses_out():
    class Special(Model):
        pass

    assert not nest.is_nested(Special(1, 2))


def test_pack_of_a_dataclass_runs_no_code_of_it():
    @nest.register
    @dataclass(frozen=True, slots=True)
    class Checked:
        x: float
        total: float = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "total", float(self.x) + 1)

    assert nest.flatten(Checked(2.0)) == [2.0, 3.0]
    packed = nest.pack_sequence_as(Checked(2.0), [None, "t"])
    assert (packed.x, packed.total) == (None, "t")
    with pytest.raises(FrozenInstanceError):
        packed.x = 1.0


@pytest.mark.parametrize("thing", [list, Point, object, Model(1, 2), "Model"])
def test_register_refuses_all_but_dataclasses(thing):
    with pytest.raises(
        TypeError, match=r"expected a dataclass, got .*above @dataclass"
    ):
        nest.register(thing)


def test_types_come_and_go():
    for _ in range(3000):
        assert nest.flatten([type("Fresh", (list,), {})([1]), 2]) == [1, 2]
    assert len(nest._rows) <= 1024
