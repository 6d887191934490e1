"""The control channel: who may speak, what is heard, what bad neighbours cannot do."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator

import pytest

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.wire import control
from sbtrain_jobs.wire.control import (
    ControlEvent,
    ControlListener,
    PeerJoined,
    PeerLeft,
    PeerSaid,
)
from sbtrain_jobs.wire.messages import Finish, Held, Hello, Hold, Message, StepsDone, to_line
from sbtrain_jobs.wire.reach import candidate_addresses, connect_first

SOON_S = 30.0  # what happens within milliseconds where nothing else runs
TOKEN = "0123456789abcdef"


class Desk:
    """A listener and the events that it told."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[ControlEvent] = queue.SimpleQueue()
        self.listener = ControlListener(token=TOKEN, sink=self.events.put)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), timeout=SOON_S)

    def next(self) -> ControlEvent:
        return self.events.get(timeout=SOON_S)

    def quiet(self) -> bool:
        try:
            self.events.get(timeout=0.3)
        except queue.Empty:
            return True
        return False


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.listener.close(flush_s=0.5)


def hello(**changes: object) -> bytes:
    values = {"who": "trainer", "token": TOKEN, "node": 0, "node_name": "c1", "rank": 1}
    return to_line(Hello(**{**values, **changes}))


def closed(stream: socket.socket) -> bool:
    stream.settimeout(SOON_S)
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_peer_joins_speaks_and_leaves(desk: Desk) -> None:
    with desk.connect() as stream:
        stream.sendall(hello() + to_line(Held(rank=1, step=4)))
        joined, said = desk.next(), desk.next()
        assert isinstance(joined, PeerJoined)
        assert joined.peer.hello.rank == 1
        assert joined.peer.here
        assert said == PeerSaid(peer=joined.peer, message=Held(rank=1, step=4))
    assert desk.next() == PeerLeft(peer=joined.peer)


def test_a_line_may_come_in_pieces(desk: Desk) -> None:
    with desk.connect() as stream:
        for byte in hello():
            stream.sendall(bytes([byte]))
        assert isinstance(desk.next(), PeerJoined)


@pytest.mark.parametrize(
    "line",
    [
        hello(token="wrong"),
        hello(token="\ud800"),
        to_line(Held(rank=1, step=4)),  # no Hello first
        b"GET / HTTP/1.1\r\n",
        b'{"kind": ["Hello"]}\n',
        b"[" * 3000 + b"\n",
        b'{"kind": "StepsDone", "rank": 0, "first": 1, "seconds": [1' + b"0" * 400 + b"]}\n",
        b"\xff\xfe\n",
        b"x" * 10_000,  # no end of line
    ],
)
def test_strangers_are_shown_out_and_the_door_stays_open(desk: Desk, line: bytes) -> None:
    with desk.connect() as stream:
        stream.sendall(line)
        assert closed(stream)
    assert desk.quiet()
    with desk.connect() as stream:
        stream.sendall(hello())
        assert isinstance(desk.next(), PeerJoined)


def test_one_who_says_nothing_is_shown_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "HELLO_WITHIN_S", 0.2)
    with desk.connect() as stream:
        assert closed(stream)


def test_messages_reach_their_peer_and_no_other(desk: Desk) -> None:
    with desk.connect() as first, desk.connect() as second:
        first.sendall(hello(rank=0))
        one = desk.next()
        second.sendall(hello(rank=1))
        two = desk.next()
        assert isinstance(one, PeerJoined)
        assert isinstance(two, PeerJoined)
        sent: list[Message] = [Hold(reason="a"), Finish(grace_s=2.0)]
        for message in sent:
            desk.listener.send(two.peer, message)
        lines = second.makefile("rb")
        assert [lines.readline() for _ in sent] == [to_line(m) for m in sent]
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(1)


def test_a_message_to_one_who_left_is_dropped(desk: Desk) -> None:
    with desk.connect() as stream:
        stream.sendall(hello())
        joined = desk.next()
        assert isinstance(joined, PeerJoined)
    assert isinstance(desk.next(), PeerLeft)
    desk.listener.send(joined.peer, Hold(reason="x"))
    assert desk.quiet()


def test_one_who_does_not_read_is_dropped_and_does_not_block_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MOST_UNSENT_BYTES", 1 << 16)
    with desk.connect() as deaf:
        deaf.sendall(hello())
        joined = desk.next()
        assert isinstance(joined, PeerJoined)
        big = Hold(reason="x" * (1 << 20))
        for _ in range(20):
            desk.listener.send(joined.peer, big)
        assert desk.next() == PeerLeft(peer=joined.peer)


def test_closing_sends_what_is_queued() -> None:
    desk = Desk()
    with desk.connect() as stream:
        stream.sendall(hello())
        joined = desk.next()
        assert isinstance(joined, PeerJoined)
        desk.listener.send(joined.peer, Finish(grace_s=1.0))
        desk.listener.close()
        assert stream.makefile("rb").read() == to_line(Finish(grace_s=1.0))


def test_two_hundred_trainers_at_once(desk: Desk) -> None:
    streams = [desk.connect() for _ in range(200)]
    try:
        for rank, stream in enumerate(streams):
            done = StepsDone(rank=rank, first=1, seconds=(0.1,) * 50)
            stream.sendall(hello(rank=rank) + to_line(done))
        events = [desk.next() for _ in range(400)]
        said = {e.message.rank for e in events if isinstance(e, PeerSaid)}
        assert said == set(range(200))
    finally:
        for stream in streams:
            stream.close()


def test_an_agent_finds_the_supervisor_by_any_of_its_addresses(desk: Desk) -> None:
    stream, address = connect_first(candidate_addresses(desk.listener.port), within_s=SOON_S)
    with stream:
        assert address.endswith(f":{desk.listener.port}")
        stream.sendall(hello())
        assert isinstance(desk.next(), PeerJoined)


def test_a_loopback_address_of_another_host_is_never_tried(desk: Desk) -> None:
    elsewhere = f"another-boot;127.0.0.1:{desk.listener.port},localhost:{desk.listener.port}"
    with pytest.raises(LaunchError, match="cannot reach the supervisor"):
        connect_first(elsewhere, within_s=0.1)
    assert desk.quiet()


def test_no_answer_is_an_error_that_names_what_was_tried() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        began = time.monotonic()
        boot_id = candidate_addresses(1).partition(";")[0]
        with pytest.raises(LaunchError, match=f"127.0.0.1:{port}: Connection refused"):
            connect_first(f"{boot_id};127.0.0.1:{port}", within_s=0.6)
        assert time.monotonic() - began < SOON_S
