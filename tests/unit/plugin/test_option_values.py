"""Values of options are read as sbatch 22.05 reads them, and refused where it refuses them;
`make bench-fidelity` compares more of them with sbatch itself."""

from __future__ import annotations

import pytest

from sbtrain.slurm.values import read_nodes, read_signal, read_tasks


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        *(("4", (4, 4)), ("2-4", (2, 4)), ("1k", (1024, 1024)), ("1m-2M", (1 << 20, 2 << 20))),
        *(("1,4,8-16:2", (1, 16)), (" 1 - 2 ", (1, 2)), ("+1-+2", (1, 2)), ("01", (1, 1))),
        *(("0-3", (1, 3)), ("-3", (1, 3)), ("1Km", (1 << 30, 1 << 30))),
    ],
)
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert read_nodes(text) == nodes


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "0", "0-0", "-", "1-", "2-1", "1--1", "1-2-3", "1kk", "1 k", "1.5", "x"),
        *("0x1", "2147483648", "2m-1", "2048m"),
    ],
)
def test_no_number_of_nodes(text: str) -> None:
    with pytest.raises(ValueError, match="not a number of nodes"):
        read_nodes(text)


def test_tasks() -> None:
    assert [read_tasks(text) for text in ("1", "+1", " 1", "01", "2147483647")] == [1] * 4 + [
        2**31 - 1
    ]
    for text in ("", "0", "-1", "1k", "1 ", "1.0", "0x1", "x", "2147483648"):
        with pytest.raises(ValueError, match="not a number of tasks"):
            read_tasks(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("USR1", "USR1"), ("sigusr1@5", "USR1"), ("B:10@60", "USR1"), ("RB:USR2@", "USR2")),
        *(
            ("BR:usr1", "USR1"),
            (":USR1", "USR1"),
            (" USR1 @ +5", "USR1"),
            ("RTSTP", "TSTP"),
            ("BRHUP", "HUP"),
        ),
        *(("B11", "SEGV"), ("+15", "TERM"), ("KILL@-0", "KILL")),
    ],
)
def test_signals(text: str, name: str) -> None:
    assert read_signal(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "x", "B:", "@5", "USR", "SIG10", "x:USR1", "BB:USR1", "USR1@x", "USR1@-5"),
        *("USR1@5 ", "USR1@65536", "SEGV", "WINCH", "RTMIN", "1.5", "0x5", "10x", "65"),
    ],
)
def test_no_signals(text: str) -> None:
    with pytest.raises(ValueError, match=r"signal|Signals|65535"):
        read_signal(text)
