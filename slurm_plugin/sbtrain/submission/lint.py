"""What in a script, or beside it, will not do what it seems to: one line each, with file, line
and fix. Only where sbatch itself says nothing; the tests hold that against the real one."""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbtrain.launches.launch_lines import launch_lines
from sbtrain.launches.shell_commands import read_shell
from sbtrain.options.argv import CommandLine, Setting
from sbtrain.options.directives import Directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script
from sbtrain.slurm.times import read_time_limit
from sbtrain.submission.additions import lead_s
from sbtrain.submission.header_lint import head_lines, header_lint, settings_of
from sbtrain.submission.log_lint import Log, array_lint, folder_lint
from sbtrain_perf.request import Plan

_RIVALS = (("exclusive", "oversubscribe"), ("requeue", "no-requeue"))
_MAY_REPEAT = frozenset({"verbose", "hetjob"})
_SIGNAL = re.compile(r"((?:[BR]+:)?)(?:SIG)?([A-Za-z]\w*|\d+)(?:@(\d+))?", re.ASCII)
_DEFAULT_LEAD_S = 60
_SRUN_LOST_C = ((22, 5), (23, 11))  # from, up to which srun takes no -c from its job
_NO_WORK = frozenset(
    {"hostname", "nvidia-smi", "true", "date", "echo", "mkdir", "rm", "cp", "ls"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What a call finds: the folder it is made in, its environment, and Slurm's release, as
    (22, 5); None where that is not known."""

    cwd: Path
    environ: Mapping[str, str]
    slurm: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """An option, where it stands, and on which of the three levels."""

    name: str
    value: str | None
    place: str
    level: str

    @property
    def word(self) -> str:
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def lint(
    script: Script,
    directives: Directives,
    settings: Sequence[Setting],
    line: CommandLine,
    around: Surrounding,
    *,
    plan: Plan | None = None,
) -> Iterator[str]:
    """Warnings of a call, each `PLACE: what; fix`; PLACE is FILE:LINE, or "command line".

    Args:
        settings: every option of sbatch: of the script, the environment and the command line,
            in this order.
        plan: says how long a save is predicted to take; None: nothing is known of it.
    """
    if line.wrap is None:  # of --wrap sbatch reads no directives
        ignores_pbs = "SBATCH_IGNORE_PBS" in around.environ or any(
            one.name == "ignore-pbs" for one in settings
        )
        yield from header_lint(script, directives, FLAGS, ignores_pbs=ignores_pbs)
    call = _Call(script, _placed(script, directives, settings, line), around, plan)
    yield from call.log_lint()
    yield from call.repeated_lint()
    yield from call.task_lint()
    yield from call.cpu_lint()
    yield from call.signal_lint()


def _placed(
    script: Script, directives: Directives, settings: Sequence[Setting], line: CommandLine
) -> tuple[_Placed, ...]:
    """Each option with its place: those of the script come first, those of the command line
    last, as in `settings`."""
    places = [
        (one, f"{script.shown}:{head.number}")
        for head in head_lines(script.text)
        if head.text.startswith(("#SBATCH", "#SLURM"))
        for one in settings_of(head.text, FLAGS)
    ]
    own, called = len(directives.settings), len(line.settings)
    if [one for one, _ in places] != list(directives.settings):
        places = [(one, script.shown) for one in directives.settings]
    found = []
    for at, one in enumerate(settings):
        if at < own:
            place, level = places[at][1], "script"
        elif at < len(settings) - called:
            place, level = "environment", "environment"
        else:
            place, level = "command line", "command line"
        found.append(_Placed(name=one.name, value=one.value, place=place, level=level))
    return tuple(found)


class _Call:
    def __init__(
        self,
        script: Script,
        placed: tuple[_Placed, ...],
        around: Surrounding,
        plan: Plan | None,
    ) -> None:
        self.script = script
        self.placed = placed
        self.around = around
        self.plan = plan
        self.counting = {one.name: one for one in placed}

    def _value(self, name: str) -> str:
        one = self.counting.get(name)
        return (one.value or "") if one else ""

    def _number(self, name: str) -> int:
        value = self._value(name)
        return int(value) if re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0

    def log_lint(self) -> Iterator[str]:
        logs = tuple(
            Log(option=one.name, value=one.value, place=one.place)
            for name in ("output", "error")
            if (one := self.counting.get(name)) and one.value
        )
        folder = self.around.cwd / self._value("chdir")
        known = {"x": self._value("job-name") or self.script.name, "u": _user()}
        chdir = self.counting.get("chdir")
        if chdir and not folder.is_dir():
            yield (
                f"{chdir.place}: the folder {chdir.value} is missing; mkdir -p it, or leave "
                "--chdir out"
            )
            return
        if "output" not in self.counting:
            default = Log(option="output", value="slurm-%j.out", place=self.script.shown)
            yield from folder_lint((default,), folder=folder, known=known)
        yield from folder_lint(logs, folder=folder, known=known)
        array = self._value("array")
        if array:
            yield from array_lint(logs, array.partition("%")[0])

    def repeated_lint(self) -> Iterator[str]:
        """Options that overrule others which stand beside them."""
        for level in ("script", "command line"):
            before: dict[str, _Placed] = {}
            for one in (one for one in self.placed if one.level == level):
                other = before.get(one.name)
                if other and other.value != one.value and one.name not in _MAY_REPEAT:
                    yield _overruled(other, one)
                for rivals in _RIVALS:
                    rival = next((name for name in rivals if name != one.name), "")
                    if one.name in rivals and rival in before:
                        yield _overruled(before.pop(rival), one)
                before[one.name] = one
        gres, per_node = self.counting.get("gres"), self.counting.get("gpus-per-node")
        if gres and per_node:
            ours, theirs = _gpus(gres.value or ""), _gpus(f"gpu:{per_node.value}")
            if ours and theirs and ours != theirs:
                yield _overruled(per_node, gres)

    def task_lint(self) -> Iterator[str]:
        tasks, per_node = self._number("ntasks"), self._number("ntasks-per-node")
        nodes = self._number("nodes")
        if nodes and nodes <= tasks < nodes * per_node:
            yield (
                f"{self.counting['ntasks'].place}: --ntasks={tasks} counts, so that the job "
                f"has {tasks} tasks and not {nodes * per_node}, as --nodes={nodes} and "
                f"--ntasks-per-node={per_node} would give; leave --ntasks out, or make it "
                f"{nodes * per_node}"
            )
        per_gpu, gpus = self._number("ntasks-per-gpu"), _gpus(f"gpu:{self._value('gpus')}")
        if tasks and per_gpu and gpus and tasks != per_gpu * gpus:
            yield (
                f"{self.counting['ntasks'].place}: --ntasks={tasks} does not count, so that "
                f"the job has {per_gpu * gpus} tasks, {per_gpu} for each of its GPUs; leave "
                "--ntasks out, or --ntasks-per-gpu"
            )

    def cpu_lint(self) -> Iterator[str]:
        """`-c` that srun does not take from its job."""
        cpus, slurm = self._number("cpus-per-task"), self.around.slurm
        begin, end = _SRUN_LOST_C
        if cpus < 2 or slurm is None or not begin <= slurm < end:
            return
        variable = "SRUN_CPUS_PER_TASK"
        if variable in self.around.environ or variable in self.script.text:
            return
        for one in launch_lines(self.script):
            if one.program == "srun" and not _says_cpus(one.words):
                yield (
                    f"{self.script.shown}:{one.number}: srun counts 1 CPU a task, because "
                    f"on Slurm {slurm[0]}.{slurm[1]:02} it does not take "
                    f"--cpus-per-task={cpus} from the job; write srun "
                    f"--cpus-per-task=$SLURM_CPUS_PER_TASK, or export {variable}={cpus}"
                )
                return

    def signal_lint(self) -> Iterator[str]:
        given = self.counting.get("signal")
        match = _SIGNAL.fullmatch(given.value or "") if given else None
        if given is None or match is None:
            return
        lead = int(match[3]) if match[3] else _DEFAULT_LEAD_S
        limit = self._limit_s()
        if limit is not None and lead >= limit:
            yield (
                f"{given.place}: {given.word} comes at the start, because the limit is "
                f"{limit} s; write {_signal(match, max(limit // 4, 1))}, or give more --time"
            )
        elif self.plan is not None and self.plan.resumable:
            save = math.ceil(self.plan.prediction.checkpoint_s + self.plan.prediction.step_s)
            if lead < save:
                better = max(lead_s(self.plan, limit), save)
                yield (
                    f"{given.place}: {given.word} comes {lead} s before the limit, and a save "
                    f"is predicted to take {save} s; write {_signal(match, better)}"
                )
        trap = None if "B" in match[1] else self._trap(match[2])
        if trap:
            yield (
                f"{given.place}: {given.word} reaches the job's steps alone, and the trap on "
                f"line {trap} waits for it in the script itself; write "
                f"{_signal(match, lead, batch=True)}"
            )

    def _limit_s(self) -> int | None:
        try:
            return read_time_limit(self._value("time")) if self._value("time") else None
        except ValueError:
            return None

    def _trap(self, signal: str) -> int:
        """The line on which a shell script catches the signal; 0: on none."""
        if self.script.is_python:
            return 0
        text = self.script.text
        for command in read_shell(text, lambda name, text: name == "trap").commands:
            words = [one if isinstance(one, str) else "$" for one in command.words]
            if words[:1] != ["trap"] or len(words) < 3 or words[1] in ("", "-"):
                continue
            if _number_of(signal) in map(_number_of, words[2:]):
                return text.count("\n", 0, command.at) + 1
        return 0


def _overruled(before: _Placed, after: _Placed) -> str:
    where = f" of {before.place}" if before.place != after.place else ""
    return f"{after.place}: {after.word} overrules {before.word}{where}; leave one of them out"


def _signal(match: re.Match[str], lead: int, *, batch: bool = False) -> str:
    flags = "B:" if batch and not match[1] else match[1]
    return f"--signal={flags}{match[2].upper()}@{lead}"


def _number_of(signal: str) -> str:
    """One name for `USR1`, `SIGUSR1` and `10`."""
    import signal as signals

    name = signal.upper().removeprefix("SIG")
    if name.isdecimal() and len(name) < 4:
        try:
            return signals.Signals(int(name)).name.removeprefix("SIG")
        except ValueError:
            return name
    return name


def _gpus(gres: str) -> int:
    """GPUs that `gpu:k80:2` asks for; 0: none, or not to be told."""
    match = re.fullmatch(r"(?:gres:)?gpu(?::[A-Za-z][\w.-]*)?(?::(\d{1,6}))?", gres, re.ASCII)
    return int(match[1] or 1) if match else 0


def _says_cpus(words: Sequence[str]) -> bool:
    """srun's own -c, an unbound step, or a program for which one CPU is enough."""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if word.startswith(("--cpus-per-t", "--cpu-bind=none", "--cpu-bind=no")):
            return True
        if re.match(r"-c[\d$]", word) or (word == "-c" and re.match(r"[\d$]", following)):
            return True
    return any(word in _NO_WORK for word in words)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
