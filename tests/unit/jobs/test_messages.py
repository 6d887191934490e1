"""Messages come back from a line as they went in; anything else is refused."""

import pytest

from sbtrain_jobs.wire.messages import Held, PhaseDone, Ready, from_line, to_line


@pytest.mark.parametrize(
    "message",
    [
        Held(rank=1, step=7),
        Ready(agent=0, host="10.0.0.1", ports=(4001, 4002), data=("/tmp/n0/d.h5",)),
        PhaseDone(rank=0, name="evaluate", seconds=1.5, metrics={"accuracy": 0.98}),
    ],
)
def test_round_trip(message: Held | Ready | PhaseDone) -> None:
    line = to_line(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"kind": "Evil"}', b'{"kind": "Held", "rank": 1}']
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_line(line)
