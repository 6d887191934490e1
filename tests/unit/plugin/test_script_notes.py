"""Scripts that sbtrain would start otherwise than their author thinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.options.argv import split_command_line
from sbtrain.options.flag_table import FLAGS
from sbtrain.submission.notes import launch_note, script_notes
from sbtrain.submission.read_call import Surroundings, read_call
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import LayoutChoice

PLAIN = "#!/bin/bash\npython train.py\n"
JOINS = "#!/usr/bin/env python3\nfrom sbtrain_jobs import join\n"
TORCH = "#!/usr/bin/env python3\nimport torch\n"
HOROVOD = "#!/usr/bin/env python3\nimport horovod.torch as hvd\nhvd.init()\n"
FOLLOWS = f"{JOINS}import tensorflow\njoin().tensorflow()\n"
SERVES = (
    "#!/usr/bin/env python3\nimport tensorflow as tf\ntf.distribute.ParameterServerStrategy()\n"
)


def called(
    text: str, *argv: str, args: tuple[str, ...] = (), place: Path
) -> tuple[LayoutChoice, list[str]]:
    (place / "train").write_text(text)
    line = split_command_line([*argv, "./train", *args], FLAGS)
    around = Surroundings(cwd=place, environ={}, stdin=lambda: b"")
    asked = read_call(line, around)
    return asked.request.layout, list(script_notes(asked, line))


@pytest.mark.parametrize(
    ("text", "argv", "layout"),
    [
        (PLAIN, (), "allreduce"),
        ("#!/usr/bin/python3\nprint 'old'\n", (), "allreduce"),
        (PLAIN, ("--train-layout=auto",), "auto"),
        (PLAIN, ("--train-layout=ps:2",), "ps"),
        ("#!/bin/bash\n#SBTRAIN --train-layout=auto\npython train.py\n", (), "auto"),
        (TORCH, (), "allreduce"),
        (JOINS, (), "allreduce"),
        (JOINS, ("--train-layout=auto",), "auto"),
        (FOLLOWS, (), "auto"),
        (FOLLOWS, ("--train-layout=allreduce",), "allreduce"),
        (SERVES, (), "ps"),
        (SERVES, ("--train-layout=allreduce",), "allreduce"),
    ],
)
def test_the_layouts_are_those_of_the_script_or_those_asked_for(
    text: str, argv: tuple[str, ...], layout: LayoutChoice, tmp_path: Path
) -> None:
    planned, notes = called(text, *argv, place=tmp_path)
    assert planned == layout
    asked = bool(argv) or "#SBTRAIN" in text
    said = [note.partition(":")[0] for note in notes if note.startswith("planned")]
    way = {"allreduce": "without", "ps": "with"}.get(layout)
    plain = text in (JOINS, TORCH) or "bash" in text  # nobody needs to hear of servers
    expected = [] if asked or plain or way is None else [f"planned {way} parameter servers"]
    assert said == expected


def test_servers_asked_for_of_a_script_that_cannot_play_one_are_noted(tmp_path: Path) -> None:
    _, (note,) = called(TORCH, "--train-layout=ps", place=tmp_path)
    assert "its parameter servers will run it as the workers do" in note
    planned, (note,) = called(JOINS, "--train-layout=ps", place=tmp_path)
    assert planned == "ps"
    assert "neither calls run.tensorflow() nor makes a parameter server: in join()" in note
    for text in (FOLLOWS, SERVES):
        assert called(text, "--train-layout=ps", place=tmp_path) == ("ps", [])


@pytest.mark.parametrize(
    "forms",
    [
        "import horovod.torch as hvd\nhvd.init()\n",
        "from mpi4py import MPI\nMPI.COMM_WORLD.Get_rank()\n",
        "import torch.distributed as dist\ndist.init_process_group()\n",
    ],
)
def test_a_world_of_which_every_process_is_a_rank_gets_no_servers(
    forms: str, tmp_path: Path
) -> None:
    text = f"#!/usr/bin/env python3\n{forms}"
    with pytest.raises(RequestError, match="plays no server"):
        called(text, "--train-layout=ps:1", place=tmp_path)
    assert called(text, "--train-layout=auto", place=tmp_path)[0] == "auto"


def test_data_that_holds_nothing_is_noted(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "some").write_bytes(b"1")
    _, notes = called(FOLLOWS, "--train-data=none", place=tmp_path)
    assert "--train-data holds nothing yet" in " ".join(notes)
    _, notes = called(FOLLOWS, "--train-data=some", place=tmp_path)
    assert notes == []


@pytest.mark.parametrize(
    ("text", "argv", "launch", "why"),
    [
        ("#!/bin/bash\nmodule load x\nsrun python t.py\n", (), "script", "line 3 starts"),
        ("#!/bin/bash\nexec mpirun -n 4 a.out\n", (), "script", "line 2 starts"),
        ("#!/bin/bash\n# srun\necho srun x\n", (), "script", "no line in it is known to start"),
        ("#!/usr/bin/perl\nprint 1;\n", (), "script", "no line in it is known to start"),
        (
            TORCH,
            (),
            "ranks",
            "every rank: it follows no framework's convention (no call in it is",
        ),
        (f"{TORCH}'srun x'\n", (), "ranks", "once for every rank"),
        (f"{JOINS}import os\nos.system('srun ./a')\n", (), "script", "line 4 starts"),
        (TORCH, ("--train-launch=script",), "script", "(--train-launch=script)"),
        (PLAIN, ("--train-launch=ranks",), "ranks", "(--train-launch=ranks)"),
        (
            PLAIN,
            ("--train-launch=ranks",),
            "ranks",
            "no framework's convention (it is no Python)",
        ),
        (
            HOROVOD,
            (),
            "ranks",
            "rank, 2 on each node: it follows Horovod's world (init on line 3)",
        ),
        (
            HOROVOD,
            ("--train-layout=mpi",),
            "ranks",
            "MPI's world (as --train-layout says, though it calls init on line",
        ),
        ("#!/bin/bash\n#SBTRAIN --train-launch=ranks\nsrun x\n", (), "ranks", "every rank"),
    ],
)
def test_how_a_script_is_run_is_told_by_what_it_does(
    text: str, argv: tuple[str, ...], launch: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "train").write_text(text)
    line = split_command_line([*argv, "./train"], FLAGS)
    asked = read_call(line, Surroundings(cwd=tmp_path, environ={}, stdin=lambda: b""))
    assert asked.launch == launch
    assert why in launch_note(asked, each=2 if text == HOROVOD else 1)


def test_our_flags_behind_the_script_are_named(tmp_path: Path) -> None:
    args = ("--train-steps=5", "--train-data", "x", "--train-own", "--lr=1")
    _, notes = called(FOLLOWS, args=args, place=tmp_path)
    assert [note.split()[0] for note in notes] == ["--train-steps", "--train-data"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_program_that_a_script_launches_may_say_that_the_run_resumes(
    resumes: bool, tmp_path: Path
) -> None:
    start = "start = run.resume(print)" if resumes else "start = 0"
    (tmp_path / "train.py").write_text(
        f"from sbtrain import join\nwith join() as run:\n    {start}\n"
        "    for step in run.steps(start=start, save=print):\n        pass\n"
    )
    (tmp_path / "a.sh").write_text("#!/bin/sh\nsrun python train.py --lr 1\n")
    line = split_command_line(["--train-steps=3", "a.sh"], FLAGS)
    asked = read_call(line, Surroundings(cwd=tmp_path, environ={}, stdin=lambda: b""))
    assert (asked.launch, asked.request.resumable) == ("script", resumes)
