"""Scripts as users have them, which run."""

from __future__ import annotations

import sys
from pathlib import Path

from fidelity_checks.trials import Trial

_MPIEXEC = Path(sys.executable).with_name("mpiexec")
_OWN = "grep -v -e PID -e ^_= -e PORT -e START_TIME -e END_TIME -e NODELIST -e NODENAME -e SEEN"
_ENV = f"env | {_OWN} -e TOPOLOGY -e JOB_GPUS -e ^PATH= | sort"
_SH = "#!/bin/bash\n"


def _runs(name: str, body: str, words: str = "", arguments: str = "", text: str = "") -> Trial:
    job = body if body.startswith("#!") else _SH + body
    return Trial(name=name, job=job, text=text or f"sbatch {words} job.sh {arguments}")


ORDINARY = [
    _runs("a line", "echo hello"),
    _runs("its environment", _ENV),
    _runs("its environment in the C locale", _ENV, text="unset LANG; LC_ALL=C sbatch job.sh"),
    _runs("steps one after the other",
          "srun echo 1; srun -n2 echo 2; srun -l hostname | sort", "-n2"),
    _runs("-n4 with srun", "srun -l echo rank | sort", "-n4"),
    _runs("two tasks on each of two nodes",
          "#SBATCH -N2 --ntasks-per-node=2\necho once >> once\n"
          "srun printenv SLURM_PROCID | sort"),
    _runs("-N2 without a step", "echo once >> once", "-N2"),
    _runs("steps side by side", "srun -n1 --exact echo a & srun -n1 --exact echo a; wait",
          "-n2"),
    _runs("an array", "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT", "-a 0-3"),
    _runs("an array, one by one", "#SBATCH -a 1,3%1\nsrun echo $SLURM_ARRAY_TASK_ID >> all"),
    _runs("exit codes of an array", "exit $SLURM_ARRAY_TASK_ID", "-a 0-2"),
    _runs("-i", "cat; echo end", "-i in.txt"),
    _runs("standard input of a step", "cat in.txt | srun -n1 cat; srun -n1 cat < in.txt"),
    _runs("-o and -e", "echo o; echo e >&2", "-o out-%j.%x -e err-%A"),
    _runs("one file for both", "echo o; echo e >&2; echo o", "-o both -e both"),
    _runs("truncate", "echo new", text="echo old > o; sbatch -o o --open-mode=truncate job.sh"),
    _runs("append", "echo new", text="echo old > o; sbatch -o o --open-mode=append job.sh"),
    _runs("-o alone on an old file", "echo new", text="echo old > o; sbatch -o o job.sh"),
    _runs("--export=NONE", f"echo $X; {_ENV}", text="X=1 sbatch --export=NONE job.sh"),
    _runs("--export of some", "echo $X $Y", text="X=1 Y=2 sbatch --export=Y,Z=3 job.sh"),
    _runs("exit 3", "echo before; exit 3; echo after"),
    _runs("a step that fails", "srun false; echo status $?; exit 0"),
    _runs("set -e", "set -e\nfalse\necho not here"),
    _runs("kill -9 $$", "kill -9 $$"),
    _runs("kill -SEGV $$", "ulimit -c 0; kill -SEGV $$"),
    _runs("TERM trapped", "trap 'echo got; exit 0' TERM; touch up; sleep 60 & wait",
          text="id=$(sbatch --parsable job.sh); until [ -e up ]; do sleep .1; done; sleep .5; "
          "scancel -b -s TERM $id"),
    _runs("USR1 trapped, then exit 5",
          "trap 'echo got; exit 5' USR1; touch up; sleep 60 & wait",
          text="id=$(sbatch --parsable job.sh); until [ -e up ]; do sleep .1; done; sleep .5; "
          "scancel -b -s USR1 $id"),
    _runs("cancelled", "touch up; sleep 60",
          text="id=$(sbatch --parsable job.sh); until [ -e up ]; do sleep .1; done; "
          "scancel $id"),
    _runs("requeued by scontrol", "echo $SLURM_RESTART_COUNT >> runs; touch up; "
          "[ \"$SLURM_RESTART_COUNT\" ] || sleep 60",
          text="id=$(sbatch --parsable job.sh); until [ -e up ]; do sleep .1; done; "
          "scontrol requeue $id; echo $?"),
    _runs("requeued by itself",
          "echo $SLURM_RESTART_COUNT >> runs; [ $SLURM_RESTART_COUNT ] || "
          "{ scontrol requeue $SLURM_JOB_ID; sleep 60; }"),
    _runs("--no-requeue", "touch up; sleep 60",
          text="id=$(sbatch --parsable --no-requeue job.sh); until [ -e up ]; do sleep .1; "
          "done; scontrol requeue $id; echo $?; scancel $id"),
    _runs("components in the script",
          "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\necho $SLURM_HET_SIZE\n"
          "srun --het-group=0,1 -l printenv SLURM_PROCID | sort"),
    _runs("components of the command line", "echo $SLURM_HET_SIZE; env | grep -c HET",
          "-n1 : -n2 -p spot"),
    _runs("a chain", "echo $1", text="a=$(sbatch --parsable job.sh 1); "
          "b=$(sbatch --parsable -d afterok:$a job.sh 2); sbatch -d afterany:$b job.sh 3"),
    _runs("a chain that breaks", "exit $1", text="a=$(sbatch --parsable job.sh 1); "
          "sbatch -d afternotok:$a job.sh 0; "
          "sbatch -d afterok:$a --kill-on-invalid-dep=yes job.sh"),
    _runs("singleton", "echo $1 >> all; sleep 1",
          text="sbatch -d singleton job.sh 1; sbatch -d singleton job.sh 2"),
    _runs("--wait", "sleep 1; exit 4", text="sbatch -W job.sh; echo $?"),
    _runs("a job that submits", "[ $1 = 0 ] || sbatch --parsable job.sh $(($1 - 1))", "", "2"),
    _runs("its folder and umask", "pwd; umask; cd sub; touch t; stat -c %a t",
          text="umask 027; sbatch job.sh"),
    _runs("its limits", "ulimit -n; ulimit -c; ulimit -s", text="ulimit -n 300; sbatch job.sh"),
    _runs("arguments", 'printf "<%s>" "$@"; echo $#', "", "'a b' '' --nodes=2 '$HOME' '*'"),
    _runs("Python", "#!/usr/bin/env python3\nimport os, sys\n"
          "print(sys.argv[1:], os.environ['SLURM_NTASKS'], 'sbtrain' in sys.modules)\n",
          "-n2", "x 'y z'"),
    _runs("awk", "#!/usr/bin/awk -f\nBEGIN { print ENVIRON[\"SLURM_JOB_NAME\"] }\n"),
    _runs("a login shell", "#!/bin/bash -l\nshopt -q login_shell && echo login; echo $HOME\n"),
    _runs("GPUs", "echo $CUDA_VISIBLE_DEVICES; srun printenv CUDA_VISIBLE_DEVICES",
          "-p spot --gres=gpu:2"),
    _runs("--exclusive", "echo $SLURM_CPUS_ON_NODE", "--exclusive"),
    _runs("its own record", "scontrol show job $SLURM_JOB_ID | grep -e Requeue -e NumNodes "
          "-e Command -e Comment -e OverSub", "--comment=hey"),
    _runs("exec", "exec echo by exec"),
    _runs("much output", "seq 200000 | md5sum; seq 20000"),
    _runs("bytes", "printf '\\0\\377\\n'"),
    _runs("a script that is gone", "sleep 1; cat $0 | wc -l", text="sbatch job.sh; rm job.sh"),
    _runs("what it leaves behind", "sleep 300 & echo left"),
    _runs("descriptors", "ls /proc/$$/fd | head -3"),
    *([_runs("its own MPI",
             f"{_MPIEXEC} -n 4 -launcher fork sh -c 'echo $PMI_RANK' | sort", "-n4")]
      if _MPIEXEC.exists() else []),
]  # fmt: skip

# The call that is nested is the same; where it is made from is not.
_INNER = (
    "sbatch --parsable -J inner -p spot -n2 --mem=100 -o inner.out --wrap "
    "'echo $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_RESTART_COUNT $SLURM_ARRAY_TASK_ID'"
)
_FROM = {
    "a batch script": ("", _INNER),
    "a step": ("", f'srun -n1 bash -c "{_INNER.replace("$", chr(92) + "$")}"'),
    "an array task": ("-a 3", _INNER),
    "a component": ("-n1 : -n1", _INNER),
    "a job with memory a CPU": ("--mem-per-cpu=50", _INNER),
    "a job with GPUs": ("-p spot --gpus=2", _INNER),
    "a job with nodes of its own": ("--exclusive", _INNER),
    "a job of a plane distribution": ("-n4 -m plane=2 --hint=nomultithread", _INNER),
    "a job in its second run": ("", f"[ $SLURM_RESTART_COUNT ] || {{ scontrol requeue "
                                f"$SLURM_JOB_ID; sleep 60; }}; {_INNER}"),
}  # fmt: skip
NESTED = [_runs(f"from {name}", text, words) for name, (words, text) in _FROM.items()]
