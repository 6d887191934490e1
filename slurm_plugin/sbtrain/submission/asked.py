"""From command line, script and environment to a Request, and to what sbatch is told.

Of one option the command line counts before the environment (SBATCH_*), and that before the
script, as with sbatch. What the user says of where the run goes binds the plan; sbtrain
adds options only where the user said nothing.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sbtrain.launches.launch_lines import LaunchLine, launched_programs
from sbtrain.options.argv import DONE_HERE, CommandLine, Setting, given, last_value
from sbtrain.options.directives import Directives
from sbtrain.options.flags import TrainOptions
from sbtrain.options.script import Script
from sbtrain.scripts.frameworks import UNKNOWN, Follows
from sbtrain.slurm.times import TIME_FORMS, read_time_limit
from sbtrain.slurm.values import read_nodes, read_signal, read_tasks
from sbtrain.submission.containers import refuse_containers
from sbtrain.submission.data import data_set
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_perf.errors import PlanError, RequestError
from sbtrain_perf.request import DataSet, Launch, ModelShape, NodeRange, Request

T = TypeVar("T")

_ENVIRONMENT = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}
SWITCHES = {"requeue", "no-requeue"}
_OPENING = {"train-nodes", "train-objective", "train-steps", "train-epochs"}
_SIZES = ("nodes", "nodelist", "nodefile", "ntasks")
GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")  # of these the last one given counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one call of sbtrain asks for. settings: every sbatch option, wherever it was
    written, the one that counts last. sbatch_words: those of the command line, untouched.
    opened: the plan may choose what the user did not say; otherwise sbatch does. launches: the
    lines on which the script starts processes on its nodes. follows: by whose convention its
    ranks find each other. quiet: how often the command line says so, which alone keeps sbatch
    from telling the id; said twice, errors too."""

    request: Request
    options: TrainOptions
    script: Script
    directives: Directives
    settings: tuple[Setting, ...]
    sbatch_words: tuple[str, ...]
    opened: bool = True
    launches: tuple[LaunchLine, ...] = ()
    follows: Follows = UNKNOWN
    quiet: int = 0

    @property
    def launch(self) -> Launch:
        return self.request.launch


def ask(
    line: CommandLine,
    options: TrainOptions,
    script: Script,
    directives: Directives,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    launch: Launch = "ranks",
    launches: tuple[LaunchLine, ...] = (),
    follows: Follows = UNKNOWN,
) -> Asked:
    """Raises RequestError where the parts contradict each other, or data is missing, and
    PlanError where epochs are asked for and nothing says how many samples one has."""
    environment = environment_settings(environ)
    settings = (*directives.settings, *environment, *line.settings)
    refuse_containers(settings, launch)
    levels = (
        _Level.of(line.settings, line.train),
        _Level.of(environment, ()),
        _Level.of(directives.settings, directives.train),
    )
    folders = (cwd / (last_value(settings, "chdir") or ""), script.folder)
    programs = (script, *launched_programs(launches, folders=folders))
    reader = _Reader(lenient=launch == "script")
    nodes = reader.of(
        lambda: _nodes(*_nodes_said(levels, settings, options)), NodeRange(low=1, high=1)
    )
    opened = launch == "ranks" or any(_OPENING & level.flags for level in levels)
    spreads = bool(launches) and opened
    if launch == "script" and not (spreads or options.nodes or given(settings, *_SIZES)):
        nodes = NodeRange(low=1, high=1)
    return Asked(
        request=Request(
            script=str(script.folder / script.name),
            script_args=line.script_args,
            workload=workload_name(options.name or Path(script.name).stem),
            sbatch_options=_as_words(_counting(settings)),
            partition=last_value(settings, "partition"),
            layout=options.layout,
            servers=options.servers,
            nodes=nodes,
            objective=options.objective,
            steps=options.steps,
            epochs=options.epochs,
            batch_per_worker=options.batch,
            data=_data(options, cwd),
            model=ModelShape(parameters=options.parameters, tensors=options.tensors),
            checkpoint_dir=(
                str(cwd / Path(options.checkpoint_dir).expanduser())
                if options.checkpoint_dir
                else None
            ),
            resumable=_resumable(levels, options, programs),
            forbidden_by=_forbidden_by(levels),
            time_limit_s=reader.of(lambda: _time_limit_s(settings), None),
            launch=launch,
            framework=follows.framework,
            workers_per_node=reader.of(lambda: _per_node(settings, nodes, follows), 0),
        ),
        options=options,
        script=script,
        directives=directives,
        settings=settings,
        sbatch_words=line.sbatch_words,
        opened=opened,
        launches=launches,
        follows=follows,
        quiet=sum(one.name == "quiet" for one in line.settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads values of sbatch's options. lenient: what cannot be read is sbatch's to refuse, or
    to understand, and the plan goes without."""

    lenient: bool

    def of(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except RequestError:
            if self.lenient:
                return otherwise
            raise


def _data(options: TrainOptions, cwd: Path) -> DataSet:
    data = data_set(
        options.data,
        cwd=cwd,
        samples=options.samples,
        count="skip" if options.steps is not None else "count",
    )
    if options.epochs is not None and not data.samples:
        raise PlanError(
            "epochs are asked for, but the number of samples in the data set is not known",
            hint="say --train-samples N, or --train-steps in place of --train-epochs; of "
            "HDF5 files under --train-data it is read from the file",
        )
    return data


def environment_settings(environ: Mapping[str, str]) -> tuple[Setting, ...]:
    """What SBATCH_* variables say of the options that concern the plan."""
    found = []
    for variable, name in _ENVIRONMENT.items():
        value = environ.get(variable)
        if value is None:
            continue
        if name in SWITCHES:
            if _is_on(value):
                found.append(Setting(name=name))
        else:
            found.append(Setting(name=name, value=value or None))
    return tuple(found)


def waits(settings: Sequence[Setting], environ: Mapping[str, str]) -> bool:
    """Whether the command is to end with the job (--wait)."""
    return given(settings, "wait") or _is_on(environ.get("SBATCH_WAIT", "no"))


def workload_name(text: str) -> str:
    """A name that is fit for folders and for Slurm's comments."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "job"


def asked_signal(settings: Sequence[Setting]) -> str | None:
    """The signal of the user's own --signal, without SIG; None where he named none.

    Raises:
        RequestError: it is no signal.
    """
    value = last_value(settings, "signal")
    if not value:
        return None
    try:
        return read_signal(value)
    except ValueError:
        raise RequestError(
            f"--signal={value} names no signal", hint="write --signal=B:USR1@120"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """What one of command line, environment and script says; an upper one wins."""

    options: frozenset[str]  # sbatch's, by their long names
    flags: frozenset[str]  # ours
    switch: str | None  # the last of --requeue and --no-requeue

    @classmethod
    def of(cls, settings: Sequence[Setting], train: Sequence[tuple[str, str | None]]) -> _Level:
        switches = [one.name for one in settings if one.name in SWITCHES]
        return cls(
            options=frozenset(one.name for one in settings),
            flags=frozenset(name for name, _ in train),
            switch=switches[-1] if switches else None,
        )


def _resumable(
    levels: Sequence[_Level], options: TrainOptions, programs: Sequence[Script]
) -> bool:
    """A run that is put back into the queue without a way to resume starts anew, unseen: so
    it is requeued only where the user says so, or a program saves by a contract we know."""
    resumes = False  # an upper level says that the script does
    for level in levels:
        never = "train-no-resume" in level.flags
        saves = "train-checkpoint" in level.flags
        if never and (saves or level.switch == "requeue"):
            raise RequestError(
                "--train-no-resume contradicts --train-checkpoint and --requeue",
                hint="leave one of them out",
            )
        if never and not resumes:
            return False
        if level.switch is not None:
            return level.switch == "requeue"
        resumes = resumes or saves
    joining = [one for one in programs if one.uses_sbtrain]
    if options.checkpoint_dir or not joining:
        return bool(options.checkpoint_dir)
    from sbtrain.scripts.uses import comes_back

    return any(map(comes_back, joining))


def _forbidden_by(levels: Sequence[_Level]) -> str:
    for level in levels:
        if "train-no-resume" in level.flags:
            return "--train-no-resume"
        if level.switch is not None:
            return "--no-requeue" if level.switch == "no-requeue" else ""
    return ""


def _nodes_said(
    levels: Sequence[_Level], settings: Sequence[Setting], options: TrainOptions
) -> tuple[Sequence[Setting], TrainOptions]:
    """Settings and options without a number of nodes that an upper level overrules:
    --nodes and --train-nodes bind together only where they stand side by side."""
    for level in levels:
        ours, theirs = "train-nodes" in level.flags, "nodes" in level.options
        if ours and not theirs:
            return [one for one in settings if one.name != "nodes"], options
        if theirs and not ours:
            return settings, dataclasses.replace(options, nodes=None)
        if ours:
            break
    return settings, options


def _nodes(settings: Sequence[Setting], options: TrainOptions) -> NodeRange:
    """Nodes that -N, -w, -n and --train-nodes leave together."""
    asked = NodeRange()
    value = last_value(settings, "nodes")
    if value is not None:
        asked = _node_range(value)
    named = _named_nodes(settings)
    asked = NodeRange(low=max(asked.low, named), high=asked.high)
    tasks = _tasks(settings, "ntasks")
    if tasks:
        per_node = _tasks(settings, "ntasks-per-node")
        fewest = min(asked.low, tasks)  # sbatch takes tasks a node for the most of them
        most = max(math.ceil(tasks / per_node), fewest) if per_node else tasks
        asked = NodeRange(low=asked.low, high=min(most, asked.high or most))
    if options.nodes is not None:
        ours = options.nodes
        high = min(filter(None, (asked.high, ours.high)), default=None)
        asked = NodeRange(low=max(asked.low, ours.low), high=high)
    if asked.high is not None and asked.low > asked.high:
        raise RequestError(
            "--train-nodes and the options of sbatch (--nodes, --nodelist, --ntasks) leave "
            "no number of nodes",
            hint="give one of them, or ranges that overlap",
        )
    return asked


def _per_node(settings: Sequence[Setting], nodes: NodeRange, follows: Follows) -> int:
    """Trainers of each node where the user counts them, as tasks, or the script starts those
    of its node itself; 0: as the framework wants them."""
    tasks, per_node = _tasks(settings, "ntasks"), _tasks(settings, "ntasks-per-node")
    if tasks and nodes.low == nodes.high:
        return math.ceil(tasks / nodes.low)
    if per_node:
        return per_node
    return 1 if follows.alone or given(settings, "gpus-per-task") else 0


def _named_nodes(settings: Sequence[Setting]) -> int:
    """How many nodes --nodelist names: the job gets these at least."""
    value = last_value(settings, "nodelist")
    if not value or "/" in value:  # a path: sbatch reads the names from that file
        return 1
    try:
        return len(set(expand(value)))
    except LaunchError as error:
        raise RequestError(f"--nodelist: {error.message}", hint=error.hint) from error


def _node_range(value: str) -> NodeRange:
    try:
        low, high = read_nodes(value)
    except ValueError:
        raise RequestError(
            f"--nodes={value} is not a number of nodes", hint="give N, or a range A-B"
        ) from None
    return NodeRange(low=low, high=high)


def _tasks(settings: Sequence[Setting], name: str) -> int | None:
    value = last_value(settings, name)
    if value is None:
        return None
    try:
        return read_tasks(value)
    except ValueError:
        raise RequestError(
            f"--{name}={value} is not a number of tasks", hint="give 1 or more"
        ) from None


def _time_limit_s(settings: Sequence[Setting]) -> float | None:
    value = last_value(settings, "time")
    if value is None:
        return None
    try:
        return read_time_limit(value)
    except ValueError as error:
        raise RequestError(f"--time: {error}", hint=f"give {TIME_FORMS}") from error


def _counting(settings: Sequence[Setting]) -> list[Setting]:
    """Settings without what sbtrain does itself, and without those of memory that another
    one overrules."""
    named = [one.name for one in settings if one.name in MEMORY_OPTIONS]
    overruled = {name for name in named if name != named[-1]} | DONE_HERE
    return [one for one in settings if one.name not in overruled]


def _as_words(settings: Sequence[Setting]) -> tuple[str, ...]:
    return tuple(
        f"--{setting.name}" if setting.value is None else f"--{setting.name}={setting.value}"
        for setting in settings
    )


def _is_on(value: str) -> bool:
    """sbatch's rule for switches: nothing, `yes`, or a number other than 0."""
    if value.lower() in ("", "yes"):
        return True
    return value.isdecimal() and int(value) != 0
