"""A stand-in for srun on one host: for faults that a real Slurm does not show on demand.

Starts --ntasks copies of the command with the variables of a step, waits for all of them,
and exits with the highest exit status. Injected by the environment:
    FAKE_SRUN_SKIP=1,2    tasks that are never started
    FAKE_SRUN_EXIT=N      nothing is started; exit with N
    FAKE_SRUN_STAGE_S=S   staging takes S seconds, and brings nothing
    FAKE_SRUN_STAGE_DIES=N  the first N stagings are killed before they begin
    FAKE_SRUN_STATUS=N    exit with N, whatever the tasks' exit statuses are
    FAKE_SRUN_LATE_S=S    pass the tasks' output on S seconds after they have ended
    FAKE_SRUN_PROBE=N     exit status of a step that runs only `true`
    FAKE_SRUN_MPI=a,b     what --mpi=list names; else pmi2
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    if argv[-1] == "true":
        return int(os.environ.get("FAKE_SRUN_PROBE", "0"))
    if argv == ["--mpi=list"]:
        names = os.environ.get("FAKE_SRUN_MPI", "pmi2").split(",")
        sys.stderr.write("MPI plugin types are...\n" + "".join(f"\t{name}\n" for name in names))
        return 0
    if code := os.environ.get("FAKE_SRUN_EXIT"):
        sys.stderr.write("srun: error: Unable to create step: injected\n")
        return int(code)
    if "sbtrain_staging" in argv and (seconds := os.environ.get("FAKE_SRUN_STAGE_S")):
        time.sleep(float(seconds))
        return 1
    if "sbtrain_staging" in argv and (deaths := os.environ.get("FAKE_SRUN_STAGE_DIES")):
        died = Path(os.environ["FAKE_SRUN_PIDS"]) / "stagings-died"
        with died.open("a+") as stream:
            stream.seek(0)
            if len(stream.read()) < int(deaths):
                stream.write("x")
                return 128 + signal.SIGKILL
    first = next(i for i, word in enumerate(argv) if not word.startswith("--"))
    options = dict(word.removeprefix("--").partition("=")[::2] for word in argv[:first])
    tasks = int(options["ntasks"])
    nodes = int(options.get("nodes", tasks))
    skipped = {int(n) for n in os.environ.get("FAKE_SRUN_SKIP", "").split(",") if n}
    late_s = float(os.environ.get("FAKE_SRUN_LATE_S", "0"))
    held = Path(os.environ["FAKE_SRUN_PIDS"], "held") if late_s else None
    output = None if held is None else held.open("wb")
    running = [
        subprocess.Popen(argv[first:], env=environment(task, tasks, nodes), stdout=output)
        for task in range(tasks)
        if task not in skipped
    ]
    if folder := os.environ.get("FAKE_SRUN_PIDS"):
        for task, process in zip(sorted(set(range(tasks)) - skipped), running, strict=True):
            (Path(folder) / f"task-{task}.pid").write_text(str(process.pid))

    def end(_number: int, _frame: object) -> None:
        for process in running:
            process.kill()  # what Slurm does after KillWait

    signal.signal(signal.SIGTERM, end)
    codes = [process.wait() for process in running]
    if held is not None:
        time.sleep(late_s)
        sys.stdout.buffer.write(held.read_bytes() + b"srun is late\n")
        sys.stdout.buffer.flush()
    if status := os.environ.get("FAKE_SRUN_STATUS"):
        return int(status)
    return max([128 - code if code < 0 else code for code in codes], default=0)


def environment(task: int, tasks: int, nodes: int) -> dict[str, str]:
    node = task * nodes // tasks
    return {
        **os.environ,
        "SLURM_STEP_ID": str(os.getpid()),
        "SLURM_NODEID": str(node),
        "SLURM_PROCID": str(task),
        "SLURM_NTASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURMD_NODENAME": f"c{node + 1}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
