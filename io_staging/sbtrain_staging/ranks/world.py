"""The ranks of a staging run, one a node: what they say to each other, and how they fail.

A rank that fails tells the others, so that all end at once with the same words. The world
is checked against what the launcher started: a wrong launcher gives every process a world
of its own, and all of them would read the whole source.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sbtrain_staging import errors
from sbtrain_staging.errors import StagingError, WorldError

NODE_VARIABLES = ("SBTRAIN_NODE_NAME", "SLURMD_NODENAME")
LAUNCH_HINT = "start one rank a node: srun --mpi=pmi2 --ntasks-per-node=1 (Open MPI: pmix)"
_SHORTEST_NAP_S = 2e-5
_LONGEST_NAP_S = 2e-3


class Transfer(Protocol):
    """A message under way."""

    def finished(self) -> int | None:
        """The bytes that came, or None while it is under way."""
        ...


class World(Protocol):
    """The ranks of one staging run."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def exchange(self, payload: bytes) -> list[bytes]:
        """Give every rank one payload of every rank; all ranks must call it."""
        ...

    def send(self, data: memoryview, *, to: int, tag: int) -> Transfer: ...

    def receive(self, into: memoryview, *, source: int, tag: int) -> Transfer: ...

    def tell(self, done_bytes: int) -> None:
        """Let rank 0 know how far this rank is."""
        ...

    def told(self) -> Sequence[int]:
        """At rank 0: how far every rank said that it is."""
        ...

    def poll(self) -> None:
        """Raise the error of another rank, where one failed."""
        ...

    def fail(self, error: StagingError) -> None:
        """Let all other ranks raise this error at their next poll."""
        ...

    def leave(self, exit_code: int) -> None:
        """End all ranks; returns only where a plain exit is enough."""
        ...


class Solo:
    """A world of one rank, without MPI."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self._done_bytes = 0

    def exchange(self, payload: bytes) -> list[bytes]:
        return [payload]

    def send(self, data: memoryview, *, to: int, tag: int) -> Transfer:
        raise WorldError(f"there is no rank {to} in a world of one")

    def receive(self, into: memoryview, *, source: int, tag: int) -> Transfer:
        raise WorldError(f"there is no rank {source} in a world of one")

    def tell(self, done_bytes: int) -> None:
        self._done_bytes = done_bytes

    def told(self) -> Sequence[int]:
        return (self._done_bytes,)

    def poll(self) -> None:
        return

    def fail(self, error: StagingError) -> None:
        return

    def leave(self, exit_code: int) -> None:
        return


class Nap:
    """Waiting without holding a core: short sleeps that grow while nothing happens."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = _SHORTEST_NAP_S

    def reset(self) -> None:
        self._next_s = _SHORTEST_NAP_S

    def take(self) -> None:
        time.sleep(self._next_s)
        self._next_s = min(_LONGEST_NAP_S, 1.5 * self._next_s)


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node as the launcher knows it."""
    for variable in NODE_VARIABLES:
        if environ.get(variable):
            return environ[variable]
    return socket.gethostname()


def together(world: World, step: Callable[[], bytes]) -> list[bytes]:
    """Do a step on every rank; what each came to, or the first rank's error on all.

    Raises:
        StagingError: the step failed here or elsewhere; the same error on every rank.
    """
    try:
        outcome = b"+" + step()
    except StagingError as error:
        outcome = b"-" + to_line(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        outcome = b"-" + to_line(StagingError(f"{where}{error.strerror or error}"))
    outcomes = world.exchange(outcome)
    for found in outcomes:
        if found[:1] == b"-":
            raise from_line(found[1:])
    return [found[1:] for found in outcomes]


def to_line(error: StagingError) -> bytes:
    return json.dumps([type(error).__name__, error.message, error.hint]).encode()


def from_line(line: bytes) -> StagingError:
    """The error that another rank sent; of the plain kind where its kind is not known."""
    name, message, hint = json.loads(line)
    kind = getattr(errors, name, StagingError)
    if not (isinstance(kind, type) and issubclass(kind, StagingError)):
        kind = StagingError
    return kind(message, hint=hint)


def user_name(environ: Mapping[str, str]) -> str:
    """The user's name, also where the node's account database does not know the user."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER") or str(os.getuid())
