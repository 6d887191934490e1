"""The content hash of staging: xxh3-128, from the xxhash package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Union

from sbtrain_perf.extras import install_extras
from sbtrain_staging.errors import StagingError

DIGEST_BYTES = 16
Buffer = Union[bytes, bytearray, memoryview]


class Hasher(Protocol):
    """A hash that grows with the data."""

    def update(self, data: Buffer, /) -> None: ...

    def digest(self) -> bytes: ...


def _missing() -> StagingError:
    return StagingError(
        "staging needs the Python package 'xxhash', which is not installed",
        hint=install_extras("staging"),
    )


def new_hasher() -> Hasher:
    """Raises StagingError where xxhash is not installed."""
    try:
        from xxhash import xxh3_128
    except ImportError:
        raise _missing() from None
    hasher: Hasher = xxh3_128()
    return hasher


def digest(data: Buffer) -> bytes:
    """The 16 bytes of the hash of one buffer."""
    try:
        from xxhash import xxh3_128_digest
    except ImportError:
        raise _missing() from None
    result: bytes = xxh3_128_digest(data)
    return result


def digest_of_parts(parts: Iterable[bytes]) -> bytes:
    """The hash of a file from the hashes of its pieces: their own where there is one,
    else the hash of them all in a row."""
    found = list(parts)
    return found[0] if len(found) == 1 else digest(b"".join(found))
