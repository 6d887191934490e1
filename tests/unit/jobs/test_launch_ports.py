"""Ports that are held until the trainer's server has them, by real sockets and TensorFlow."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from preloaded import PreloadedParent
from sbtrain_jobs.node_agent.held_port import HeldPort
from sbtrain_jobs.process import CommandResult

REUSE_PORT, REUSE_ADDRESS = socket.SO_REUSEPORT, socket.SO_REUSEADDR


def listen(port: int, *options: int) -> socket.socket:
    stream = socket.socket()
    try:
        for option in options:
            stream.setsockopt(socket.SOL_SOCKET, option, 1)
        stream.bind(("", port))
        stream.listen()
    except OSError:
        stream.close()
        raise
    return stream


@pytest.mark.parametrize("options", [(), (REUSE_ADDRESS,)])
def test_a_foreign_server_is_refused(options: tuple[int, ...]) -> None:
    with HeldPort() as port, pytest.raises(OSError, match="in use"):
        listen(port.number, *options)


def test_a_server_that_shares_gets_every_connection() -> None:
    with HeldPort() as port, listen(port.number, REUSE_PORT) as server:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port.number), timeout=5):
                accepted, _ = server.accept()
                accepted.close()


def test_nothing_answers_while_the_port_is_only_held() -> None:
    with HeldPort() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.number), timeout=5)


def test_a_shared_port_lets_in_a_server_that_only_reuses_addresses() -> None:
    with HeldPort() as port:
        port.share()
        with pytest.raises(OSError, match="in use"):
            listen(port.number)
        with listen(port.number, REUSE_ADDRESS), pytest.raises(OSError, match="in use"):
            listen(port.number, REUSE_ADDRESS)


def test_ten_thousand_concurrent_launches_never_clash() -> None:
    def launch(_: int) -> list[int]:
        held = [HeldPort() for _ in range(10)]
        numbers = [port.number for port in held]
        for port in held:
            port.release()
        return numbers

    with ThreadPoolExecutor(50) as pool:
        for numbers in pool.map(launch, range(1000)):
            assert len(set(numbers)) == 10
    together = [HeldPort() for _ in range(800)]
    try:
        assert len({port.number for port in together}) == len(together)
    finally:
        for port in together:
            port.release()


SERVE = """
import os, socket, sys
import tensorflow as tf
port = int(sys.argv[1])
cluster = {"worker": [f"127.0.0.1:{port}"]}
server = tf.distribute.Server(cluster, job_name="worker", task_index=0)
with socket.create_connection(("127.0.0.1", port), timeout=5):
    print("serves", flush=True)
os._exit(0)
"""


@pytest.mark.tensorflow
def test_tensorflow_serves_on_a_held_port(
    tmp_path: Path, with_tensorflow: PreloadedParent
) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SERVE)

    def serve(port: HeldPort, *, reuse: str) -> CommandResult:
        environ = {**os.environ, "TF_GRPC_REUSE_PORT": reuse}
        return with_tensorflow.run(script, str(port.number), env=environ, timeout_s=120)

    with HeldPort() as port:
        shared = serve(port, reuse="true")
        assert shared.stdout == "serves\n", shared.stderr[-2000:]
        alone = serve(port, reuse="false")
        assert alone.stdout == ""
        assert "UnknownError" in alone.stderr
