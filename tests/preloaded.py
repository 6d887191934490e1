"""Modules imported once for many processes: a parent that has them, and forks of it.

Run as a program this file is the parent. It imports what it is told, which takes seconds of a
core for TensorFlow, and starts nothing of it; then it forks for each program that it is asked
for. The fork has its own session, environment and output, runs the program as Python's main
script, and ends as Python ends. What the tests look at begins where the import is over.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sbtrain.commands.ctl import COMMANDS
from sbtrain_jobs.process import CommandResult

# What our programs load takes most of the CPU of a short run.
OURS = (
    *("h5py", "scipy.optimize", "sbtrain_jobs.supervisor.supervise"),
    *("sbtrain.commands.ctl", "sbtrain.commands.submit"),
    *(f"sbtrain.commands.{name}" for name in COMMANDS if name != "stage"),
)

# Read when they are loaded. Without oneDNN the order of TensorFlow's sums is always the same;
# threads of a numeric library would not be there in a fork.
LOADED_WITH = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "OPENBLAS_NUM_THREADS": "1",
}


class Forked:
    """A fork, used as a subprocess.Popen is. Its signals come from its parent."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._unread = b""
        self.pid = int(self._answer(timeout_s=60.0) or 0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and (told := self._answer(timeout_s=0.0)):
            self.returncode = int(told)
            self._line.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end_s = time.monotonic() + (600.0 if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 600.0)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            self._line.sendall(f"{int(number)}\n".encode())

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _answer(self, *, timeout_s: float) -> str | None:
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._line], [], [], timeout_s)
            if not ready:
                return None
            chunk = self._line.recv(4096)
            if not chunk:
                raise EOFError("the parent of the forks is gone")
            self._unread += chunk
        told, _, self._unread = self._unread.partition(b"\n")
        return told.decode()


class PreloadedParent:
    """Starts programs that have its modules already."""

    def __init__(self, address: str) -> None:
        self._address = address

    def start(
        self,
        script: Path,
        *arguments: str,
        env: Mapping[str, str],
        output: int,
        errors: int | None = None,
        cwd: Path | None = None,
    ) -> Forked:
        """Start a script. output and errors: files that are open for writing."""
        line = socket.socket(socket.AF_UNIX)
        line.connect(self._address)
        asked = {
            "argv": [str(script), *arguments],
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
        }
        outputs = [output, output if errors is None else errors]
        socket.send_fds(line, [json.dumps(asked).encode() + b"\n"], outputs)
        return Forked(line)

    def run(
        self,
        script: Path,
        *arguments: str,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> CommandResult:
        """Run a script to its end, whatever its exit status."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = self.start(
                script,
                *arguments,
                env=os.environ if env is None else env,
                output=output.fileno(),
                errors=errors.fileno(),
                cwd=cwd,
            )
            try:
                code = process.wait(timeout_s)
            finally:
                process.kill()
            output.seek(0)
            errors.seek(0)
            return CommandResult(
                argv=(str(script), *arguments),
                returncode=code,
                stdout=output.read(),
                stderr=errors.read(),
            )


_until_the_end = contextlib.ExitStack()  # named: multiprocessing's forks drop what atexit holds


@functools.cache
def ours_preloaded() -> PreloadedParent:
    """A parent that has what our programs load, until this process ends."""
    atexit.register(_until_the_end.close)
    return _until_the_end.enter_context(preloaded(*OURS))


@contextlib.contextmanager
def preloaded(*modules: str) -> Iterator[PreloadedParent]:
    with tempfile.TemporaryDirectory(prefix="sbt-") as folder:  # short, for a socket's address
        yield from _started(f"{folder}/parent", modules)


def _started(address: str, modules: Sequence[str]) -> Iterator[PreloadedParent]:
    wings = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, __file__, address, *modules],
        env={**os.environ, **LOADED_WITH, "PYTHONPATH": wings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # when its stdin is closed it ends, and with it every fork
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield PreloadedParent(address)


def serve(address: str) -> Sequence[str]:
    """Start what is asked for, until stdin ends. Returns in a fork alone: its argv."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready\n")
        lines: dict[int, socket.socket] = {}  # by the pid that each is about
        ends: dict[int, int] = {}  # pidfd: pid
        while True:
            watched = [0, listener, *lines.values(), *ends]
            ready, _, _ = select.select(watched, [], [])
            if 0 in ready:
                for pid in lines:
                    os.killpg(pid, signal.SIGKILL)
                os._exit(0)
            if listener in ready:
                line, _ = listener.accept()
                asked, outputs, _, _ = socket.recv_fds(line, 1 << 20, 2)
                while not asked.endswith(b"\n"):
                    asked += line.recv(1 << 20)
                pid = os.fork()
                if pid == 0:
                    for one in (line, *lines.values()):
                        one.close()
                    for number in ends:
                        os.close(number)
                    return become(json.loads(asked), outputs)
                for number in outputs:
                    os.close(number)
                lines[pid] = line
                ends[os.pidfd_open(pid)] = pid
                line.sendall(f"{pid}\n".encode())
            for pid, line in list(lines.items()):
                if line in ready:
                    for word in line.recv(4096).split() or [b"9"]:  # nobody asks any more
                        os.kill(pid, int(word))
            for number, pid in list(ends.items()):
                if number in ready:
                    _, status = os.waitpid(pid, 0)
                    os.close(number)
                    del ends[number]
                    with lines.pop(pid) as line, contextlib.suppress(BrokenPipeError):
                        line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def become(asked: dict[str, object], outputs: Sequence[int]) -> Sequence[str]:
    os.setsid()
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for place, number in enumerate(outputs, start=1):
        os.dup2(number, place)
        os.close(number)
    return asked["argv"]


if __name__ == "__main__":
    import gc
    import importlib
    import warnings

    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # a fork that ends would walk all of it, and copy the memory it lies in
    warnings.filterwarnings("ignore", "This process .* is multi-threaded")
    sys.argv = list(serve(sys.argv[1]))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    __file__ = sys.argv[0]
    exec(compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec"))
