"""The table of sbtrain's own flags, and `sbtrain --help`.

Imports nothing that takes time: whoever asks for help gets it at once.
"""

from __future__ import annotations

from collections.abc import Mapping

_WHAT = (
    ("train-data", "PATH", "data file or folder, brought to every node (may be repeated)"),
    ("train-epochs", "E", "passes over the data; needs the number of samples [1]"),
    ("train-steps", "S", "steps, instead of epochs; with parameter servers, updates of theirs"),
    ("train-samples", "N", "samples in the data [as its HDF5 files say]"),
    ("train-batch", "B", "samples that one worker takes in a step [128]"),
    ("train-params", "P", "parameters of the network, e.g. 25.6M, for a better prediction"),
    ("train-tensors", "T", "tensors that these parameters come in, for the same"),
    ("train-name", "NAME", "runs of one name learn from each other [the script's name]"),
)
_WHERE = (
    ("train-nodes", "N", "auto, a number of nodes, or a range A-B [auto, or what -N says]"),
    (
        "train-layout",
        "L",
        "allreduce, ps[:K] (K servers), auto (all); or what the ranks meet by: torch, jax, "
        "horovod, mpi, tensorflow, tensorflow-ps[:K], plain [by SCRIPT]",
    ),
    (
        "train-objective",
        "O",
        "balanced (time at a fair price), time, cost, node-hours, or deadline:6h@95% (cheapest "
        "that is 95 % sure to end within 6 h) [balanced]",
    ),
    ("train-site", "SITE", "file that describes the cluster, by name or path [$SBTRAIN_SITE]"),
)
_HOW = (
    (
        "train-launch",
        "HOW",
        "ranks (sbtrain starts them), script (it does), none (sbatch) [by SCRIPT]",
    ),
    (
        "train-checkpoint",
        "DIR",
        "where runs keep their checkpoints; says that the script saves and resumes",
    ),
    ("train-no-resume", "", "never requeue, even where the script could resume"),
    ("train-no-hooks", "", "watch no step and no start-up of a script that does not join()"),
    ("train-explain", "", "print what was weighed and why; submit nothing"),
    ("train-dry-run", "", "print the job script; submit nothing"),
    ("train-strict", "", "take warnings for errors"),
)
GROUPS = (
    ("What is trained", _WHAT),
    ("Where it runs", _WHERE),
    ("How it is run", _HOW),
)
TABLE = tuple(flag for _, flags in GROUPS for flag in flags)
FLAGS: Mapping[str, bool] = {name: bool(metavar) for name, metavar, _ in TABLE}  # takes a value

_EXAMPLES = (
    "sbtrain -t 4:00:00 --train-data mnist.h5 train.py --lr 0.1",
    "sbtrain --train-explain --train-nodes 2-8 train.py",
)
_COLUMN = 26  # where the flags' texts begin
_NARROW = 60  # a screen on which they begin below the flags


def help_text(width: int = 100) -> str:
    """What `sbtrain --help` prints on a screen of `width` columns."""
    import textwrap

    below = width < _NARROW
    column = 6 if below else _COLUMN

    def wrapped(text: str, *, first: str = "", more: str = "") -> list[str]:
        return textwrap.wrap(
            text,
            min(width, 100),
            initial_indent=first,
            subsequent_indent=more,
            break_on_hyphens=False,
            break_long_words=False,
        )

    lines = ["usage: sbtrain [sbatch options] [--train-...] SCRIPT [ARGS]", ""]
    lines += wrapped(
        "Stands for sbatch: what does not ask for training is handed on to it as it is. A flag "
        "of these, a #SBTRAIN line, join() in a Python script, or one without a #! line asks "
        "for a training run: sbtrain chooses partition, nodes and layout, brings the data to "
        "the nodes, starts SCRIPT, and requeues a run that resumes after a preemption. Of a "
        "SCRIPT that starts its ranks itself it chooses nothing unless nodes, objective, steps "
        "or epochs are asked for. In [brackets]: what counts when nothing is said."
    )
    for title, flags in GROUPS:
        lines += ["", f"{title}:"]
        for name, metavar, text in flags:
            flag = f"  --{name} {metavar}".rstrip()
            lines += [flag] if below else []
            first = " " * column if below else f"{flag:<{column}}"
            lines += wrapped(text, first=first, more=" " * column)
    lines.append("")
    lines += wrapped(
        "#SBATCH and #SBTRAIN lines are read too, the command line wins; sbatch's options bind "
        "the plan."
    )
    lines += ["", *(f"  {example}" for example in _EXAMPLES)]
    lines += wrapped("sbtrainctl shows runs and learns from them: sbtrainctl --help")
    return "\n".join(lines) + "\n"
