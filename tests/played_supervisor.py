"""The supervisor's end of the control channel, played by the test over a real socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from sbtrain_jobs.wire.messages import Message, from_line, to_line


class PlayedSupervisor:
    """Listens, reads and sends lines."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(30)
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.connection: socket.socket | None = None
        self.unread = b""

    def accept(self) -> socket.socket:
        self.connection, _ = self.server.accept()
        self.connection.settimeout(30)
        return self.connection

    def hear(self) -> Message:
        assert self.connection is not None
        while b"\n" not in self.unread:
            chunk = self.connection.recv(65536)
            if not chunk:
                raise EOFError
            self.unread += chunk
        line, _, self.unread = self.unread.partition(b"\n")
        return from_line(line)

    def say(self, message: Message) -> None:
        assert self.connection is not None
        self.connection.sendall(to_line(message))

    def close(self) -> None:
        self.server.close()
        if self.connection is not None:
            self.connection.close()


def eventually(condition: Callable[[], bool], *, within_s: float = 30.0) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "did not happen"
        time.sleep(0.005)
