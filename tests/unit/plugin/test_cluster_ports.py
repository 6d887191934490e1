"""Free ports are free, stay held, and can be taken over by a daemon; who listens where."""

from __future__ import annotations

import random
import socket

import pytest

from sbtrain.cluster.errors import ClusterError
from sbtrain.cluster.ports import address_of, free_ports, listening


def test_held_ports_are_refused_to_others_but_not_to_a_daemon() -> None:
    with free_ports(3, source=random.Random(1)) as ports:
        assert len(set(ports)) == 3
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", ports[0]))
        with socket.socket() as daemon:
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            daemon.bind(("127.0.0.1", ports[0]))
            daemon.listen()
            assert listening()[ports[0]] == {"127.0.0.1"}
            socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close()
        assert ports[1] not in listening(), "a held port is not listened on"


def test_two_searches_never_find_the_same_port() -> None:
    with (
        free_ports(5, source=random.Random(7)) as first,
        free_ports(5, source=random.Random(7)) as second,
    ):
        assert not set(first) & set(second)


def test_too_many_ports_are_an_error() -> None:
    class Stuck(random.Random):
        def randrange(self, *_: int) -> int:  # type: ignore[override]
            return 20001

    with (
        pytest.raises(ClusterError, match="of 2 free TCP ports"),
        free_ports(2, source=Stuck()),
    ):
        pass


def test_addresses() -> None:
    assert address_of("localhost").startswith("127.")
    assert address_of("no-such-host.invalid") == ""
