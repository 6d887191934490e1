"""Ports that are held from before their number is published until their trainer ends.

The kernel chooses (port 0), so no two trainers of one host can be given the same port. The
holder never listens: with SO_REUSEPORT set on it, a server of the same user that sets it
too (gRPC does, so TensorFlow does) binds and gets every connection, while a process that
does not is refused.
"""

from __future__ import annotations

import socket
from types import TracebackType


class HeldPort:
    """One TCP port of this host, on all its IPv4 addresses."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind(("", 0))
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def share(self) -> None:
        """Also let in a server that sets SO_REUSEADDR alone, as torch's store does.

        Called when the trainer starts: from then on another process that sets SO_REUSEADDR
        and asks for this very number could come first; the kernel itself gives it to nobody.
        """
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def release(self) -> None:
        self._socket.close()

    def __enter__(self) -> HeldPort:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
