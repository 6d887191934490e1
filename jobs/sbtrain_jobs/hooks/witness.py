"""The line on which a rank's hooks tell the supervisor what its script does.

It has no thread and takes no orders, so that a program that forks or counts its threads is
what it was: a message is sent as far as the socket takes it, the rest with the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.training.launched import launched_rank
from sbtrain_jobs.wire.messages import Hello, Message, ScriptOver, to_line
from sbtrain_jobs.wire.reach import connect_first

CONNECT_WITHIN_S = 2.0
LAST_WORDS_S = 1.0
MOST_WAITING = 10_000  # messages; older ones are dropped


class Witness:
    """One process that stands for a rank: of the plan, or of a world that the script itself
    started. What it forks is none: there all is silent.

    Attributes:
        before_end: called when the process ends in an orderly way, before the last words.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.before_end: list[Callable[[], None]] = []
        self._busy = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._unsent = bytearray()
        self._stream: socket.socket | None = None
        self._tells_of_end = False
        control, hello = environ["SBTRAIN_CONTROL"], _hello(environ)
        self.rank = hello.rank
        with contextlib.suppress(OSError, LaunchError):
            self._stream = _connected(control)
            self._stream.setblocking(False)
        self.say(hello)
        os.register_at_fork(after_in_child=self._hang_up)
        atexit.register(self._end)

    @property
    def speaks(self) -> bool:
        return self._stream is not None

    def say(self, message: Message) -> None:
        """Never waits, and never fails. May be called by a handler of a signal that came
        while this very thread is in here: then the message goes with what is being sent."""
        if not self.speaks:
            return
        self._waiting.append(to_line(message))
        if self._busy.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._busy.release()

    def tell_of_end(self) -> None:
        """Say when the script is over, before what has been registered until now is done: a
        framework's own end may wait for other ranks."""
        if not self._tells_of_end:
            self._tells_of_end = True
            atexit.register(lambda: self.say(ScriptOver(rank=self.rank)))

    def _send(self) -> None:
        assert self._stream is not None
        try:
            while self._unsent or self._waiting:
                if not self._unsent:
                    self._unsent += self._waiting.popleft()
                sent = self._stream.send(self._unsent, socket.MSG_NOSIGNAL)
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()  # the supervisor is gone

    def _end(self) -> None:
        for tell in self.before_end:
            with contextlib.suppress(Exception):
                tell()
        if self._stream is None:
            return
        with contextlib.suppress(OSError):
            self._stream.settimeout(LAST_WORDS_S)
            self._stream.sendall(self._unsent + b"".join(self._waiting))
        self._hang_up()

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _hello(environ: Mapping[str, str]) -> Hello:
    by_script = not environ.get("SBTRAIN_ROLE")
    place = launched_rank(environ) if by_script else None
    node = environ.get("SLURM_NODEID", "0") if by_script else environ["SBTRAIN_NODE"]
    return Hello(
        who="witness",
        token=environ["SBTRAIN_TOKEN"],
        node=int(node),
        node_name=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        rank=place.rank if place else int(environ["SBTRAIN_RANK"]),
        pid=os.getpid(),
        world=place.world if place else "",
        size=place.size if place else 0,
    )


def _connected(control: str) -> socket.socket:
    """control: one address, or those at which a supervisor may be reached."""
    if ";" in control:
        return connect_first(control, within_s=CONNECT_WITHIN_S, each_s=CONNECT_WITHIN_S)[0]
    host, _, port = control.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_WITHIN_S)


_witness: Witness | None = None


def witness() -> Witness:
    """That of this process. Raises KeyError or ValueError where it is no trainer's."""
    global _witness
    if _witness is None:
        _witness = Witness(os.environ)
    return _witness
