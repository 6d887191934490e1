"""The control channel, supervisor's side: listens, lets in who knows the token, and turns
lines into events.

One thread owns all sockets. A connection that does not say a valid Hello in time is closed;
a line that is no message closes its connection, never the listener.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Union

from sbtrain_jobs.wire.messages import Hello, Message, from_line, to_line
from sbtrain_perf.values import dataclass

HELLO_WITHIN_S = 10.0
LONGEST_HELLO_BYTES = 4096
LONGEST_LINE_BYTES = 4 << 20
MOST_UNSENT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One connection that said Hello. here: it comes from the supervisor's own host."""

    number: int
    hello: Hello
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined:
    peer: Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSaid:
    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    peer: Peer


ControlEvent = Union[PeerJoined, PeerSaid, PeerLeft]


class _Connection:
    def __init__(self, stream: socket.socket, *, until_s: float) -> None:
        self.stream = stream
        self.until_s = until_s  # monotonic time by which it must have said Hello
        self.peer: Peer | None = None
        self.unread = b""
        self.unsent = bytearray()


class ControlListener:
    """Listens on a port of the kernel's choice; hands every event to `sink`.

    sink is called from the listener's thread and must not block.
    """

    def __init__(self, *, token: str, sink: Callable[[ControlEvent], None]) -> None:
        self._token = token.encode()
        self._sink = sink
        self._server = socket.create_server(("", 0), backlog=1024)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._connections: dict[int, _Connection] = {}
        self._by_peer: dict[int, _Connection] = {}
        self._to_send: deque[tuple[int, bytes]] = deque()
        self._close_at_s: float | None = None
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def send(self, peer: Peer, message: Message) -> None:
        """Queue a message; one to a peer that has left is dropped."""
        self._to_send.append((peer.number, to_line(message)))
        self._wake()

    def close(self, *, flush_s: float = 2.0) -> None:
        """Send what is queued, for at most flush_s, then close every connection."""
        self._close_at_s = time.monotonic() + flush_s
        self._wake()
        self._thread.join(flush_s + 5.0)

    def _wake(self) -> None:
        # Full: it wakes anyway. Closed: nothing is left to wake.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"w")

    def _run(self) -> None:
        while not self._finished():
            for key, events in self._selector.select(timeout=0.5):
                if key.fileobj is self._server:
                    self._accept()
                elif key.fileobj is self._wake_reader:
                    self._drain_wakes()
                elif (connection := self._connections.get(key.fd)) is not None:
                    self._serve(connection, events)
            self._queue_messages()
            self._drop_silent()
        for connection in list(self._connections.values()):
            self._drop(connection)
        for stream in (self._server, self._wake_reader, self._wake_writer):
            stream.close()
        self._selector.close()

    def _finished(self) -> bool:
        if self._close_at_s is None:
            return False
        unsent = self._to_send or any(c.unsent for c in self._connections.values())
        return not unsent or time.monotonic() > self._close_at_s

    def _accept(self) -> None:
        try:
            stream, _ = self._server.accept()
        except OSError:
            return  # it went away again, or no descriptor is free
        stream.setblocking(False)
        keep_alive(stream)
        connection = _Connection(stream, until_s=time.monotonic() + HELLO_WITHIN_S)
        self._connections[stream.fileno()] = connection
        self._selector.register(stream, selectors.EVENT_READ)

    def _drain_wakes(self) -> None:
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _serve(self, connection: _Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection.stream.fileno() >= 0:
            self._read(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.unread += data
        *lines, connection.unread = connection.unread.split(b"\n")
        for line in lines:
            if not self._heard(connection, line):
                self._drop(connection)
                return
        longest = LONGEST_LINE_BYTES if connection.peer else LONGEST_HELLO_BYTES
        if len(connection.unread) > longest:
            self._drop(connection)

    def _heard(self, connection: _Connection, line: bytes) -> bool:
        """Whether the connection may stay open after this line."""
        try:
            message = from_line(line)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False
        if connection.peer is not None:
            self._sink(PeerSaid(peer=connection.peer, message=message))
            return True
        if not isinstance(message, Hello):
            return False
        if not hmac.compare_digest(message.token.encode(errors="replace"), self._token):
            return False
        self._count += 1
        try:
            here = connection.stream.getpeername()[0] == connection.stream.getsockname()[0]
        except OSError:
            return False
        connection.peer = Peer(number=self._count, hello=message, here=here)
        self._by_peer[self._count] = connection
        self._sink(PeerJoined(peer=connection.peer))
        return True

    def _queue_messages(self) -> None:
        while self._to_send:
            number, line = self._to_send.popleft()
            connection = self._by_peer.get(number)
            if connection is None:
                continue
            connection.unsent += line
            self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            while connection.unsent:
                sent = connection.stream.send(connection.unsent)
                del connection.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        if len(connection.unsent) > MOST_UNSENT_BYTES:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.stream, wanted)

    def _drop_silent(self) -> None:
        now_s = time.monotonic()
        for connection in list(self._connections.values()):
            if connection.peer is None and now_s > connection.until_s:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        descriptor = connection.stream.fileno()
        if descriptor < 0:
            return
        self._selector.unregister(connection.stream)
        del self._connections[descriptor]
        connection.stream.close()
        connection.unsent.clear()
        if connection.peer is not None:
            del self._by_peer[connection.peer.number]
            self._sink(PeerLeft(peer=connection.peer))


def keep_alive(stream: socket.socket) -> None:
    """Notice within about half a minute that the other host is gone without a word."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
