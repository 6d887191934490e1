"""Which file the name of a Slurm command stands for: never one that leads back to sbtrain.

Clusters put a file `sbatch` that runs sbtrain first on PATH. Passed over are sbtrain's own
entry point and whatever a process above this one runs; scripts that name sbtrain come last.
What any other script runs cannot be seen from outside; so it is started with a note of the
call, in its environment and in a file that stays open, for those that clear their environment.
A sbtrain that finds the note becomes the next file of that name (`pass_on`), unless the script
has it show something, as a plan: then it looks no further than the files that are left. So
every call reaches Slurm once, by however many files, and whatever they add to its words.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, Never

from sbtrain_jobs.errors import CommandMissingError

NOTE = "SBTRAIN_SLURM_CALL"  # the call, and the files that are left for it
FOLDER = "SBTRAIN_SLURM_BIN"  # the user's word for where Slurm's commands are
COMMANDS = {
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol"),
    *("sdiag", "sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
}
_MOST_NOTE_BYTES = 100_000  # the kernel takes 128 KiB for one variable
_NOTE_FILE = "sbtrain-slurm-call"
_MOST_ENTRY_BYTES = 4096
_MOST_SCRIPT_BYTES = 1 << 20
_ELF = b"\x7fELF"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # what Python sets LC_CTYPE to in the C locale
_HINT = f"put the folder of Slurm's own commands on PATH, or name it in {FOLDER}"


class Program(NamedTuple):  # a dataclass costs `sbtrain --help` a tenth of its time
    """How a program is started. file: the one that runs, where argv[0] is not looked up.
    notes: descriptors that it inherits; the caller closes them."""

    argv: tuple[str, ...]
    file: str | None = None
    environ: Mapping[str, str] | None = None
    notes: tuple[int, ...] = ()


def program_for(argv: Sequence[str], environ: Mapping[str, str] | None) -> Program:
    """The program of a call; only Slurm's commands are looked for here.

    Args:
        environ: that of the program; None: this process's own.

    Raises:
        CommandMissingError: there is no such command but sbtrain itself.
    """
    around = os.environ if environ is None else environ
    _, left = _read(around)
    if NOTE in around:
        environ = around = {name: value for name, value in around.items() if name != NOTE}
    name = PurePath(argv[0]).name
    if name not in COMMANDS:
        return Program(argv=tuple(argv), environ=environ)
    if name in left and not left[name]:
        raise _only_ourselves(argv)
    files = left.get(name) or _files(argv[0], around)
    if files:
        left[name] = files[1:]
        return _started_with(tuple(argv), files[0], around, left)
    folder = around.get(FOLDER)
    return Program(
        argv=tuple(argv), file=f"{folder}/{name}" if folder else None, environ=environ
    )


def call_under_way(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The call of a Slurm command by which sbtrain, without knowing, has started this
    process; empty where it has not."""
    return _read(environ)[0]


def pass_on(call: tuple[str, ...]) -> Never:
    """Become the command that was called, by the next file of its name, in the environment
    that this process was started with: its order, and what no mapping could hold, included.

    Raises:
        CommandMissingError: no file is left that could be Slurm's.
    """
    program = program_for(call, None)
    note = (os.environ if program.environ is None else program.environ).get(NOTE)
    _forget_what_python_has_set()
    os.unsetenv(NOTE)
    if note is not None:
        os.putenv(NOTE, note)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them
    for descriptor in program.notes:
        os.set_inheritable(descriptor, True)
    file = program.file or program.argv[0]
    try:
        os.execv(file, program.argv)  # noqa: S606
    except OSError as error:
        raise CommandMissingError(
            f"cannot run {file}: {error.strerror}", argv=call, hint=_HINT
        ) from None


def as_started_with(environ: Mapping[str, str]) -> dict[str, str]:
    """This process's environment as sbatch would take it from who started it: LC_CTYPE, which
    Python sets in the C locale, as it was, and of several entries of one name the last."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(environ)
    began: dict[str, list[str]] = {}
    for entry in entries:
        name, equals, value = os.fsdecode(entry).partition("=")
        if equals:
            began.setdefault(name, []).append(value)
    kept = dict(environ)
    for name in kept.keys() & began.keys():
        values = began[name]
        if kept[name] == values[0] or (name == "LC_CTYPE" and kept[name] in _COERCED):
            kept[name] = values[-1]
    if kept.get("LC_CTYPE") in _COERCED and "LC_CTYPE" not in began:
        del kept["LC_CTYPE"]
    return kept


def _forget_what_python_has_set() -> None:
    before = as_started_with(os.environ).get("LC_CTYPE")
    if before is None:
        os.unsetenv("LC_CTYPE")
    elif before != os.environ.get("LC_CTYPE"):
        os.putenv("LC_CTYPE", before)


def _read(environ: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """The call under way, and the files that are left for each command on the way to here;
    nothing of what is no note of ours, or was carried into another job."""
    text, carried = environ.get(NOTE) or _in_open_file(), NOTE in environ
    if not text:
        return (), {}
    import json

    try:
        said = json.loads(text)
        if carried and said["job"] != environ.get("SLURM_JOB_ID"):
            return (), {}
        return tuple(said["argv"]), dict(said["left"])
    except (ValueError, KeyError, TypeError):
        return (), {}


def _in_open_file() -> bytes:
    """The note where only the file is left of it; from here on it goes no further."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return b""
    text = b""
    for number in numbers:
        try:
            if _NOTE_FILE in os.readlink(f"/proc/self/fd/{number}"):  # noqa: PTH115
                text = os.pread(number, _MOST_SCRIPT_BYTES, 0)
                os.set_inheritable(number, False)
        except OSError:
            continue
    return text


def _only_ourselves(argv: Sequence[str]) -> CommandMissingError:
    name = PurePath(argv[0]).name
    return CommandMissingError(
        f"there is no {name} of Slurm here: every {name} on PATH runs sbtrain",
        argv=argv,
        hint=_HINT,
    )


def _files(command: str, environ: Mapping[str, str]) -> list[str]:
    """Files that can be run as the command, each once, the first one first."""
    name, folder = PurePath(command).name, environ.get(FOLDER)
    folders = [folder] if folder else os.get_exec_path(dict(environ))
    places = [os.path.join(place, name) for place in folders]  # noqa: PTH118 - "" is "."
    if os.sep in command:
        places.insert(0, command)
    found: dict[tuple[int, int], str] = {}
    for place in places:
        try:
            status = os.stat(place)  # noqa: PTH116
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and os.access(place, os.X_OK):
            found.setdefault((status.st_dev, status.st_ino), os.path.abspath(place))  # noqa: PTH100
    files = [file for file in found.values() if not _is_our_entry(file)]
    files.sort(key=_names_us)
    if len(files) > 1 or any(_head(file) != _ELF for file in files):
        above = _run_above(name)
        files = [file for file in files if not any(map(_same_as(file), above))]
    if found and not files:
        raise _only_ourselves((command,))
    return files


def _is_our_entry(file: str) -> bool:
    """Whether it is the file that this process was started by, or a copy of that."""
    own = Path(sys.argv[0])
    try:
        if own.samefile(file):
            return True
        size = own.stat().st_size
        return (
            0 < size <= _MOST_ENTRY_BYTES
            and Path(file).stat().st_size == size
            and Path(file).read_bytes() == own.read_bytes()
        )
    except OSError:
        return False


def _names_us(file: str) -> bool:
    """Whether it is a script that names our commands outside its comments. A folder of that
    name does not count."""
    try:
        if _head(file) == _ELF:
            return False
        with open(file, "rb") as stream:  # noqa: PTH123
            lines = stream.read(_MOST_SCRIPT_BYTES).split(b"\n")
    except OSError:
        return False
    import re

    named = re.compile(rb"sbtrain(?:ctl)?(?![\w./-])|sbtrain\.commands")
    return any(named.search(line.partition(b"#")[0]) for line in lines)


def _head(file: str) -> bytes:
    """Its first four bytes; what may be run but not read is no script."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read(4)
    except OSError:
        return _ELF


def _started_with(
    argv: tuple[str, ...],
    file: str,
    environ: Mapping[str, str],
    left: Mapping[str, Sequence[str]],
) -> Program:
    """The call by this file; where it is a script, with a note."""
    head = _head(file)
    if head == _ELF:
        return Program(argv=argv, file=file, environ=environ)
    import json

    job = environ.get("SLURM_JOB_ID")
    note = json.dumps({"argv": argv, "left": left, "job": job})
    if len(note) <= _MOST_NOTE_BYTES:
        environ = {**environ, NOTE: note}
    notes = (os.memfd_create(_NOTE_FILE),)
    os.write(notes[0], note.encode(errors="surrogateescape"))
    if not head.startswith(b"#!"):  # a shell runs it all the same
        argv, file = ("/bin/bash", file, *argv[1:]), "/bin/bash"
    return Program(argv=argv, file=file, environ=environ, notes=notes)


def _run_above(name: str) -> list[str]:
    """Files of this name that processes above this one run: as their program, or as the
    script that an interpreter was given."""
    found = []
    pid = os.getppid()
    while pid > 1:
        found.append(f"/proc/{pid}/exe")
        script = next((word for word in _words(pid)[1:] if not word.startswith("-")), "")
        if PurePath(script).name == name:
            found.append(os.path.join(f"/proc/{pid}/cwd", script))  # noqa: PTH118
        pid = _parent(pid)
    return found


def _same_as(file: str) -> Callable[[str], bool]:
    def same(other: str) -> bool:
        try:
            return os.path.samefile(file, other)  # noqa: PTH121
        except OSError:
            return False

    return same


def _words(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in text.split(b"\0")[:-1]]


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
