"""What `--constraint` says of nodes."""

from __future__ import annotations

import pytest

from sbtrain.submission.constraint import features_of_each, features_of_some


@pytest.mark.parametrize(
    ("constraint", "each", "some"),
    [
        ("", [], []),
        ("a", [["a"]], []),
        ("a&b", [["a"], ["b"]], []),
        ("a,b", [["a"], ["b"]], []),
        ("a|b", [["a", "b"]], []),
        ("[a|b]", [["a", "b"]], []),
        ("(a|b)&c", [["a", "b"], ["c"]], []),
        ("c&(a|b)", [["c"], ["a", "b"]], []),
        ("gpu:a100&mem/8", [["gpu:a100"], ["mem/8"]], []),
        ("a*2&b*1", [], [("a", 2), ("b", 1)]),
        ("[a*2&b*1]", [], [("a", 2), ("b", 1)]),
        ("a*2&b", [["b"]], [("a", 2)]),
        ("a|b&c", [], []),
        ("[a&b]", [], []),
        ("[a|b]&c", [], []),
        ("(a&b)|c", [], []),
        ("[(a&b)|c]", [], []),
        ("((a", [], []),
    ],
)
def test_what_a_constraint_says_of_each_node_and_of_some(
    constraint: str, each: list[list[str]], some: list[tuple[str, int]]
) -> None:
    assert list(features_of_each(constraint)) == each
    assert list(features_of_some(constraint)) == some
