"""Programs that submit by sbatch, each doing a small piece of work: what it prints is compared
by `fidelity.py --clients PYTHON`, PYTHON being an interpreter in which they are installed. One
that is not is left out, and said."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from fidelity_checks.place import Place

_FUNCTIONS = """
import os, sys, time
def add(a, b): return a + b
def fail(): raise ValueError("on purpose")
def ranks():
    import submitit
    e = submitit.JobEnvironment()
    return e.global_rank, e.num_tasks, e.local_rank, e.num_nodes
class Counts:
    def __init__(self): self.at = 0
    def __call__(self, flag):
        self.at += 1
        open(flag, "a").write("x")
        while os.path.getsize(flag) < 2: time.sleep(0.2)
        return self.at
    def checkpoint(self, flag):
        import submitit
        return submitit.helpers.DelayedSubmission(self, flag)
"""
_SUBMITIT = """
import os, sys, time, submitit, functions
from functions import *
e = submitit.AutoExecutor(folder="log", cluster="slurm")
"""
CLIENTS = {
    "submitit": _SUBMITIT
    + "e.update_parameters(slurm_time=5)\nprint(e.submit(add, 1, 2).result())\n",
    "submitit, an array": _SUBMITIT
    + "e.update_parameters(slurm_time=5, slurm_array_parallelism=2)\n"
    "print([j.result() for j in e.map_array(add, [1, 2, 3], [4, 5, 6])])\n",
    "submitit, 2x2": _SUBMITIT
    + "e.update_parameters(slurm_time=5, nodes=2, tasks_per_node=2, cpus_per_task=1)\n"
    "print(e.submit(ranks).results())\n",
    "submitit, checkpoint": _SUBMITIT
    + "e.update_parameters(slurm_time=5)\nflag = os.path.abspath('flag')\n"
    "j = e.submit(Counts(), flag)\n"
    "while not os.path.exists(flag): time.sleep(0.2)\n"
    "time.sleep(1)\nj._interrupt(timeout=False)\nprint(j.result())\n",
    "submitit, traceback": _SUBMITIT
    + "e.update_parameters(slurm_time=5)\nj = e.submit(fail)\n"
    "print(type(j.exception()).__name__, 'on purpose' in str(j.exception()))\n",
    "submitit, cancel": _SUBMITIT
    + "e.update_parameters(slurm_time=5)\nj = e.submit(time.sleep, 300)\n"
    "import subprocess\n"
    "def state(): return subprocess.getoutput('squeue -h -t all -o %T -j ' + j.job_id)\n"
    "while state() != 'RUNNING': time.sleep(0.3)\n"
    "j.cancel()\n"
    "while state() in ('RUNNING', 'COMPLETING'): time.sleep(0.3)\nprint(state())\n",
    "simple-slurm": "import time, os\nfrom simple_slurm import Slurm\n"
    "s = Slurm(array=range(1, 3), job_name='n', output='o-%a', time='00:05:00')\n"
    "s.add_cmd('echo first $SLURM_ARRAY_TASK_ID')\nn = s.sbatch('echo last')\n"
    "print(type(n).__name__)\n"
    "while not all(os.path.exists(f'o-{k}') and 'last' in open(f'o-{k}').read()"
    " for k in (1, 2)): time.sleep(0.2)\nprint(open('o-1').read(), open('o-2').read())\n",
    "dask-jobqueue": "from dask_jobqueue import SLURMCluster\n"
    "from dask.distributed import Client\n"
    "import sys\n"
    "if __name__ == '__main__':\n"
    "    c = SLURMCluster(cores=1, memory='500MB', walltime='00:05:00', processes=1,"
    " interface='lo', python=sys.executable, nanny=False, dashboard_address=None)\n"
    "    c.scale(2); k = Client(c); k.wait_for_workers(2, timeout=90)\n"
    "    print(sum(k.gather(k.map(lambda x: x * x, range(10)))))\n    k.close(); c.close()\n",
    "parsl": "import parsl\nfrom parsl.config import Config\n"
    "from parsl.executors import HighThroughputExecutor\n"
    "from parsl.providers import SlurmProvider\n"
    "p = SlurmProvider(partition='standard', nodes_per_block=1, init_blocks=1, max_blocks=1,"
    " walltime='00:05:00', exclusive=False)\n"
    "x = HighThroughputExecutor(label='x', address='127.0.0.1', provider=p,"
    " max_workers_per_node=1)\n"
    "@parsl.python_app\ndef double(n): return 2 * n\n"
    "with parsl.load(Config(executors=[x])): print([double(n).result() for n in range(3)])\n",
    "PSI/J": "import psij, pathlib\n"
    "e = psij.JobExecutor.get_instance('slurm')\n"
    "s = psij.JobSpec(executable='/bin/sh', "
    "arguments=['-c', 'echo $SLURM_NTASKS; exit $0', '3'],"
    " stdout_path=pathlib.Path('out').absolute(),"
    " resources=psij.ResourceSpecV1(node_count=2, processes_per_node=2), launcher='srun')\n"
    "j = psij.Job(s)\ne.submit(j)\nr = j.wait()\n"
    "print(r.state.name, r.exit_code, sorted(open('out').read().split()))\n",
    "subprocess": "import subprocess\n"
    "print(subprocess.run(['sbatch', '-W', '-o', 'o', '--wrap', 'exit 3']).returncode)\n"
    "print(subprocess.run('sbatch -N x', shell=True, capture_output=True))\n",
}  # fmt: skip
_MODULE = {"submitit": "submitit", "simple-slurm": "simple_slurm", "parsl": "parsl",
           "dask-jobqueue": "dask_jobqueue", "PSI/J": "psij"}  # fmt: skip


def compare_clients(place: Place, python: Path) -> tuple[int, int]:
    """How many were tried, and how many do other things with sbtrain in sbatch's place."""
    first = place.made("clients-first")
    wrapper = first / "sbatch"
    wrapper.write_text(f'#!/bin/sh\nexec {place.sbtrain} "$@"\n')
    wrapper.chmod(0o755)
    tried = differing = 0
    for name, text in CLIENTS.items():
        module = _MODULE.get(name.split(",")[0], "sys")
        looked = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, check=False
        )
        if looked.returncode:
            print(f"{name}: not installed")
            continue
        path = f"{python.parent}:{place.environ['PATH']}"
        right = _done(place, python, text, path)
        ours = _done(place, python, text, f"{first}:{path}")
        tried += 1
        same = right == ours
        differing += not same
        print(f"{name}: {'the same' if same else 'DIFFERS'}: {right!r:.300}")
        if not same:
            print(f"    with sbtrain: {ours!r:.1500}")
    return tried, differing


def _done(place: Place, python: Path, text: str, path: str) -> tuple[int, str]:
    folder = place.made("client")
    (folder / "functions.py").write_text(_FUNCTIONS)
    (folder / "client.py").write_text(text)
    environ = {**place.environ, "PATH": path, "PYTHONPATH": str(folder)}
    try:
        said = subprocess.run(
            [python, "client.py"], cwd=folder, env=environ, capture_output=True, text=True,
            timeout=150, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return -1, f"not within {late.timeout:g} s"
    finally:
        place.cancel_all()
    shown = said.stdout if said.returncode == 0 else said.stdout + said.stderr[-800:]
    lines = [line for line in shown.splitlines() if "WARNING" not in line]  # of sacct, timed
    return said.returncode, re.sub(r"\b[5-9]\d{6}\b", "JOB", "\n".join(lines))
