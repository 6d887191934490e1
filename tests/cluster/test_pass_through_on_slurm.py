"""Calls in which nothing asks for training, by the real sbatch and by sbtrain as a file
`sbatch` first on PATH: what both print, and the jobs that they leave."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from commands import clean_environ
from sbtrain.cluster import PrivateCluster

pytestmark = pytest.mark.slurm

ENTRY = Path(__file__).resolve().parents[2] / "slurm_plugin/bin/sbtrain"
JOB = (
    "#!/bin/bash\necho ran $SLURM_NTASKS \"$@\"; env | cut -d= -f1 | grep -v -e '^_$' | sort\n"
)
VOLATILE = re.compile(
    r" (?:Priority|AllocNode:Sid|NodeList|BatchHost|LastSchedEval|RunTime|Reason|\w+Time"
    r"|SecsPreSuspend|JobState|TRES|NumTasks|Scheduler|HetJobIdSet|ReqNodeList|SchedNodeList)=\S*"
)
ID = re.compile(r"\b(?:Array)?JobId=(\d+)")
BEFORE_AN_ID = r"(JobId=|batch job |slurm-|\.)"
HELD = (
    "sbatch -H job.sh 'a b' '' --nodes=3; sbatch -HN2 -n2 -J 'two words' -- job.sh",
    "sbatch -H < job.sh; cat job.sh | sbatch -H; sbatch -H <(cat job.sh)",
    "sbatch -H <<< $'#!/bin/sh\\n#SBATCH --comment \"x y\"\\n#SBATCH\\t-n2 # why\\necho'",
    "printf '#!/bin/sh\\n#PBS -N p -l walltime=00:05:00\\n#BSUB -n 2\\ntrue\\n' | sbatch -H",
    "sbatch -H --wrap $'#SBATCH -N2\\necho x'; sbatch --wrap true job.sh; echo $?",
    "sbatch -H -n1 : -n2 job.sh; sbatch -H -n1 : -N abc job.sh; echo $?",
    "printf '#!/bin/sh\\n#SBATCH -H\\n#SBATCH hetjob\\n#SBATCH -H -n2\\ntrue\\n' | sbatch",
    "sed -i 's/$/\\r/' job.sh; sbatch -H job.sh; echo $?",
    "printf '\\xef\\xbb\\xbf#!/bin/sh\\n' | sbatch -H; "
    "printf '#!/bin/sh\\n: \\xff' | sbatch -H",
    "sbatch --nope job.sh; echo $?; sbatch -p nope job.sh; echo $?; sbatch nope.sh; echo $?",
    "SLURM_EXIT_ERROR=9 sbatch -p nope job.sh; echo $?; sbatch -t x job.sh; echo $?; sbatch -N",
    "SBATCH_JOB_NAME=v SBATCH_TIMELIMIT=7 sbatch -H job.sh; SBATCH_NOPE=1 sbatch -H -t9 job.sh",
    "sbatch --version; sbatch -n1 --usage; sbatch < /dev/null; echo $?; sbatch .; echo $?",
    "id=$(sbatch --parsable -H job.sh); echo .$id.; sbatch -Q -H job.sh; scancel $id; echo $?",
    "while read a; do sbatch -H job.sh $a; done < list; xargs -n1 sbatch -H job.sh < list",
    "sbatch -H job.sh <&-; sbatch -H job.sh >&-; sbatch <&-; sbatch -H job.sh > /dev/full",
    "sbatch -H -N99 job.sh; sbatch -H -N2 -n1 job.sh; "
    "sbatch --signal=B63@60 -H -a 0-3%2 job.sh",
    "sbatch -H --export=NONE job.sh; sbatch -H --export=A=1,B job.sh; sbatch -H -D sub job.sh",
    "printf 'A=1\\0' > e; exec 5< e; sbatch -H --export-file=5 --wrap 'echo $A'",
    "env -i PATH=$PATH SLURM_CONF=$SLURM_CONF LC_ALL=C sbatch -H job.sh; "
    "ulimit -n 99; umask 7; sbatch -H job.sh",
)
RUN = (
    "sbatch -o %x.out -n2 job.sh a; sbatch -W -o o --wrap 'exit 3'; echo $?",
    "unset LANG; sbatch -o o job.sh; sbatch -o p --export=NONE job.sh",
    "X=1 sbatch -o o -e e -i list --wrap 'cat; echo $X >&2; kill -9 $$'",
    "sbatch -o o -n2 --wrap 'srun echo twice'; sbatch -o p -a 0-1 --wrap true",
    "sbatch -o o <<'EOF'\n#!/usr/bin/env python3\n"
    "import sys\nprint('sbtrain' in sys.modules)\nEOF",
)
# With --train-launch=script.
ONCE = (
    "{ sbatch -H; cat; } < job.sh; cat job.sh | sbatch -H -n2; sbatch -H -J x <(cat job.sh)",
    "export LC_ALL= LANG=C LC_CTYPE=POSIX; sbatch -o o --wrap 'echo $LC_CTYPE; sed 5q $0'; "
    "sbatch -o p <<< $'#!/bin/bash\necho $LC_CTYPE $SLURM_JOB_NAME'",
    "{ sbatch -H -n1 : -n2; cat; } < job.sh; sbatch -H -n1 : -n2 <(cat job.sh)",
    "sbatch nope.sh; echo $?; sbatch < /dev/null; echo $?; sbatch --mail-type=x; echo $?",
    "for q in -H -HQ -HQQ; do sbatch $q <<< $'#!/bin/sh\\n#SLURM -n2\\n'; done",
    "sbatch -c 0 --cl x job.sh; echo $?; sbatch --e=x --wrap true; echo $?; sbatch -I; echo $?",
    "sbatch --test-only --cl x job.sh; echo $?; sbatch -d --comment=x job.sh; echo $?; "
    "sbatch <<< $'#!/bin/sh\\n#SBATCH --gres help'; echo $?; SBATCH_GRES=help sbatch job.sh",
    "sbatch --wait=x -H job.sh; echo $?; sbatch <<< $'#!/bin/sh\\n#SBATCH --quiet=1'; echo $?",
    "sbatch -H <<< $'#!/bin/sh\\ntrue\\n#BSUB -n 2\\n#PBS -N no'; printf '#!/bin/sh\\ntrue\\n"
    "#PBS -N p\\n#PBS -l nodes=2' | sbatch -H",
    "printf '#!/bin/sh\\n: \\xff\\n#SBATCH -N2' | sbatch -H; "
    "printf '#!/bin/sh\\n#SBATCH -J \\xff' | sbatch -H",
)
OURS = re.compile(r"^(?:sbtrain: |hint: ).*\n", re.M)
OF_A_RUN = re.compile(r" Command=.*?(?= WorkDir=)|(?: Comment=| )\[sbtrain:[^]]*\]")


class Site:
    """Where a text is typed: once with Slurm's sbatch, once with sbtrain in its place."""

    def __init__(self, folder: Path, cluster: PrivateCluster, *, word: str = "") -> None:
        self._folder = folder
        home = str(folder / "home")
        self._environ = clean_environ(SBTRAIN_HOME=home, **cluster.environment)
        for name in list(self._environ):
            if name.startswith("PYTHON"):  # as a user has it; the suite needs it, jobs do not
                del self._environ[name]
        wrapper = folder / "first/sbatch"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {ENTRY} {word} "$@"\n')
        wrapper.chmod(0o755)

    def left_by(self, text: str, *, ours: bool) -> dict[str, object]:
        place = self._folder / "place"
        self._slurm("rm", "-rf", str(place))
        (place / "sub").mkdir(parents=True)
        (place / "job.sh").write_text(JOB)
        (place / "list").write_text("a\nb\n")
        before = {*self._records()}
        path = self._environ["PATH"]
        path = f"{self._folder}/first:{path}" if ours else path
        said = subprocess.run(
            ["/bin/bash", "-c", text], cwd=place, env={**self._environ, "PATH": path},
            capture_output=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._until_idle(before)
        new = {number: line for number, line in self._records().items() if number not in before}
        self._slurm("scancel", *new)
        ids = {number for line in new.values() for number in ID.findall(line)}
        names = {number: f"JOB{place}" for place, number in enumerate(sorted(ids, key=int))}

        def plain(content: bytes) -> str:
            shown = content.decode(errors="backslashreplace")
            for number, name in names.items():
                shown = re.sub(rf"{BEFORE_AN_ID}{number}(?![0-9])", rf"\1{name}", shown)
            return shown

        return {
            "code": said.returncode,
            "stdout": plain(said.stdout),
            "stderr": plain(said.stderr),
            "files": {
                plain(str(file.relative_to(place)).encode()): plain(file.read_bytes())
                for file in place.rglob("*")
                if file.is_file()
            },
            "jobs": sorted(plain(VOLATILE.sub("", line).encode()) for line in new.values()),
        }

    def _until_idle(self, before: set[str]) -> None:
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s:
            new = [line for number, line in self._records().items() if number not in before]
            if not any(
                re.search(r"JobState=(RUNNING|COMPLETING|PENDING Reason=(?!JobHeld))", line)
                for line in new
            ):
                return
            time.sleep(0.2)
        pytest.fail("the jobs do not end")

    def _records(self) -> dict[str, str]:
        text = self._slurm("scontrol", "show", "job", "-o")
        lines = [" ".join(line.split()) for line in text.splitlines()]
        return {line.split()[0][6:]: line for line in lines if line.startswith("JobId=")}

    def _slurm(self, *argv: str) -> str:
        return subprocess.run(
            argv,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            errors="replace",
        ).stdout


@pytest.fixture
def site(tmp_path: Path, slurm_cluster: PrivateCluster) -> Site:
    return Site(tmp_path, slurm_cluster)


@pytest.mark.parametrize("text", [*HELD, *RUN])
def test_sbtrain_in_the_place_of_sbatch_makes_no_difference(site: Site, text: str) -> None:
    right = site.left_by(text, ours=False)
    assert site.left_by(text, ours=True) == right
    assert right["jobs"] or right["stderr"]


@pytest.mark.parametrize("text", ONCE)
def test_a_script_that_runs_once_is_submitted_as_by_sbatch(
    tmp_path: Path, slurm_cluster: PrivateCluster, text: str
) -> None:
    """Less sbtrain's own lines, its run folder, and its mark."""
    site = Site(tmp_path, slurm_cluster, word="--train-launch=script")

    def bare(left: dict[str, object]) -> dict[str, object]:
        left["stderr"] = OURS.sub("", str(left["stderr"]))
        left["jobs"] = [OF_A_RUN.sub("", job) for job in cast("list[str]", left["jobs"])]
        files = cast("dict[str, str]", left["files"])
        left["files"] = {k: v for k, v in files.items() if not k.startswith(".sbtrain/")}
        return left

    right = bare(site.left_by(text, ours=False))
    assert bare(site.left_by(text, ours=True)) == right
