"""What asks for training and what is sbatch's alone, and how a call of its own reaches sbatch:
a program that is no script stands for it, so that nothing of ours is added on the way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands import clean_environ
from sbtrain.options.pass_through import for_sbatch

ROOT = Path(__file__).resolve().parents[3]
SBTRAIN = (sys.executable, str(ROOT / "slurm_plugin/bin/sbtrain"))
SH = "#!/bin/sh\n"


def is_sbatchs(folder: Path, text: str | bytes, *words: str, name: str = "job.sh") -> bool:
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(content)
    said = for_sbatch([*words, str(folder / name)], {})
    assert said in (None, (*words, str(folder / name)))
    return said is not None


@pytest.mark.parametrize(
    "text",
    [
        f"{SH}#SBTRAIN --train-steps 5\ntrue\n",
        f"{SH}# a comment\n\n \t\n#SBTRAIN\t--train-steps 5\n",
        f"{SH}#SBATCH -N2\n#SBTRAIN --train-steps 5\n",
        f"{SH}#SBTRAIN\n",
        f"{SH}#SBTRAIN --train-steps 5",
    ],
)
def test_a_directive_before_the_first_command_asks(tmp_path: Path, text: str) -> None:
    assert not is_sbatchs(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (f"{SH}true\n#SBTRAIN --train-steps 5\n", 3),
        (f"{SH}\ncat > made.sh <<EOF\n#!/bin/sh\n#SBTRAIN --train-steps 5\nEOF\n", 5),
        (f"{SH} #SBTRAIN --train-steps 5\n", 0),
        (f"{SH}# SBTRAIN --train-steps 5\n", 0),
        (f"{SH}#sbtrain --train-steps 5\n", 0),
        (f"{SH}#SBTRAINING --train-steps 5\n", 0),
        (f"{SH}echo '#SBTRAIN --train-steps 5'\n", 0),
        (f"{SH}sbtrain --train-steps 5 train.py\n", 0),
    ],
)
def test_other_places_of_the_word_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, warned: int
) -> None:
    assert is_sbatchs(tmp_path, text)
    said = capsys.readouterr().err
    assert (f"job.sh:{warned}: ignored" in said) if warned else said == ""


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("from sbtrain import join\nwith join() as run: ...\n", True),
        ("import sbtrain_jobs\nwith sbtrain_jobs.join() as run: ...\n", True),
        ("# from sbtrain import join\n", False),
        ("'''from sbtrain import join'''\n", False),
        ("print('from sbtrain import join; join()')\n", False),
        ("from os.path import join\njoin('sbtrain', 'b')\n", False),
        ("def f(:\n", False),
        ("import sys\n", False),
    ],
)
def test_a_python_script_asks_by_what_it_does(tmp_path: Path, text: str, asks: bool) -> None:
    assert is_sbatchs(tmp_path, f"#!/usr/bin/env python3\n{text}", name="job.py") is not asks
    assert is_sbatchs(tmp_path, f"#!/usr/bin/env python3\n{text}", name="job") is not asks
    assert not is_sbatchs(tmp_path, text, name="job.py")  # sbatch refuses it


def test_what_sbatch_refuses_is_left_to_it(tmp_path: Path) -> None:
    assert is_sbatchs(tmp_path, "")
    assert is_sbatchs(tmp_path, " \n")
    assert is_sbatchs(tmp_path, "echo no interpreter\n")
    assert is_sbatchs(tmp_path, b"\xef\xbb\xbf#!/bin/sh\n#SBTRAIN --train-steps 5\n")
    assert is_sbatchs(tmp_path, "#!/bin/sh\r\n#SBTRAIN --train-steps 5\r\n")
    assert is_sbatchs(tmp_path, b"#!/bin/sh\n#SBTRAIN --train-steps 5\n\0")
    assert for_sbatch([str(tmp_path)], {}) is not None
    assert for_sbatch([str(tmp_path / "nope.sh")], {}) is not None
    assert for_sbatch(["--wrap=true", "job.sh"], {}) is not None
    assert for_sbatch(["-N"], {}) is not None
    assert for_sbatch(["--train-steps=5", "-N"], {}) is None


def test_a_script_that_may_not_be_read_is_left_to_sbatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root would be let in
    assert is_sbatchs(tmp_path, f"{SH}#SBTRAIN --train-steps 5\n")


def test_launch_none_hands_on_all_but_our_own_words(tmp_path: Path) -> None:
    words = ("-N2", "--train-launch", "none", "--train-steps=5", "job.py", "--train-steps", "7")
    assert for_sbatch(words, {}) == ("-N2", "job.py", "--train-steps", "7")
    words = ("--train-launch=none", "-HN2", "--", "job.sh", "--", "--train-launch=ranks")
    assert for_sbatch(words, {}) == ("-HN2", "--", "job.sh", "--", "--train-launch=ranks")
    words = ("--train-launch=none", "-N1", ":", "--train-steps=5", "-N2", "job.sh")
    assert for_sbatch(words, {}) == ("-N1", ":", "-N2", "job.sh")
    words = ("--train-launch=ranks", "--train-launch=none", "--wrap=true")
    assert for_sbatch(words, {}) == ("--wrap=true",)
    assert (
        for_sbatch(("--train-launch=none", "--train-launch=ranks", "--wrap=true"), {}) is None
    )


def test_arguments_of_the_script_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(SH)
    words = (str(tmp_path / "job.sh"), "--train-steps=5", "--train-launch", "ranks", ":", "-N2")
    assert for_sbatch(words, {}) == words


def test_a_script_in_the_jobs_folder_or_on_path_is_the_one_that_sbatch_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("there", "#SBTRAIN --train-steps 5\n"), ("path", "true\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.sh").write_text(SH + text)
    environ = {"PATH": str(tmp_path / "path")}
    assert for_sbatch(["job.sh"], environ) is not None
    assert for_sbatch(["-D", "there", "job.sh"], environ) is None


class Stand:
    """A folder with a program that stands for sbatch, and sbtrain as it is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()

    def is_played_by(self, program: str) -> None:
        """No script: with one, sbtrain's note of the call would be in its environment."""
        (self.folder / "bin/sbatch").symlink_to(program)

    def run(self, *words: str, redirect: str = "") -> bytes:
        said = self.call(*words, redirect=redirect)
        assert said.returncode == 0, said.stderr
        return said.stdout

    def call(self, *words: str, redirect: str) -> subprocess.CompletedProcess[bytes]:
        environ = clean_environ()
        environ["PATH"] = f"{self.folder}/bin:/usr/bin:/bin"
        return subprocess.run(
            ["/bin/bash", "-c", f'exec "$@" {redirect}', "bash", *SBTRAIN, *words],
            cwd=self.folder, env=environ, capture_output=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


SCRIPT = b"#!/bin/sh\n: \xff caf\xc3\xa9\r\t\0\n" + b"# filler\n" * 100_000


@pytest.mark.parametrize(
    ("redirect", "words"),
    [
        ("< given", ()),
        ("< <(cat given)", ()),
        ("< <(head -c 99 given; sleep 0.3; tail -c +100 given)", ()),
        ("< given", ("/dev/stdin",)),
        ("< <(cat given)", ("/dev/stdin",)),
        ("7< <(cat given)", ("/dev/fd/7",)),
        ("7< <(cat given)", ("/proc/self/fd/7",)),
        ("", ("given",)),
        ("", ("link",)),
    ],
)
def test_a_script_that_was_looked_at_can_still_be_read(
    stand: Stand, redirect: str, words: tuple[str, ...]
) -> None:
    (stand.folder / "given").write_bytes(SCRIPT)
    (stand.folder / "link").symlink_to("given")
    stand.is_played_by("/bin/cat")
    assert stand.run(*words, redirect=redirect) == SCRIPT


def test_standard_input_goes_on_where_it_was(stand: Stand) -> None:
    (stand.folder / "given").write_bytes(b"read before\n#!/bin/sh\n")
    stand.is_played_by("/bin/cat")
    said = stand.run(redirect="< <(read line; exec cat) < given")
    assert said == b"read before\n#!/bin/sh\n"
    command = 'exec 5<given; read -u 5 line; "$@" <&5; echo left; cat <&5'
    run = ["/bin/bash", "-c", command, "bash", *SBTRAIN]
    environ = clean_environ() | {"PATH": f"{stand.folder}/bin:/usr/bin:/bin"}
    out = subprocess.run(run, cwd=stand.folder, env=environ, capture_output=True, check=True)
    assert out.stdout == b"#!/bin/sh\nleft\n"


def test_a_named_pipe_is_read_by_sbatch_alone(stand: Stand) -> None:
    """Its writer would wait for ever for a second reader."""
    os.mkfifo(stand.folder / "pipe")
    stand.is_played_by("/bin/cat")
    writer = subprocess.Popen(
        ["/bin/sh", "-c", "printf '#!/bin/sh\n#SBTRAIN --train-steps 5\n' > pipe"],
        cwd=stand.folder,
    )
    assert stand.run("pipe") == b"#!/bin/sh\n#SBTRAIN --train-steps 5\n"
    assert writer.wait(timeout=10) == 0


@pytest.mark.parametrize("word", ["--version", "-V", "--usage"])
def test_what_only_shows_something_reads_no_script(stand: Stand, word: str) -> None:
    """A pipe that nobody closes."""
    (stand.folder / "given").write_text(SH)
    stand.is_played_by("/bin/echo")
    words = ("-N1", word)
    begin_s = time.monotonic()
    said = stand.run(*words, redirect="< <(exec sleep 20 2>/dev/null)")
    assert said == f"-N1 {word}\n".encode()
    assert time.monotonic() - begin_s < 15


@pytest.mark.parametrize("redirect", ["<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stay_closed(stand: Stand, redirect: str) -> None:
    stand.is_played_by("/usr/bin/test")
    closed = {{"<&-": 0, ">&-": 1, "2>&-": 2}[one] for one in redirect.split()}
    for number in range(3):
        said = stand.call("-e", f"/proc/self/fd/{number}", redirect=redirect)
        assert said.returncode == (number in closed)


def environment_after(program: Sequence[str], entries: Sequence[bytes]) -> bytes:
    """What a program prints that was started with this environment, which need not be one."""

    def become() -> None:
        argv = (ctypes.c_char_p * (len(program) + 1))(*map(os.fsencode, program), None)
        environ = (ctypes.c_char_p * (len(entries) + 1))(*entries, None)
        ctypes.CDLL(None).execve(os.fsencode(program[0]), argv, environ)
        os._exit(127)

    return subprocess.run(
        program, preexec_fn=become, capture_output=True, check=True, timeout=60,
        stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (b"LC_ALL=C",),
        (b"LANG=C",),
        (b"LC_ALL=POSIX", b"LC_CTYPE=C.UTF-8"),
        (b"LC_CTYPE=C.UTF-8",),
        (b"LC_CTYPE=C",),
        (b"B=2", b"A=1", b"Z=", b"M=a\nb"),
        (b"BASH_FUNC_module%%=() {  eval `x`\n}",),
        (b"TWICE=1", b"TWICE=2", b"no-equals-sign", b"=odd", b"\xff=\xff", b"LAST=1"),
        (b"PYTHONPATH=/opt/lib", b"PYTHONUTF8=0", b"PYTHONCOERCECLOCALE=0", b"PYTHONDEVMODE=0"),
        (b"SLURM_JOB_ID=7", b"SBTRAIN_SITE=x", b"SBTRAIN_RANK=0"),
    ],
)
def test_the_environment_is_the_callers_to_the_last_byte(
    stand: Stand, entries: tuple[bytes, ...]
) -> None:
    stand.is_played_by("/usr/bin/env")
    around = [b"PATH=" + os.fsencode(stand.folder / "bin"), *entries]
    expected = environment_after(["/usr/bin/env", "-0"], around)
    assert environment_after([*SBTRAIN, "-0"], around) == expected


TELLS = """import os, sys
from sbtrain_jobs.slurm_calls import as_started_with
found = as_started_with(os.environ).items()
sys.stdout.buffer.write(b"".join(os.fsencode(f"{k}={v}") + b"\\0" for k, v in found))
"""


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        *((one, one) for one in ((), (b"LC_ALL=C",), (b"LANG=C", b"LC_CTYPE=POSIX", b"Z="))),
        *((one, one) for one in ((b"LC_CTYPE=C.UTF-8", b"A=1"), (b"LC_CTYPE=C", b"\xff=\xff"))),
        (
            (b"TWICE=1", b"=odd", b"", b"no-equals-sign", b"TWICE=2"),
            (b"TWICE=2", b"=odd"),
        ),
    ],
)
def test_the_environment_of_a_planned_call_is_what_sbatch_would_take(
    entries: tuple[bytes, ...], expected: tuple[bytes, ...]
) -> None:
    around = [b"PYTHONPATH=" + os.fsencode(os.pathsep.join(filter(None, sys.path)))]
    told = environment_after([sys.executable, "-c", TELLS], [*around, *entries])
    assert told == b"".join(one + b"\0" for one in (*around, *expected))


def test_what_pythonpath_names_is_no_part_of_sbtrain(stand: Stand) -> None:
    """For the user's programs, of another Python perhaps; nor what lies beside a copy of it."""
    for name in ("typing", "signal", "threading"):
        (stand.folder / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
        (stand.folder / f"bin/{name}.py").write_text("raise SystemExit('the wrong module')\n")
    stand.is_played_by("/bin/echo")
    environ = {"PATH": f"{stand.folder}/bin:/bin", "PYTHONPATH": ":/opt/lib"}
    copy = stand.folder / "bin/sbtrain"
    copy.write_bytes(Path(SBTRAIN[1]).read_bytes())
    for program in (SBTRAIN[1], str(copy)):
        said = subprocess.run(
            [sys.executable, program, "-N2", "--wrap=true"],
            cwd=stand.folder, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (said.returncode, said.stdout) == (0, "-N2 --wrap=true\n"), said.stderr


def test_pythonpath_serves_where_sbtrain_itself_was_put_on_it(stand: Stand) -> None:
    """As modules of a cluster do it: with an interpreter that knows nothing of it."""
    stand.is_played_by("/bin/echo")
    wings = os.pathsep.join(str(ROOT / name) for name in ("slurm_plugin", "jobs", "perf"))
    wings += f"{os.pathsep}{ROOT / 'io_staging'}"
    environ = {"PATH": f"{stand.folder}/bin:/bin", "PYTHONPATH": wings}
    said = subprocess.run(
        [sys.executable, "-S", SBTRAIN[1], "-N2", "--wrap=true"],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stdout) == (0, "-N2 --wrap=true\n"), said.stderr


@contextmanager
def waiting(stand: Stand, *, ignored: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """sbtrain that reads its script from a pipe into which nobody writes."""
    disposition = signal.SIG_IGN if ignored else signal.SIG_DFL
    process = subprocess.Popen(
        SBTRAIN, cwd=stand.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, disposition),  # noqa: PLW1509
    )  # fmt: skip
    try:
        time.sleep(2)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_it_as_it_would_end_sbatch(stand: Stand) -> None:
    """By the signal, so that a shell's loop ends too, and without a word."""
    with waiting(stand) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == -signal.SIGINT
        assert process.stderr
        assert process.stderr.read() == b""


def test_ctrl_c_that_the_caller_ignores_is_ignored(stand: Stand) -> None:
    with waiting(stand, ignored=True) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
