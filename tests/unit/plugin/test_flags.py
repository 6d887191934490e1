"""Values of `--train-*` flags: forms, errors, and who wins."""

from __future__ import annotations

import pytest

from sbtrain.options.flag_table import FLAGS, TABLE, help_text
from sbtrain.options.flags import TrainOptions, read_flags
from sbtrain.scripts.frameworks import FRAMEWORKS
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import NodeRange, Objective


def read(**flags: str | None) -> TrainOptions:
    named = [(f"train-{name.replace('_', '-')}", value) for name, value in flags.items()]
    return read_flags(named, [])


def test_nothing_given() -> None:
    assert read_flags([], []) == TrainOptions()


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("layout", "auto", "layout", "auto"),
        ("layout", "allreduce", "layout", "allreduce"),
        ("layout", "ps", "layout", "ps"),
        ("layout", "ps:3", "servers", 3),
        ("layout", "ps", "framework", None),
        ("layout", "tensorflow-ps:3", "servers", 3),
        ("layout", "tensorflow-ps", "layout", "ps"),
        ("layout", "tensorflow-ps", "framework", "tensorflow"),
        ("layout", "torch", "layout", "allreduce"),
        *(("layout", name, "framework", name) for name in FRAMEWORKS),
        ("nodes", "auto", "nodes", NodeRange()),
        ("nodes", "4", "nodes", NodeRange(low=4, high=4)),
        ("nodes", "2-8", "nodes", NodeRange(low=2, high=8)),
        ("objective", "cost", "objective", Objective(kind="cost")),
        ("objective", "node-hours", "objective", Objective(kind="node-hours")),
        ("objective", "deadline:6h", "objective", Objective(kind="deadline", deadline_s=21600)),
        (
            "objective",
            "deadline:1d12h@99.5%",
            "objective",
            Objective(kind="deadline", deadline_s=129600, sure=0.995),
        ),
        (
            "objective",
            "deadline:6h@99.9%",
            "objective",
            Objective(kind="deadline", deadline_s=21600, sure=0.999),
        ),
        (
            "objective",
            "deadline:6h@50%",
            "objective",
            Objective(kind="deadline", deadline_s=21600, sure=0.5),
        ),
        ("objective", "deadline:90m", "objective", Objective(kind="deadline", deadline_s=5400)),
        (
            "objective",
            "deadline:1d12h",
            "objective",
            Objective(kind="deadline", deadline_s=129600),
        ),
        ("epochs", "1.5", "epochs", 1.5),
        ("steps", "200", "steps", 200),
        ("steps", "100k", "steps", 100_000),
        ("steps", "1.5K", "steps", 1500),
        ("steps", "1.001k", "steps", 1001),
        ("steps", "999999999999999", "steps", 10**15 - 1),
        ("batch", "32", "batch", 32),
        ("samples", "60000", "samples", 60000),
        ("params", "25.6M", "parameters", 25_600_000),
        ("params", "1.3B", "parameters", 1_300_000_000),
        ("tensors", "161", "tensors", 161),
        ("checkpoint", "ck pt", "checkpoint_dir", "ck pt"),
        ("name", "resnet", "name", "resnet"),
        ("site", "bluewaters", "site", "bluewaters"),
    ],
)
def test_a_value(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(read(**{name: value}), field) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layout", "ring"),
        ("layout", "torch:2"),
        ("layout", "ps:0"),
        ("layout", "ps:"),
        ("layout", ""),
        ("nodes", "0"),
        ("nodes", "4-2"),
        ("nodes", "2-"),
        ("nodes", "-3"),
        ("nodes", "²"),
        ("objective", "speed"),
        ("objective", "deadline"),
        ("objective", "deadline:"),
        ("objective", "deadline:0h"),
        ("objective", "deadline:6"),
        ("objective", "deadline:6h@95"),
        ("objective", "deadline:6h@40%"),
        ("objective", "deadline:6h@100%"),
        ("objective", "deadline:6h@99.91%"),
        ("objective", "deadline:6h@49.9%"),
        ("objective", f"deadline:{'9' * 400}d"),
        ("objective", "time:3h"),
        ("epochs", "0"),
        ("epochs", "nan"),
        ("epochs", "inf"),
        ("epochs", "1e400"),
        ("steps", "1.5"),
        ("steps", "-1"),
        ("steps", "0"),
        ("steps", "1.0005k"),
        ("steps", "9" * 40),
        ("steps", str(10**15)),
        ("params", "9" * 400),
        ("batch", "many"),
        ("samples", "0"),
        ("params", "25.6X"),
        ("params", "0.1"),
        ("checkpoint", ""),
        ("data", "a\nb"),
    ],
)
def test_a_wrong_value_names_the_flag_and_its_forms(name: str, value: str) -> None:
    with pytest.raises(RequestError, match=f"--train-{name} does not take") as raised:
        read(**{name: value})
    assert raised.value.hint.startswith("give ")


@pytest.mark.parametrize("name", ["steps", "batch", "samples", "params", "epochs"])
def test_a_number_past_the_limit_is_told_the_limit(name: str) -> None:
    with pytest.raises(RequestError) as raised:
        read(**{name: "1" + "0" * 16})
    assert "999,999,999,999,999" in raised.value.hint


def test_epochs_and_steps_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="--train-epochs and --train-steps"):
        read(epochs="1", steps="2")


def test_the_command_line_beats_the_script_flag_by_flag() -> None:
    script = [
        ("train-data", "a"),
        ("train-data", "b"),
        ("train-steps", "5"),
        ("train-batch", "7"),
    ]
    assert read_flags([], script).data == ("a", "b")
    options = read_flags([("train-data", "c"), ("train-steps", "9")], script)
    assert (options.data, options.steps, options.batch) == (("c",), 9, 7)


@pytest.mark.parametrize(
    ("words", "lines", "expected"),
    [
        ({"train-epochs": "90"}, {"train-steps": "400"}, (90.0, None)),
        ({"train-steps": "7"}, {"train-epochs": "2"}, (None, 7)),
        ({"train-steps": "7"}, {"train-epochs": "2", "train-steps": "400"}, (None, 7)),
        ({"train-batch": "8"}, {"train-steps": "400"}, (None, 400)),
    ],
)
def test_the_command_line_beats_what_the_script_says_in_another_way(
    words: dict[str, str], lines: dict[str, str], expected: tuple[float | None, int | None]
) -> None:
    options = read_flags(list(words.items()), list(lines.items()))
    assert (options.epochs, options.steps) == expected


def test_two_ways_on_one_level_contradict_each_other() -> None:
    both = [("train-epochs", "1"), ("train-steps", "2")]
    with pytest.raises(RequestError, match="--train-epochs and --train-steps"):
        read_flags([], both)
    with pytest.raises(RequestError, match="--train-epochs and --train-steps"):
        read_flags(both, [("train-steps", "3")])


def test_help_tells_of_every_flag() -> None:
    for width in (40, 60, 80, 200):
        lines = help_text(width).splitlines()
        assert all(f"  --{name}" in "\n".join(lines) for name, _, _ in TABLE)
        assert max(map(len, lines)) <= max(width, 60)
    assert set(FLAGS) == {name for name, _, _ in TABLE}
