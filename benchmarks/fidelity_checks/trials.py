"""A piece of shell in which `sbatch` is the real one, an alias of sbtrain, or a file that runs
it, first on PATH; and all that it leaves: streams, codes, files, and its jobs' records."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fidelity_checks.place import Place

LIMIT_S = 120.0
_VOLATILE = re.compile(
    r" (?:Priority|AllocNode:Sid|NodeList|BatchHost|LastSchedEval|Scheduler|RunTime|Reason"
    r"|SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|PreemptTime|SuspendTime|ReqNodeList"
    r"|PreemptEligibleTime|SecsPreSuspend|SchedNodeList)=\S*"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_MAX_IDLE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """text: what a user types; job: what stands in job.sh."""

    name: str
    text: str
    job: str = "#!/bin/sh\necho ran $SLURM_NTASKS $0 \"$@\" | sed 's|/.*slurm_script|script|'\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    code: int
    stdout: str
    stderr: str
    files: dict[str, str]
    jobs: list[str]

    def differences(self, other: Left) -> list[str]:
        found = []
        for name in ("code", "stdout", "stderr", "jobs"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                found.append(f"{name}: {ours!r:.900} | {theirs!r:.900}")
        for name in sorted({*self.files, *other.files}):
            if self.files.get(name) != other.files.get(name):
                found.append(
                    f"{name}: {self.files.get(name)!r:.400} | {other.files.get(name)!r:.400}"
                )
        return found


class Way:
    """What `sbatch` means."""

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.before = ""
        self.path = place.environ["PATH"]
        if name == "alias":
            self.before = f"shopt -s expand_aliases\nalias sbatch={place.sbtrain}\n"
        elif name != "sbatch":
            folder = place.made(f"way-{name}")
            self.path = f"{folder}:{self.path}"
            _put(folder / "sbatch", name, place.sbtrain)


def _put(file: Path, way: str, sbtrain: Path) -> None:
    if way == "link":
        file.symlink_to(sbtrain)
    elif way == "copy":
        shutil.copy(sbtrain, file)
    else:
        file.write_text(f'#!/bin/sh\nexec {sbtrain} "$@"\n')
        file.chmod(0o755)


def compare(place: Place, trials: Sequence[Trial], ways: Sequence[str]) -> int:
    """How many (trial, way) differ from the same with sbatch; each is told."""
    differing = 0
    for trial in trials:
        right = _left(place, trial, Way(place, "sbatch"))
        for way in ways:
            found = right.differences(_left(place, trial, Way(place, way)))
            if found:
                differing += 1
                print(f"{trial.name}, as {way}: differs")
                for line in found:
                    print(f"    {line}")
    return differing


def _left(place: Place, trial: Trial, way: Way) -> Left:
    before = _ids(place)
    folder = place.made("trial")
    (folder / "sub").mkdir()
    given = {"job.sh": trial.job, "list": "a\nb\nc\n", "in.txt": "line 1\nl 2\n"}
    for name, content in given.items():
        (folder / name).write_text(content)
    text = place.folder / "trial.bash"
    text.write_text(f"{way.before}{trial.text}\n")
    said = subprocess.run(
        ["/bin/bash", str(text)], cwd=folder, env={**place.environ, "PATH": way.path},
        capture_output=True, check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    _idle(place)
    records = [line for line in _records(place) if _number(line) not in before]
    known = _names(records)

    def plain(content: bytes) -> str:
        shown = content.decode(errors="backslashreplace")
        for number, name in known:
            shown = shown.replace(number, name)
        shown = shown.replace(str(place.sbtrain), "sbatch").replace(str(text), "bash")
        return re.sub(r"bash: line \d+", "bash: line N", _TIME.sub("TIME", shown))

    return Left(
        code=said.returncode,
        stdout=plain(said.stdout),
        stderr=plain(said.stderr),
        files={
            plain(str(file.relative_to(folder)).encode()): plain(file.read_bytes())
            for file in folder.rglob("*")
            if file.is_file()
        },
        jobs=sorted(plain(_VOLATILE.sub("", line).encode()) for line in records),
    )


def _records(place: Place) -> list[str]:
    text = place.slurm("scontrol", "show", "job", "-o", check=False)
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith("JobId=")]


def _ids(place: Place) -> set[str]:
    return {_number(line) for line in _records(place)}


def _number(record: str) -> str:
    return record.split()[0].removeprefix("JobId=")


def _names(records: Sequence[str]) -> list[tuple[str, str]]:
    """A name for each number, the same for two ways: by the order of submission, and by task
    and component."""
    fields = [dict(re.findall(r"(\S+?)=(\S*)", record)) for record in records]
    bases = sorted(
        {one.get("ArrayJobId") or one.get("HetJobId") or one["JobId"] for one in fields}
    )
    named = {base: f"JOB{place}" for place, base in enumerate(bases)}
    for one in fields:
        base = named[one.get("ArrayJobId") or one.get("HetJobId") or one["JobId"]]
        part = one.get("ArrayTaskId") or one.get("HetJobOffset") or ""
        named.setdefault(one["JobId"], f"{base}.{part}")
    return list(named.items())


def _idle(place: Place) -> None:
    """Until nothing waits or runs but what is held, and a moment longer, for outputs."""
    end_s = time.monotonic() + _MAX_IDLE_S
    while time.monotonic() < end_s:
        lines = place.slurm("squeue", "-h", "-o%T %r", check=False).splitlines()
        if all("JobHeld" in line or "NeverSatisfied" in line for line in lines):
            break
        time.sleep(0.2)
    place.cancel_all()
    time.sleep(0.2)
