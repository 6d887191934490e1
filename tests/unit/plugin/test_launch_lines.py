"""What a script launches by itself: shell against the shell itself, Python by its tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from launching_scripts import BASH_ONLY, CSH, PERHAPS, PYTHON, STRAIGHT
from sbtrain.launches.launch_lines import LaunchLine, launch_lines
from sbtrain.options.script import Script

LAUNCHERS = (
    *("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "torchrun", "jsrun"),
    *("deepspeed", "horovodrun", "aprun", "ibrun", "prterun", "accelerate", "ray"),
)
SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]


def lines_of(text: str | bytes, *, name: str = "job.sh") -> tuple[LaunchLine, ...]:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return launch_lines(Script(name=name, folder=Path("/"), content=content, shown=name))


def shown(text: str, *, name: str = "job.sh", head: str = "#!/bin/bash\n") -> list[str]:
    """Each line found as `number program words`, numbers behind the head."""
    return [
        f"{one.number - head.count(chr(10))} {' '.join((one.program, *one.words))}"
        for one in lines_of(head + text, name=name)
    ]


class Stage:
    """Programs that write down how they were called, first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        (folder / "bin").mkdir()
        stub = folder / "bin/stub"
        stub.write_text(
            "#!/bin/sh\nbreak=$(printf '\\001')\nline=${0##*/}\n"
            'for one; do line="$line$break$one"; done\nprintf \'%s\\002\' "$line" >> "$LOG"\n'
        )
        stub.chmod(0o755)
        for name in LAUNCHERS:
            (folder / "bin" / name).symlink_to(stub)
        time = (
            folder / "bin/time"
        )  # a word of bash; for dash a program, that not all hosts have
        time.write_text('#!/bin/sh\n[ "$1" = -p ] && shift\nexec "$@"\n')
        time.chmod(0o755)

    def ran(self, text: str, *, shell: str) -> list[tuple[str, ...]]:
        self.log.write_text("")
        script = self.folder / "job.sh"
        script.write_text(text)
        environ = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "LOG": str(self.log)}
        subprocess.run(
            [shell, str(script)],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        calls = self.log.read_text().split("\2")
        return sorted(tuple(call.split("\1")) for call in calls if call)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def found(text: str) -> list[tuple[str, ...]]:
    calls = ((*one.program.split(), *one.words) for one in lines_of(text))
    return sorted(calls)


@pytest.mark.parametrize("text", STRAIGHT)
@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_shell_starts_is_found(text: str, shell: str, stage: Stage) -> None:
    text = f"#!/bin/{shell}\n{text}\n"
    assert found(text) == stage.ran(text, shell=shell)


@pytest.mark.parametrize("text", BASH_ONLY)
def test_what_bash_starts_is_found(text: str, stage: Stage) -> None:
    text = f"#!/bin/bash\n{text}\n"
    ran = stage.ran(text, shell="bash")
    calls = [tuple("<()" if re.match("/dev/fd/", word) else word for word in c) for c in ran]
    seen = [tuple("<()" if word.startswith("<(") else word for word in c) for c in found(text)]
    assert seen == calls


@pytest.mark.parametrize(("text", "expected"), PERHAPS)
def test_what_may_come_to_pass_is_found(text: str, expected: list[str]) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(("text", "expected"), CSH)
def test_csh_is_read_as_well_as_may_be(text: str, expected: list[str]) -> None:
    assert shown(text, head="#!/bin/tcsh -f\n") == expected


@pytest.mark.parametrize(("text", "expected"), PYTHON)
def test_calls_of_python_are_found_by_the_tree(text: str, expected: list[str]) -> None:
    assert shown(text, name="job.py", head="") == expected


PREFIXES = (
    "",
    "A=1 ",
    "env B=2 ",
    "command ",
    "time ",
    "nice -n 3 ",
    "timeout 9 ",
    "nohup ",
    "stdbuf -oL ",
    "A='x y' B=$N ",
    "env -u X ",
    "timeout -s INT 9 ",
    "\\\n",
)
PROGRAMS = (
    "srun",
    "'mpirun'",
    'tor"chrun"',
    "\\mpiexec",
    "$L",
    "${L}",
    "${U:-prun}",
    '"${ARR[@]}"',
    "./bin/srun",
    "$S",
    "sr\\\nun",
    "echo",
    "true",
)
WORDS = (
    "a",
    "'; srun b'",
    '"# c"',
    "\\;",
    "e#f",
    "$N",
    '"$L $N"',
    "$(mpirun g)",
    "`srun h`",
    "''",
    "'#'",
    "$'x\\ty'",
    '"a\\"b"',
    "a\\ b",
    "<<<'srun q'",
    "2>/dev/null",
    "${N:+x}",
    "'\nsrun q\n'",
    '"\nsrun q\n"',
    "\\\n",
)
ENDS = (
    *("\n", "; ", " # srun i\n", " > out\n", " 2>&1 | cat\n", " && ", "; false || srun j\n"),
    *(" <<E\nsrun k\n$(prun l)\nE\n", " <<'E'\n$(srun m)\nE\n", "\n\n  # mpirun n\n\t"),
    *(" & wait\n", " |& cat\n", " <<-E\n\tsrun k\n\tE\n", " <<A <<B\nsrun k\nA\nsrun m\nB\n"),
)
AROUND = (
    "{}",
    "while true; do {}\nbreak; done\n",
    "function g {{ {}\n}}\ng\n",
    "g() ( {}\n)\ng\n",
    "[[ srun == s* && -n x ]] && {{ {}\n}}\n",
    "((1<<2)); {}\n",
    "for ((i=0;i<1;i++)); do {}\ndone\n",
    "( ( {}\n) )\n",
    "if false; then :; elif {}\ntrue; then :; fi\n",
    "( {} )\n",
    "{{ {}\n}}\n",
    "if true; then {}\nfi\n",
    "for L in jsrun; do {}\ndone\n",
    "case x in y) srun no1 ;; (x) {}\n;; esac\n",
    "f() {{ {}\n}}; f\n",
    "x=$( {}\n)\n",
    "echo \"$( {}\n)\" 'srun no2'\n",
)
calls = st.builds(
    "{}{} {}{}".format,
    st.sampled_from(PREFIXES),
    st.sampled_from(PROGRAMS),
    st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
    st.sampled_from(ENDS),
)
blocks = st.builds(
    lambda around, calls: around.format("".join(calls) + ":"),
    st.sampled_from(AROUND),
    st.lists(calls, min_size=1, max_size=3),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(blocks=st.lists(blocks, min_size=1, max_size=4))
def test_what_is_put_together_at_random_is_found(blocks: list[str], stage: Stage) -> None:
    head = "#!/bin/bash\nL='srun -n4'; N=3; ARR=(jsrun 'p q'); S=$(which mpirun)\n"
    text = head + "\n".join(blocks) + "\n"
    assume("$( " not in text or "<<" not in text)  # bash 5.2 itself misreads some of these
    seen = [
        tuple(word for word in call if word[:2] not in ("$(", "`s")) for call in found(text)
    ]
    # What the stubs print is nothing, so that `$(mpirun g)` is no word; no1 is another arm.
    assert sorted(call for call in seen if "no1" not in call) == stage.ran(text, shell="bash")


SHARDS = (
    *(
        "srun",
        " ",
        "\n",
        "'",
        '"',
        "\\",
        "$",
        "(",
        ")",
        "{",
        "}",
        "`",
        "<<E",
        "<<-'E'",
        "E",
        ";",
    ),
    *("|", "&", "#", "case x in", ";;", "esac", "if", "then", "fi", "for i in", "do", "done"),
    *(
        "((",
        "))",
        "[[",
        "]]",
        "$((",
        "${",
        "$L",
        "L=",
        "L=(",
        "srun a",
        "f()",
        "eval ",
        "<(",
        "\0",
    ),
    *("import os", "os.system(", "f'{", "[", "]", ",", "é", "\udcff", "bash -c ", "trap "),
)


@settings(max_examples=400, deadline=None)
@given(
    text=st.lists(st.sampled_from(SHARDS) | st.text(max_size=5), max_size=40).map("".join),
    name=st.sampled_from(["job.sh", "job.py"]),
)
def test_no_text_is_an_error(text: str, name: str) -> None:
    content = f"#!/bin/bash\n{text}".encode("utf-8", "surrogatepass")
    for head in ("#!/bin/bash\n", "#!/usr/bin/env python3\n", "#!/bin/tcsh\n", ""):
        lines_of(head.encode() + content, name=name)


MIB = 1 << 20


@pytest.mark.parametrize(
    "part",
    [
        "python train.py --lr 0.1 > out 2>&1\n",
        "srun -n4 python train.py\n",
        "echo \"$A b\" 'c' `d` $(e)\n",
        "A=1 ",
        "env ",
        "(",
        "((a);b);",
        "$(",
        "`",
        "${a:-",
        '"$("',
        "cat <<E\n$(a)\nE\n",
        'A="$A$A"; $A x; eval $A\n',
        "case x in a) ",
        "[[ a && ",
        "f() { ",
        "\\\n",
        "'",
    ],
)
def test_long_scripts_take_a_moment(part: str) -> None:
    """As long as Slurm takes them, of whatever kind."""
    text = "#!/bin/bash\nsrun first\n" + part * (4 * MIB // len(part))
    begin = time.process_time()
    assert lines_of(text)[0].words == ("first",)
    assert time.process_time() - begin < 5  # some 1 s on a quiet machine


@pytest.mark.parametrize(
    "part",
    ["x = ['srun', 'a']\n", "os.system('srun a')\n", "x = x + x\n", "c = 'a'; os.system(c)\n"],
)
def test_long_python_takes_a_moment(part: str) -> None:
    text = "import os\nos.system('srun first')\nx = 'a'\n" + part * (MIB // 8 // len(part))
    begin = time.process_time()
    assert lines_of(text + "os.system(x)\n", name="job.py")[0].words == ("first",)
    assert time.process_time() - begin < 5
