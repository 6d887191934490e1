"""What a command says on stderr beside its answer: notes, and warnings that may be errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from sbtrain_perf.errors import RequestError


def tell(notes: Iterable[str], *, who: str) -> None:
    sys.stderr.writelines(f"{who}: note: {note}\n" for note in notes)


def warn(messages: Sequence[str], *, who: str, strict: bool) -> None:
    """Say what would otherwise pass unseen.

    Raises:
        RequestError: something was said, and --train-strict makes an error of it.
    """
    for message in messages:
        sys.stderr.write(f"{who}: warning: {message}\n")
    if messages and strict:
        raise RequestError(
            "--train-strict: warnings are errors",
            hint="mend what the warnings name, or leave --train-strict out",
        )
