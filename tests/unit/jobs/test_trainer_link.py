"""The trainer's line to the supervisor, over real sockets, with the supervisor played."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from played_supervisor import PlayedSupervisor, eventually
from sbtrain_jobs.training.step_gate import StepGate
from sbtrain_jobs.training.trainer_link import UNSENT_LIMIT_BYTES, TrainerLink
from sbtrain_jobs.wire.messages import (
    Held,
    Hello,
    Hold,
    PhaseDone,
    StepsDone,
    StopAfter,
    to_line,
)

HELLO = Hello(who="trainer", token="t", node=0, node_name="c1", rank=3, pid=7)


@pytest.fixture
def supervisor() -> Iterator[PlayedSupervisor]:
    played = PlayedSupervisor()
    yield played
    played.close()


@contextlib.contextmanager
def linked(
    supervisor: PlayedSupervisor, gate: StepGate, stops: list[int] | None = None
) -> Iterator[TrainerLink]:
    link = TrainerLink(
        address=supervisor.address,
        hello=HELLO,
        gate=gate,
        on_stop=None if stops is None else stops.append,
    )
    try:
        supervisor.accept()
        assert supervisor.hear() == HELLO
        yield link
    finally:
        link.close(within_s=0.2)


def test_hold_is_answered_while_the_main_thread_computes(
    supervisor: PlayedSupervisor,
) -> None:
    gate = StepGate()
    assert gate.enter(41)
    with linked(supervisor, gate):
        supervisor.say(Hold(reason="preempted"))
        assert supervisor.hear() == Held(rank=3, step=41)  # this thread never helped


def test_no_later_step_starts_until_the_last_one_is_agreed(
    supervisor: PlayedSupervisor,
) -> None:
    gate = StepGate()
    gate.enter(41)
    entered: list[tuple[int, bool]] = []

    def train() -> None:
        for step in (42, 43, 44):
            entered.append((step, gate.enter(step)))

    with linked(supervisor, gate, stops := []):
        supervisor.say(Hold(reason="preempted"))
        assert supervisor.hear() == Held(rank=3, step=41)
        trainer = threading.Thread(target=train)
        trainer.start()
        time.sleep(0.1)
        assert entered == []
        supervisor.say(StopAfter(step=43))
        trainer.join(30)
        assert entered == [(42, True), (43, True), (44, False)]
        assert stops == [43]
        assert gate.step == 43


def test_the_supervisors_death_releases_the_hold_and_is_said_once(
    supervisor: PlayedSupervisor, caplog: pytest.LogCaptureFixture
) -> None:
    gate = StepGate()
    gate.enter(1)
    with caplog.at_level(logging.WARNING), linked(supervisor, gate) as link:
        supervisor.say(Hold(reason="preempted"))
        assert supervisor.hear() == Held(rank=3, step=1)
        supervisor.close()
        assert gate.enter(2)
        eventually(lambda: not link.alive)
        for step in range(3, 100):
            link.send(StepsDone(rank=3, first=step, seconds=(0.1,)))
            assert gate.enter(step)
    said = [r.getMessage() for r in caplog.records if "lost the supervisor" in r.getMessage()]
    assert len(said) == 1
    assert "can no longer be told when to stop" in said[0]


def test_nobody_listening_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gate = StepGate()
    link = TrainerLink(address=f"127.0.0.1:{port}", hello=HELLO, gate=gate)
    eventually(lambda: not link.alive)
    assert gate.enter(1)
    link.close()
    assert "can no longer be told when to stop" in caplog.text


@pytest.mark.parametrize("line", [b"not json\n", b'{"kind": "Hold"}\n', b"x" * (2 << 20)])
def test_nonsense_from_the_line_ends_the_link_alone(
    supervisor: PlayedSupervisor, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    gate = StepGate()
    with linked(supervisor, gate) as link:
        assert supervisor.connection is not None
        with contextlib.suppress(OSError):
            supervisor.connection.sendall(line)
        eventually(lambda: not link.alive)
        assert gate.enter(1)
    assert caplog.text.count("lost the supervisor") == 1


def test_messages_sent_before_close_all_arrive(supervisor: PlayedSupervisor) -> None:
    with linked(supervisor, StepGate()) as link:
        sent = [
            PhaseDone(rank=3, name="checkpoint", seconds=0.1, step=n, metrics={"pad": 1.0})
            for n in range(3000)
        ]
        for message in sent:
            link.send(message)
        closer = threading.Thread(target=link.close, kwargs={"within_s": 30.0})
        closer.start()
        assert [supervisor.hear() for _ in sent] == sent
        with pytest.raises(EOFError):
            supervisor.hear()
        supervisor.close()
        closer.join(30)
        assert not closer.is_alive()


def test_a_supervisor_that_does_not_read_never_blocks_training(
    supervisor: PlayedSupervisor,
) -> None:
    with linked(supervisor, StepGate()) as link:
        batch = StepsDone(rank=3, first=1, seconds=(0.123456,) * 50_000)
        began = time.monotonic()
        while time.monotonic() - began < 5 and len(link._unsent) < UNSENT_LIMIT_BYTES:
            link.send(batch)
        for _ in range(10):
            link.send(batch)
        assert len(link._unsent) < UNSENT_LIMIT_BYTES + 2 * len(to_line(batch))
        link.send(last := PhaseDone(rank=3, name="checkpoint", seconds=1.0, step=9))
        assert link._unsent.endswith(to_line(last))


def test_a_hold_that_is_never_resolved_is_given_up() -> None:
    overdue: list[bool] = []
    gate = StepGate(hold_limit_s=0.05, on_overdue=lambda: overdue.append(True))
    gate.enter(1)
    assert gate.hold() == 1
    assert gate.enter(2)
    assert gate.enter(3)
    assert overdue == [True]


def test_a_second_agreement_changes_nothing() -> None:
    gate = StepGate()
    gate.finish_at(5)
    gate.finish_at(9)
    assert gate.hold() == 0
    assert gate.enter(5)
    assert not gate.enter(6)
