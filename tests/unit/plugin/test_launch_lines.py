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

from sbtrain.options.script import Script
from sbtrain.submission.launch_lines import LaunchLine, launch_lines

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


# Each is run by the shell; all that it starts is to be found, and nothing else.
STRAIGHT = [
    "srun -n4 python train.py",
    "srun a; mpirun b && torchrun c; false || mpiexec d",
    "srun a & wait",
    "srun a | mpirun b | cat",
    "A=1 srun a",
    "A=1 B='2 3' srun a",
    "env A=1 B=2 srun a",
    'env -u HOME -i PATH="$PATH" LOG="$LOG" srun a',
    "command srun a",
    "exec srun a",
    "nohup srun a > out 2>&1 < /dev/null &\nwait",
    "stdbuf -oL -e L srun a",
    "timeout 10 srun a",
    "timeout -k 5 --signal=TERM 10s srun a",
    "nice -n 5 srun a; nice -5 mpirun b; nice srun c",
    "setsid -w srun a",
    "setsid --wait env A=1 timeout 9 srun a",
    "time srun a",
    "time -p srun a",
    "! srun a",
    "if srun a; then mpirun b; fi",
    "if true\nthen\n  srun a\nelse\n  :\nfi",
    "while srun a; do mpirun b; break; done",
    "until srun a; do :; done",
    "for i in 1; do srun a; done",
    "for i in srun; do :; done; srun a",
    "for i in srun\ndo $i a\ndone",
    "case x in x) srun a;; esac",
    "case x in (x) srun a ;; esac",
    "case srun in mpirun | srun) srun a ;; esac\nmpirun b",
    "case x in\n  x)\n    srun a\n    ;;\nesac",
    'case "$HOME" in esac; srun a',
    "f() { srun a; }; f",
    "f()\n{\n  srun a\n}\nf",
    "f() ( srun a ); f",
    "{ srun a; }",
    "( srun a )",
    "(srun a)",
    "( ( srun a ); mpirun b )",
    "((srun a); (mpirun b))",
    "x=$(srun a)",
    "x=`srun a`",
    "x=`echo \\`srun a\\``",
    'echo $(srun a) "$(mpirun b)" `torchrun c` "`orterun d`"',
    'echo "$(echo "$(srun a)")"',
    'echo ${x:-$(srun a)} "${y:-"$(mpirun b)"}"',
    "echo $(case x in x) srun a;; esac)",
    "echo $(( 1 + 2 )) $(( $(srun a; echo 1) + 1 ))",
    "srun a b \\\n  c \\\n  d\nmpirun e",
    "srun \\\n\\\n a",
    "s\\run a; m'pi'r\"un\" b",
    "\\srun a",
    '"srun" a',
    "'srun' a",
    "srun 'a b' \"c d\" e\\ f ''",
    "srun a # mpirun b",
    "# srun a\nmpirun b",
    "srun a#b '#c' \\#d",
    "echo srun a; echo \"; srun b\"; echo '; srun c'",
    "echo '\nsrun a\n'\nmpirun b",
    'echo "\nsrun a\n"\nmpirun b',
    "echo a \\; srun b",
    "cat <<EOF\nsrun a\nEOF\nmpirun b",
    "cat <<'EOF'\n$(srun a)\nEOF\nmpirun b",
    "cat <<\\EOF\n`srun a`\nEOF\nmpirun b",
    "cat <<EOF\n$(srun a) `mpirun b` \\$(torchrun c)\nEOF",
    "cat <<-EOF\n\tsrun a\n\tEOF\nmpirun b",
    "cat <<A; cat <<B\nsrun a\nA\nsrun b\nB\nmpirun c",
    "cat <<EOF | srun a\nsrun b\nEOF",
    "srun a <<EOF\nEOF2\n EOF\nsrun b\nEOF\nmpirun c",
    "srun a <<'E O F'\nsrun b\nE O F\nmpirun c",
    "if true; then cat <<EOF\nsrun a\nEOF\nfi\nmpirun b",
    "x=$(cat <<EOF\nsrun a\nEOF\n)\nmpirun b",
    "srun a > out 2>&1",
    "srun > out a 2> err b",
    "> out srun a",
    "srun a >> out 2>/dev/null </dev/null 3>&1",
    "L=srun; $L a",
    "L='srun -n4'; $L a",
    'L="srun -n4"\nL="$L --gpus=1"\n$L a',
    "L=mpirun; L=srun; $L a",
    "L=srun; L=echo; $L a",
    "L=srun; unset M; $M $L a",
    'N=4; srun -n$N "-N${N}" a',
    "$UNSET srun a",
    "${UNSET:-srun} a; ${UNSET-mpirun} b",
    "L=srun; ${L:-mpirun} a",
    "S=$(which srun); $S a",
    "S=$(command -v srun); $S a",
    'S=`which srun`; "$S" a',
    'D=$PWD/bin; $D/srun a; "$D/mpirun" b; "${D}"/torchrun c',
    "./bin/srun a; bin/mpirun b",
    "export L=srun; $L a",
    "N=3; srun a ${N:+b} ${N+c}",
    "N=; ${N:+mpirun} srun a",
    "eval srun a",
    "eval 'srun a; mpirun b'",
    "L='srun a'; eval \"$L b\"; eval $L",
    "bash -c 'srun a'",
    'sh -c "srun a; mpirun b"',
    "bash -e -c 'srun a'; bash -ec 'mpirun b'",
    "timeout 5 bash -c 'srun a' name mpirun",
    "trap 'srun a' EXIT",
    "trap '' TERM; trap - TERM; srun a",
    "xargs -n 1 srun a < /dev/null",
    "which srun; command -v srun; type srun; hash srun",
    "alias srun=x; alias mpirun='srun a'; unalias srun",
    "test -n srun && [ -n srun ] && mpirun a",
    "[ srun = srun ] && srun a",
    "srun() { echo no; }; srun a; command srun b",
    "if false; then srun() { echo no; }; fi; srun a",
    'run() { echo "$*"; "$@"; }; run srun a; run echo b',
    "run() { shift; time \"$@\"; }\nrun 3 srun a 'b c'",
    "run() { eval \"$@\"; }; run 'srun a' b",
    'show() { echo "$@"; }; show srun a',
    "bash <<'EOF'\nsrun a\nEOF",
    "sh -e <<EOF\nsrun a\nmpirun b\nEOF",
    "bash -s <<-EOF\n\tsrun a\n\tEOF",
    "bash <<EOF\nsrun $(mpirun b)\nEOF\nsh other <<EOF\nsrun a\nEOF",
    "set -eu; srun a",
    'set -- srun a; shift; echo "$@"',
    "cd /; srun a",
    "srun a;srun b;mpirun c",
    "srun a&mpirun b&wait",
    "true&&srun a",
    "true|srun a",
    "srun a;#srun b",
    "accelerate launch a --b c; ray start --head",
    "echo \"$(printf '%s' ')')\" >/dev/null; mpirun a",
    "printf '%s\\n' 'srun a' > job2; mpirun b",
    "x='a\\'; srun b",
    'x="a\\"; srun b"; mpirun c',
    ": ${x:=srun}; mpirun a",
    "while read -r line; do srun a; done <<EOF\nsrun b\nEOF",
]
# bash has more than sh.
BASH_ONLY = [
    "(exec -a other srun a); mpirun b",
    "set -euo pipefail; srun a",
    "[[ srun == srun && -n srun ]] && mpirun a",
    "[[ a =~ ^(srun|b)$ ]] || mpirun a",
    "[[ -n a &&\n srun ]] && mpirun a",
    "(( a = 1 << 2 ))\nsrun a",
    "((a=1<<2)); srun a",
    "for ((i = 0; i < 1; i++)); do srun a; done",
    'L=(srun -n4); "${L[@]}" a',
    "L=(srun); L+=(-n4 'b c'); \"${L[@]}\" a",
    "L=(\n  srun  # how\n  -n4\n)\n${L[@]} a",
    "L=srun; L+=' -n4'; $L a",
    "function f { srun a; }; f",
    "function f() { srun a; }; f",
    "function f\n{\n  srun a\n}\nf",
    "srun <(mpirun a) >/dev/null",
    "srun a > >(mpirun b)",
    "srun a &> out; mpirun b &>> out",
    "srun a |& cat",
    "cat <<< 'srun a'; mpirun b",
    "cat <<<$(srun a)",
    "echo $'it\\'s; srun a'; mpirun b",
    'echo $"srun a; "; mpirun b',
    "case x in x) srun a;& y) mpirun b;; esac",
    "case x in x) srun a;;& x) mpirun b;; esac",
    "shopt -s extglob\nls !(srun|mpirun) >/dev/null; srun a",
    "echo $((1 + $(srun a; echo 2)))",
    "coproc srun a; wait",
    "coproc X { srun a; }; wait",
    "declare -a L=(srun); srun a",
    "select x in srun; do srun a; break; done <<< 1; mpirun b",
    "srun a {fd}>out; mpirun b",
    "x=${HOME#srun }; y=${#HOME}; z=${HOME/srun/x}; srun a",
    "time { srun a; mpirun b; }",
    "if ! [[ -f srun ]]; then srun a; fi",
    "flock lock srun a; flock lock -c 'mpirun b'",
    "srun a $'b\\tc'",
]
# What comes to pass when it depends: found though this shell would not come by.
PERHAPS = [
    ("if false; then srun a; else mpirun b; fi", ["1 srun a", "1 mpirun b"]),
    ("false && srun a", ["1 srun a"]),
    ("f() {\n  srun a\n}", ["2 srun a"]),
    ("f() {\n  $L a\n}\nL=srun\nf", ["2 srun a"]),
    ("case $1 in\nsrun) srun a;;\n*) mpirun b;;\nesac", ["2 srun a", "3 mpirun b"]),
    ("L=srun\nif false; then L=; fi\n$L a", ["3 srun a"]),
    ("if true; then L='srun -n2'; else L=mpirun; fi\n$L a", ["2 mpirun a"]),
    ("${L:+srun} a", ["1 srun a"]),
    ('srun -n $SLURM_NTASKS "$@"', ["1 srun -n $SLURM_NTASKS $@"]),
    ("srun a $(date +%s)", ["1 srun a $(date +%s)"]),
    ('"$PYTHON" -u -m torch.distributed.run a', ["1 python -m torch.distributed.run a"]),
    ("$MPI_HOME/bin/mpirun a", ["1 mpirun a"]),
    ("python3 -u -m torch.distributed.launch a", ["1 python3 -m torch.distributed.launch a"]),
    ("python -m accelerate.commands.launch a", ["1 python -m accelerate.commands.launch a"]),
    ("python -um torch.distributed.run a", ["1 python -m torch.distributed.run a"]),
    ("python $(which torchrun) a", ["1 torchrun a"]),
    ("python -W ignore -u /opt/bin/deepspeed a", ["1 deepspeed a"]),
    ("python -c 'import os; os.system(\"srun a\")'", ["1 srun a"]),
    ("apptainer exec --nv -B /a:/b --pwd /x img.sif torchrun a", ["1 torchrun a"]),
    ("singularity -q run img.sif srun a", ["1 srun a"]),
    ("docker run --rm -v a:b --gpus all img torchrun a", ["1 torchrun a"]),
    ("numactl --cpunodebind=0 -m 0 srun a", ["1 srun a"]),
    ("numactl --membind 0 srun a", ["1 srun a"]),
    ("taskset -c 0-3 srun a", ["1 srun a"]),
    ("sudo -u me A=1 srun a", ["1 srun a"]),
    ("conda run -n env --no-capture-output torchrun a", ["1 torchrun a"]),
    ("uv run accelerate launch a", ["1 accelerate launch a"]),
    ("nsys profile -o x --trace=cuda srun a", ["1 srun a"]),
    ("parallel -j4 'srun -n1 a {}' ::: 1 2", ["1 srun -n1 a {}"]),
    ("parallel -S host1,host2 a ::: 1 2", ["1 parallel -S host1,host2 a ::: 1 2"]),
    ("pdsh -w $SLURM_JOB_NODELIST a", ["1 pdsh -w $SLURM_JOB_NODELIST a"]),
    ("mpirun.mpich a; mpiexec.openmpi b", ["1 mpirun.mpich a", "1 mpiexec.openmpi b"]),
    ('run() { srun -n2 "$@"; }\nrun a\nrun b', ["1 srun -n2 $@"]),
    ("ssh host srun a", []),
    ("module load srun; ml mpirun", []),
    ("srun --version; mpirun -V; torchrun --help; srun -h", []),
    ("ray stop; ray job submit a; accelerate config; accelerate env", []),
    ("python -m torch.distributed a; python -m train", []),
    ("python srun.py; ./srun.sh; srun-helper a; mysrun b; run c", []),
    ("pip install deepspeed ray accelerate; conda install torchrun", []),
    ("sbatch --wrap 'srun a'; salloc srun b", []),
    ("sed -i s/srun/mpirun/ x; grep srun x; rm -f srun; man srun", []),
    ("alias srun='srun --mpi=pmix'", []),
    ("find . -name srun; scontrol show job srun", []),
    ("srun a\necho 'not closed\nmpirun b", ["1 srun a"]),
    ("srun a\necho $(not closed\nmpirun b", ["1 srun a", "3 mpirun b"]),
    ("srun a\ncat <<EOF\nmpirun b", ["1 srun a"]),
    (
        "srun a\n)))\nmpirun b\n;;\nesac\nfi\ntorchrun c",
        ["1 srun a", "3 mpirun b", "7 torchrun c"],
    ),
]
CSH = [
    ("srun a", ["1 srun a"]),
    ('set launch = "srun -n4"\n$launch a', ["2 srun -n4 a"]),
    ("set launch = (srun -n4)\n$launch a", ["2 srun -n4 a"]),
    ("setenv L srun\n$L a", ["2 srun a"]),
    ("if ( $n > 1 ) then\n  srun a\nelse\n  mpirun b\nendif", ["2 srun a", "4 mpirun b"]),
    ("if ( -e x ) srun a", ["1 srun a"]),
    ("foreach x (srun mpirun)\n  echo $x\nend\nsrun a", ["4 srun a"]),
    ("echo srun a # srun b\nset x = `srun c`", ["2 srun c"]),
]
PYTHON = [
    ("import subprocess\nsubprocess.run(['srun', '-n4', 'a'])", ["2 srun -n4 a"]),
    ("import subprocess as sp\nsp.Popen(('srun', 'a'))", ["2 srun a"]),
    ("from subprocess import run as go, Popen\ngo(['srun', 'a'])\nPopen(['mpirun'])",
     ["2 srun a", "3 mpirun"]),
    ("from subprocess import *\ncheck_call(['srun', 'a'])", ["2 srun a"]),
    ("import subprocess\nsubprocess.check_output('srun a', shell=True)", ["2 srun a"]),
    ("import os\nn = 4\nos.system(f'srun -n{n} a')", ["3 srun -n4 a"]),
    ("import subprocess\ndef f(n):\n    subprocess.call(f'cd x && srun -n{n} a', shell=True)",
     ["3 srun -n{n} a"]),
    ("import os\nos.system('A=1 srun a > b')", ["2 srun a"]),
    ("import os\nos.popen('echo srun; mpirun a')", ["2 mpirun a"]),
    ("from os import system\nsystem('srun a %d' % 4)", ["2 srun a %d"]),
    ("import os\nos.execvp('srun', ['srun', 'a'])", ["2 srun a"]),
    ("import os\nos.execlp('srun', 'srun', 'a')", ["2 srun a"]),
    ("import os\nos.spawnvp(os.P_WAIT, 'srun', ['srun', 'a'])", ["2 srun a"]),
    ("import os\nos.spawnlp(os.P_WAIT, 'srun', 'srun', 'a')", ["2 srun a"]),
    ("import asyncio\nasync def f():\n    await asyncio.create_subprocess_exec('srun', 'a')",
     ["3 srun a"]),
    ("import asyncio\nasync def f():\n    await asyncio.create_subprocess_shell('srun a')",
     ["3 srun a"]),
    ("import subprocess\ncmd = ['srun']\ncmd += ['x']\nsubprocess.run(cmd)", ["4 srun x"]),
    ("import os\nc = 'srun a'\nos.system(c)\nc = 'ls'\nos.system(c)", ["3 srun a"]),
    ("import os\nc = 'ls'\nif x:\n    c = 'srun a'\nos.system(c)", ["5 srun a"]),
    ("import os\ndef f():\n    c = 'srun a'\ndef g():\n    c = 'ls'\n    os.system(c)", []),
    ("import os\ndef f():\n    os.system(c)\nc = 'srun a'", ["3 srun a"]),
    ("import os\nl = os.environ.get('L', 'srun')\nos.system(f'{l} a')", ["3 srun a"]),
    ("import os\nclass A:\n    def go(self, c):\n        os.system(c)\n"
     "    def f(self):\n        self.go('srun a')", ["6 srun a"]),
    ("import os\nclass A:\n    def f(self):\n        self.c = ['srun', 'a']\n"
     "        os.system(' '.join(self.c))", ["5 srun a"]),
    ("import subprocess\ncmd = ['srun']\ncmd = cmd + ['a']\nsubprocess.run([*cmd, 'b'])",
     ["4 srun a b"]),
    ("import subprocess, shlex\nsubprocess.run(shlex.split('srun -n4 a'))", ["2 srun -n4 a"]),
    ("import subprocess\nsubprocess.run('srun a'.split())", ["2 srun a"]),
    ("import subprocess\nsubprocess.run(' '.join(['srun', 'a']), shell=True)", ["2 srun a"]),
    ("import subprocess, shutil\nsubprocess.run([shutil.which('srun'), 'a'])", ["2 srun a"]),
    ("import subprocess, os\nsubprocess.run([os.path.join(b, 'srun'), 'a'])", ["2 srun a"]),
    ("import subprocess\nfrom pathlib import Path\nsubprocess.run([Path('/b') / 'srun', 'a'])",
     ["3 srun a"]),
    ("import subprocess\nsubprocess.run(args=['srun', 'a'])", ["2 srun a"]),
    ("import subprocess\nsubprocess.run(['env', 'A=1', 'srun', 'a'])", ["2 srun a"]),
    ("import subprocess\nsubprocess.run(['bash', '-c', 'srun a; mpirun b'])",
     ["2 srun a", "2 mpirun b"]),
    ("import subprocess\ndef sh(c):\n    subprocess.run(c, shell=True)\nsh('srun a')",
     ["4 srun a"]),
    ("import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.run'])",
     ["2 python -m torch.distributed.run"]),
    ("import subprocess\nsubprocess.run(['torchrun' if x else y, 'a'])", ["2 torchrun a"]),
    ("import subprocess\nsubprocess.run(['which', 'srun'])", []),
    ("import subprocess\nsubprocess.run(['srun', '--version'])", []),
    ("import subprocess\nsubprocess.run(['echo', 'srun'])", []),
    ("import os\nos.system('echo srun')", []),
    ("# srun a\nprint('srun a')\nx = 'srun a'\n'''srun a'''", []),
    ("def run(x):\n    return x\nrun(['srun', 'a'])", []),
    ("class os:\n    pass\nos.system('srun a')", []),
    ("import logging\nlogging.info('mpirun a')\nraise SystemExit('use srun a')", []),
    ("print 'srun a'", []),
]  # fmt: skip


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
