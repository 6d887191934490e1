"""One call by sbatch and by sbtrain, and what can be seen of each."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fidelity_checks.calls import Call
from fidelity_checks.place import SEEN, Place

LIMIT_S = 60.0
_MOST_COMPONENTS = 8
_PATIENCE = 10  # tenths of a second
_ENDS_ITSELF = 40  # tenths of a second in which a call that does not wait is over
_SETTLED_S = 1.2  # for the scheduler to have looked at every job
_VOLATILE = {
    "JobId", "ArrayJobId", "HetJobId", "HetJobIdSet", "Priority", "LastSchedEval", "SubmitTime",
    "AccrueTime", "StartTime", "EndTime", "EligibleTime", "SuspendTime", "Reason", "Scheduler",
    "PreemptEligibleTime", "PreemptTime", "JobState", "SchedNodeList",
}  # fmt: skip
_COMPARED = ("code", "stdout", "stderr", "read", "options", "record", "script", "environment")
_KEPT = ("SLURM_CONF", "SBTRAIN_HOME")  # by calls without an environment too
_ID = re.compile(r"\b[5-9]\d{6}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one way of doing a call has led to. options: what the cli_filter was told; read:
    bytes of standard input that are gone."""

    code: int
    stdout: str
    stderr: str
    options: str
    read: int
    job_id: str = ""
    record: str = ""
    script: bytes = b""
    environment: bytes = b""

    def differences(self, other: Seen) -> list[str]:
        return [
            f"{name}: {_apart(getattr(self, name), getattr(other, name))}"
            for name in _COMPARED
            if getattr(self, name) != getattr(other, name)
        ]


def _apart(one: object, other: object) -> str:
    """Both from a little before the first difference."""
    if not isinstance(one, str | bytes) or not isinstance(other, str | bytes):
        return f"{one} | {other}"
    shorter = min(len(one), len(other))
    apart = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    begin = max(apart - 60, 0)
    return f"{one[begin : begin + 240]!r} | {other[begin : begin + 240]!r}"


@dataclass(slots=True, kw_only=True)
class Pair:
    call: Call
    sbatch: Seen
    sbtrain: Seen

    @property
    def differences(self) -> list[str]:
        return self.sbatch.differences(self.sbtrain)


def do_both(place: Place, call: Call, *, train: Sequence[str] = ()) -> Pair:
    """The calls are done; the records of their jobs are yet to be read (`look`).

    train: what sbtrain is told beyond the call.
    """
    folder = prepared(place, call)
    return Pair(
        call=call,
        sbatch=done(place, call, folder, place.sbatch),
        sbtrain=done(place, call, folder, place.sbtrain, train=train),
    )


def prepared(place: Place, call: Call) -> Path:
    """The folder that a call is done in, with the files that it may name."""
    folder = place.made("call")
    (folder / "sub").mkdir()
    (folder / "in.txt").write_text("in\n")
    (folder / "nodes.txt").write_text("c1\nc2\n")
    (folder / "envfile").write_bytes(b"FROMFILE=1\0TWO=a b\0")
    path = folder / call.name
    if call.text is not None:
        path.write_bytes(call.text)
    return folder


def look(place: Place, pairs: Sequence[Pair]) -> None:
    """Read what slurmctld keeps of the jobs of these calls, then cancel them."""
    time.sleep(_SETTLED_S)
    records: dict[str, list[str]] = {}
    text = place.slurm("scontrol", "show", "job", "-o", check=False)
    for line in re.split(r"\n(?=JobId=)", text):
        fields = dict(re.findall(r"(\S+?)=(\S*)", line))
        number = fields.get("HetJobId") or fields.get("ArrayJobId") or fields.get("JobId")
        records.setdefault(number or "", []).append(line)
    for pair in pairs:
        for seen in (pair.sbatch, pair.sbtrain):
            if seen.job_id:
                _read(place, seen, records.get(seen.job_id, []))
    place.cancel_all()


def _read(place: Place, seen: Seen, lines: list[str]) -> None:
    seen.record = "\n".join(_steady(line, seen.job_id) for line in sorted(lines))
    if re.search(r'"partition":"[^"]*,', seen.options):
        seen.record = re.sub(r" Partition=\S*", "", seen.record)
    folder = place.state / f"hash.{int(seen.job_id) % 10}" / f"job.{seen.job_id}"
    for name in ("script", "environment"):
        file = folder / name
        if file.exists():
            setattr(seen, name, file.read_bytes())
    seen.environment = seen.environment.replace(seen.job_id.encode(), b"JOB+0")


def _steady(line: str, job_id: str) -> str:
    """A job's record without what no two jobs have in common; where the job may begin later
    than it was submitted, by how much."""
    words = re.split(r" +(?=[A-Za-z/:]+=)", line.strip())
    fields = dict(word.partition("=")[::2] for word in words)
    kept = {name: value for name, value in fields.items() if name not in _VOLATILE}
    kept["Later"] = str(_minutes(fields, "EligibleTime")).replace("Unknown", "0")
    kept["NumNodes"] = re.sub(r"^(\d+)-\1$", r"\1", kept.get("NumNodes", ""))
    kept["NumTasks"] = kept.get("NumTasks", "").replace("N/A", "1")  # until the scheduler looks
    kept["Deadline"] = str(_minutes(fields, "Deadline"))
    held = fields.get("Reason", "")
    kept["Held"] = str("Held" in held or fields.get("Priority") == "0")
    if kept.get("Dependency") in ("(null)", "singleton(unfulfilled)"):
        del kept["Dependency"]  # by whether the other one of the pair was there already
    return _without_id(" ".join(f"{name}={value}" for name, value in kept.items()), job_id)


def _without_id(text: str, job_id: str) -> str:
    """Ids are large numbers, so that nothing else is one; a component's follows the job's."""
    for part in range(_MOST_COMPONENTS if job_id else 0):
        text = text.replace(str(int(job_id) + part), f"JOB+{part}")
    return text


def _minutes(fields: Mapping[str, str], name: str) -> int | str:
    """From the submission on, rounded so that a second between two calls does not count."""
    begin, end = fields.get("SubmitTime", ""), fields.get(name, "")
    if not (_TIME.fullmatch(begin) and _TIME.fullmatch(end)):
        return end
    form = "%Y-%m-%dT%H:%M:%S"
    apart_s = time.mktime(time.strptime(end, form)) - time.mktime(time.strptime(begin, form))
    return round(apart_s / 600) * 10


def done(
    place: Place, call: Call, folder: Path, program: Path, *, train: Sequence[str] = ()
) -> Seen:
    noted = place.folder / "seen"
    noted.unlink(missing_ok=True)
    environ = {} if call.bare else dict(place.environ)
    environ |= {name: place.environ[name] for name in _KEPT if name in place.environ}
    environ[SEEN] = str(noted)
    for name, value in call.environ.items():
        environ.pop(name, None)
        if value is not None:
            environ[name] = value
    words = [*train, *call.words]
    if call.source == "substitution":
        words.append("/dev/fd/63")
    elif call.source == "directory":
        words.append("sub")
    elif call.source == "file":
        words.append(call.name)
    words += call.arguments
    code, stdout, stderr, read = _run(place, call, folder, [str(program), *words], environ)
    text = noted.read_text(errors="surrogateescape") if noted.exists() else ""
    job_id = next(iter(_noted(place) or _ID.findall(stdout)), "")
    options = re.sub(r"^job \d+$", "job", text, flags=re.M)
    return Seen(
        code=code,
        stdout=_told(stdout, job_id, call, program),
        stderr=_told(stderr, job_id, call, program),
        options=_TIME.sub("TIME", options),
        read=read,
        job_id=job_id,
    )


def _told(text: str, job_id: str, call: Call, program: Path) -> str:
    text = _without_id(text, job_id)
    if call.talks or "to start at" in text:
        text = re.sub(r"\d+", "N", text)
    return text.replace(str(program), "sbatch")


def _run(
    place: Place, call: Call, folder: Path, argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[int, str, str, int]:
    """Exit code (negative: a signal), stdout, stderr, bytes of standard input that are gone."""
    entries = [os.fsencode(f"{name}={value}") for name, value in environ.items()] + [*call.raw]
    with _Input(call, folder) as given:

        def become() -> None:
            os.umask(call.umask)
            given.place()
            execute(argv, entries)

        process = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=become, close_fds=False,  # noqa: PLW1509
        )  # fmt: skip
        given.feed()
        threading.Thread(target=_end_job, args=(place, process), daemon=True).start()
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        code = process.returncode
        texts = [text.decode(errors="surrogateescape") for text in (out, err)]
        return code, texts[0], texts[1], given.read


def _end_job(place: Place, process: subprocess.Popen[bytes]) -> None:
    """Cancel the job that a call waits for, a while after it has it."""
    for tenth in itertools.count(1 - _ENDS_ITSELF):
        time.sleep(0.1)
        if process.poll() is not None:
            return
        if tenth > 0 and tenth % _PATIENCE == 0:
            jobs = _noted(place)
            if not jobs and tenth > 5 * _PATIENCE:  # --export-file hides the note from sbatch
                jobs = place.slurm("squeue", "-h", "-o%i", "-S-i").split()[:1]
            for job_id in jobs:
                place.slurm("scancel", job_id, check=False)


def _noted(place: Place) -> list[str]:
    noted = place.folder / "seen"
    text = noted.read_text(errors="surrogateescape") if noted.exists() else ""
    return re.findall(r"^job (\d+)$", text, re.M)


def execute(argv: Sequence[str], entries: Sequence[bytes]) -> None:
    """Become the program, with an environment as no mapping could hold it."""
    vector = (ctypes.c_char_p * (len(argv) + 1))(*map(os.fsencode, argv), None)
    around = (ctypes.c_char_p * (len(entries) + 1))(*entries, None)
    ctypes.CDLL(None).execve(os.fsencode(argv[0]), vector, around)
    os._exit(127)


class _Input:
    """Standard input of a call, or the descriptor or named pipe that its script comes from."""

    def __init__(self, call: Call, folder: Path) -> None:
        self._call, self._path = call, folder / call.name
        self._text = call.text or b""
        self._read = self._write = -1
        self._begin = 0
        self._writer: threading.Thread | None = None

    def __enter__(self) -> _Input:
        match self._call.source:
            case "pipe" | "substitution":
                self._read, self._write = os.pipe()
            case "null" | "directory":
                self._read = os.open(os.devnull, os.O_RDONLY)
            case "closed":
                pass
            case source:
                given = self._path.with_name("given")
                before = b"" if source == "here" else b"read before\n"
                given.write_bytes(before + (b"not read\n" if source == "file" else self._text))
                self._read = os.open(given, os.O_RDONLY)
                given.unlink()
                self._begin = os.lseek(self._read, len(before), os.SEEK_SET)
        return self

    def place(self) -> None:
        """In the child."""
        if self._read < 0:
            os.close(0)
        else:
            os.dup2(self._read, 63 if self._call.source == "substitution" else 0)

    def feed(self) -> None:
        if self._write >= 0:
            self._writer = threading.Thread(target=self._fill, args=(self._write,), daemon=True)
            self._writer.start()

    def _fill(self, descriptor: int) -> None:
        with suppress(BrokenPipeError), os.fdopen(descriptor, "wb", buffering=0) as stream:
            stream.write(self._text)

    @property
    def read(self) -> int:
        """Of a file: how far; of a pipe: 0, as what sbatch does not read is lost either way."""
        if self._call.source in ("file", "stdin file", "here"):
            return os.lseek(self._read, 0, os.SEEK_CUR) - self._begin
        return 0

    def __exit__(self, *_: object) -> None:
        if self._read >= 0:
            os.close(self._read)  # ends a writer that still waits
        if self._writer:
            self._writer.join()
