"""Random calls of sbatch: words, script, standard input and environment, each from its number
alone, so that one can be done again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from fidelity_checks.options import MAYBE, NOTHING, VALUES, option, value
from fidelity_checks.texts import script_text

# How the script reaches sbatch.
FROM = ("file", "pipe", "stdin file", "closed", "null", "here", "substitution", "directory")
_FROM_WEIGHTS = (70, 9, 5, 3, 3, 4, 5, 1)
_NAMES = ("job.sh", "./job.sh", "sub/job.sh", "my job.sh", "j\u00f6b.sh", "job.py", "-x.sh",
          "\udce9.sh")  # fmt: skip
_ARGUMENTS = ("a", "two words", "--nodes=3", "-N2", ":", "", "--train", "\u00fc", "*", "--help")
OUTER = {
    "SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_ARRAY_JOB_ID": "4", "SLURM_RESTART_COUNT": "2", "SLURM_MEM_PER_NODE": "100",
    "SLURM_MEM_PER_CPU": "50", "SLURM_GPUS": "1", "SLURM_EXCLUSIVE": "user",
    "SLURM_NTASKS": "9", "SLURM_NNODES": "4", "SLURM_PROCID": "1", "SLURM_HET_SIZE": "2",
    "SLURM_DISTRIBUTION": "plane=2", "SLURM_SUBMIT_DIR": "/x", "SLURM_CPUS_PER_TASK": "3",
    "SLURM_HINT": "nomultithread", "SLURM_UMASK": "0077", "SLURM_EXPORT_ENV": "NONE",
}  # fmt: skip
_ODD = {
    "BASH_FUNC_module%%": "() {  eval `x`\n}", "EMPTY": "", "LINES2": "a\nb\n", "Q": "a'b\"c",
    "LC_CTYPE": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONOPTIMIZE": "2", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": "/nope",
    "PYTHONIOENCODING": "latin-1", "COLUMNS": "20", "LATIN\udcff": "\udce9", "a.b-c": "1",
    "SBTRAIN": "x", "SBTRAINING": "1", "LD_LIBRARY_PATH": "/opt/lib", "BIG": "x" * 60_000,
    "SLURM_EXIT_ERROR": "7", "SLURM_CLUSTERS": "", "SLURM_EXIT_IMMEDIATE": "9", "OLDPWD": "/",
    "SLURM_DEBUG_FLAGS": "", "PYTHONPATH": "/opt/lib", "PYTHONWARNINGS": "error",
    "PYTHONPROFILEIMPORTTIME": "", "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0",
}  # fmt: skip
_MOST_BYTES = 4_000_000
_RAW = (b"no-equals-sign", b"TWICE=1", b"TWICE=2", b"=odd", b"\xff\xfe=\xff", b"")
# Those that sbatch 22.05 reads beside SBATCH_<NAME> of the option.
_OTHER_NAMES = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_CLUSTERS": "", "SBATCH_CORE_SPEC": "core-spec",
    "SBATCH_DEBUG": "", "SBATCH_EXCLUSIVE": "", "SBATCH_GET_USER_ENV": "",
    "SBATCH_IGNORE_PBS": "", "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_BIND": "mem-bind",
    "SBATCH_NO_KILL": "", "SBATCH_NO_REQUEUE": "", "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OVERCOMMIT": "", "SBATCH_REQ_SWITCH": "switches", "SBATCH_REQUEUE": "",
    "SBATCH_SPREAD_JOB": "", "SBATCH_TIMELIMIT": "time", "SBATCH_USE_MIN_NODES": "",
    "SBATCH_WAIT4SWITCH": "time", "SBATCH_WAIT_ALL_NODES": "wait-all-nodes",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """words: between the command's name and what stands for the script. environ: changes, None
    takes away; raw: entries that no mapping can hold. text None: there is no such file."""

    number: int
    words: tuple[str, ...]
    source: str
    name: str
    arguments: tuple[str, ...]
    text: bytes | None
    environ: Mapping[str, str | None] = field(default_factory=dict)
    bare: bool = False
    raw: tuple[bytes, ...] = ()
    umask: int = 0o022

    @property
    def talks(self) -> bool:
        """It says a lot, in which are times and process ids."""
        return "SBATCH_DEBUG" in self.environ or any(
            word.startswith(("-v", "--v", "--test", "--te")) for word in self.words
        )


def random_call(seed: int, number: int, *, planned: bool = False) -> Call:
    """planned: none only has something shown, nor a script longer than sbatch takes."""
    rng = random.Random(f"{seed} {number}")
    words = list[str]()
    for place in range(_few(rng)):
        if place and rng.random() < 0.03:
            words.append(":")
        words += option(rng, shows=not planned and place > 0)
    (source,) = rng.choices(FROM, _FROM_WEIGHTS)
    if source in ("null", "closed") and rng.random() < 0.5:
        words.append(f"--wrap={value(rng, 'wrap')}")
    if rng.random() < 0.01:
        words.append(f"--{rng.choice(list(VALUES))}")  # its value is the script's name
    most = _MOST_BYTES if planned else None
    name = rng.choice(_NAMES) if rng.random() < 0.3 else "job.sh"
    arguments = rng.choices(_ARGUMENTS, k=rng.randint(0, 3)) if rng.random() < 0.2 else []
    if planned:  # before it may stand an option without its value, which the script becomes
        arguments = [word for word in arguments if word != "--help"]
    return Call(
        number=number,
        words=(*words, *(("--",) if name == "-x.sh" else ())),
        source=source,
        name=name,
        arguments=tuple(arguments) if source in ("file", "substitution") else (),
        text=None
        if rng.random() < 0.01
        else script_text(rng, python=name.endswith(".py"))[:most],
        environ=_environ(rng),
        bare=rng.random() < 0.03,
        raw=tuple(rng.sample(_RAW, rng.randint(1, 4))) if rng.random() < 0.05 else (),
        umask=rng.choice((0o022, 0o022, 0o077, 0)),
    )


def _few(rng: random.Random) -> int:
    return rng.choices((0, 1, 2, 3, 4, 6, 9), (8, 20, 25, 20, 12, 10, 5))[0]


def _environ(rng: random.Random) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    if rng.random() < 0.25:
        for _ in range(rng.randint(1, 3)):
            name = rng.choice(list(_OTHER_NAMES))
            of = _OTHER_NAMES[name]
            if rng.random() < 0.7:
                of = rng.choice([*VALUES, *MAYBE, *NOTHING])
                name = f"SBATCH_{of.replace('-', '_').upper()}"
            changes[name] = value(rng, of) if of in VALUES or of in MAYBE else ""
    if rng.random() < 0.15:
        for name in rng.sample(list(_ODD), rng.randint(1, 4)):
            changes[name] = _ODD[name]
    if rng.random() < 0.1:
        for name in rng.sample(list(OUTER), rng.randint(1, 8)):
            changes[name] = OUTER[name]
    if rng.random() < 0.1:
        changes["LC_ALL"] = rng.choice(("C", "POSIX", "C.UTF-8", "nope", ""))
        changes["LANG"] = rng.choice((None, "C", "de_DE"))
        changes["LC_CTYPE"] = rng.choice((None, None, "C", "C.UTF-8", "POSIX"))
        if rng.random() < 0.5:
            changes["LC_ALL"] = None
    if rng.random() < 0.03:
        changes[rng.choice(("PATH", "HOME", "LANG", "USER", "SHELL"))] = None
    return changes
