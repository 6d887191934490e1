"""The trainer's line to the supervisor: a thread with a socket, so that a hold is answered
while the main thread computes.

Losing the supervisor does not end the trainer by itself: the loss is said once, and from then
on messages go nowhere. (Where the supervisor is gone for good, the node's agent ends it.)
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.training.step_gate import StepGate
from sbtrain_jobs.wire.control import keep_alive
from sbtrain_jobs.wire.messages import (
    Held,
    Hello,
    Hold,
    Message,
    StepsDone,
    StopAfter,
    from_line,
    to_line,
)
from sbtrain_jobs.wire.reach import connect_first

_log = logging.getLogger("sbtrain.link")

UNSENT_LIMIT_BYTES = 4 << 20  # step times beyond this are dropped; the rest is always kept
LINE_LIMIT_BYTES = 1 << 20


class TrainerLink:
    """Says Hello, answers Hold at once, passes StopAfter on, sends what it is given.

    Args:
        address: host:port of the supervisor, or all its addresses (candidate_addresses).
        gate: is held and released as the supervisor says.
        on_stop: called in the link's thread with every StopAfter, after the gate knows.
    """

    def __init__(
        self,
        *,
        address: str,
        hello: Hello,
        gate: StepGate,
        connect_limit_s: float = 10.0,
        on_stop: Callable[[int], None] | None = None,
    ) -> None:
        self._address = address
        self._rank = hello.rank
        self._gate = gate
        self._connect_limit_s = connect_limit_s
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._unsent = bytearray(to_line(hello))
        self._urgent: deque[Message] = deque()
        self._alive = True
        self._closing_by: float | None = None  # time.monotonic()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="sbtrain-link", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the supervisor may still answer."""
        return self._alive

    def send(self, message: Message) -> None:
        """Queue a message; never waits for the network."""
        line = to_line(message)
        with self._lock:
            if not self._alive:
                return
            if isinstance(message, StepsDone) and len(self._unsent) > UNSENT_LIMIT_BYTES:
                return
            self._unsent += line
        self._wake()

    def send_from_handler(self, message: Message) -> None:
        """Like send, for signal handlers: they may interrupt this very thread within send."""
        self._urgent.append(message)
        self._wake()

    def close(self, *, within_s: float = 2.0) -> None:
        """Send what is queued, tell the supervisor that nothing follows, and hang up."""
        with self._lock:
            self._closing_by = time.monotonic() + within_s
        self._wake()
        self._thread.join(within_s + 1.0)

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"w")
        except OSError:
            return  # full: the thread wakes anyway; closed: there is no thread to wake

    def _run(self) -> None:
        try:
            with self._connect() as connection:
                self._talk(connection)
        except (OSError, ValueError, LaunchError) as error:
            self._lose(str(error) or type(error).__name__)
        finally:
            self._alive = False
            self._gate.open()
            self._wake_reader.close()
            self._wake_writer.close()

    def _connect(self) -> socket.socket:
        if ";" in self._address:
            connection, _ = connect_first(self._address, within_s=self._connect_limit_s)
            connection.setblocking(False)
            return connection
        host, _, port = self._address.rpartition(":")
        connection = socket.create_connection(
            (host.strip("[]"), int(port)), timeout=self._connect_limit_s
        )
        keep_alive(connection)
        connection.setblocking(False)
        return connection

    def _talk(self, connection: socket.socket) -> None:
        received = bytearray()
        hung_up = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while True:
                while self._urgent:
                    self.send(self._urgent.popleft())
                closing_by = self._closing_by
                if closing_by is not None and not self._unsent and not hung_up:
                    connection.shutdown(socket.SHUT_WR)
                    hung_up = True
                if closing_by is not None and time.monotonic() >= closing_by:
                    return
                writing = selectors.EVENT_WRITE if self._unsent else 0
                selector.modify(connection, selectors.EVENT_READ | writing)
                left_s = None if closing_by is None else closing_by - time.monotonic()
                for key, events in selector.select(left_s):
                    if key.fileobj is self._wake_reader:
                        self._wake_reader.recv(4096)
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._write(connection)
                    if events & selectors.EVENT_READ and not self._read(connection, received):
                        if self._closing_by is None:
                            self._lose("it closed the connection")
                        return

    def _write(self, connection: socket.socket) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            sent = connection.send(self._unsent)
            del self._unsent[:sent]

    def _read(self, connection: socket.socket, received: bytearray) -> bool:
        """Returns False at the end of the connection."""
        chunk = connection.recv(65536)
        received += chunk
        while (end := received.find(b"\n")) >= 0:
            line = bytes(received[:end])
            del received[: end + 1]
            self._obey(from_line(line))
        if len(received) > LINE_LIMIT_BYTES:
            raise ValueError("it sent a line without an end")
        return bool(chunk)

    def _obey(self, message: Message) -> None:
        if isinstance(message, Hold):
            self.send(Held(rank=self._rank, step=self._gate.hold()))
        elif isinstance(message, StopAfter):
            self._gate.finish_at(message.step)
            if self._on_stop is not None:
                self._on_stop(message.step)

    def _lose(self, why: str) -> None:
        if self._closing_by is None:
            _log.warning(
                "sbtrain: lost the supervisor at %s (%s): this trainer can no longer be told "
                "when to stop and save",
                self._address.partition(";")[2] or self._address,
                why,
            )
