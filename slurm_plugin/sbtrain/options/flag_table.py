"""The table of sbtrain's own flags, and `sbtrain --help`.

Imports nothing: whoever asks for help gets it at once.
"""

TABLE = (
    ("train-data", "PATH", "data file or folder, staged to every node (repeatable)"),
    ("train-layout", "L", "auto, allreduce, ps, or ps:K for K parameter servers [auto]"),
    ("train-nodes", "N", "auto, a number, or a range A-B [auto, or what -N says]"),
    ("train-objective", "O", "time, cost, node-hours, deadline:6h, deadline:6h@95% [time]"),
    ("train-epochs", "E", "passes over the data; needs the number of samples [1]"),
    ("train-steps", "S", "steps of all-reduce or updates of the servers"),
    ("train-samples", "N", "samples in the data, where the file does not say"),
    ("train-batch", "B", "samples per worker and step [128]"),
    ("train-checkpoint", "DIR", "folder with a folder of checkpoints for each run; it resumes"),
    ("train-no-resume", "", "never requeue, even if the script could resume"),
    ("train-name", "NAME", "workload, under which is learnt [the script's name]"),
    ("train-params", "P", "parameters of the network, e.g. 25.6M"),
    ("train-tensors", "T", "tensors of the network"),
    ("train-site", "SITE", "site file, by name or path [$SBTRAIN_SITE]"),
    ("train-explain", "", "print what was weighed and why; submit nothing"),
    ("train-dry-run", "", "print the job script; submit nothing"),
    ("train-strict", "", "refuse what is otherwise warned of"),
)


def help_text() -> str:
    """What `sbtrain --help` prints."""
    rows = "\n".join(
        f"  {f'--{name} {metavar}'.rstrip():<26}{text}" for name, metavar, text in TABLE
    )
    return f"""\
usage: sbtrain [sbatch options] [--train-...] SCRIPT [ARGS]

Submits SCRIPT as a distributed training run: chooses partition, nodes and layout, stages
the data to the nodes, starts the trainers, and resumes after preemption. Takes every option
of sbatch, prints what sbatch prints; all else goes to stderr.

{rows}

#SBATCH and #SBTRAIN lines of the script are read too; the command line wins. Options of
sbatch that say where the run goes (-p, -N, -t, --gres ...) bind the plan.

  sbtrain --train-data mnist.h5 --train-epochs 10 train.py --lr 0.1
  sbtrain --train-data mnist.h5 --train-layout ps:2 --train-explain train.py

sbtrainctl shows runs, learns from them, and runs a private Slurm: sbtrainctl --help
"""
