"""The commands beside `run`: what they print, and what they remove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.commandline import bytes_of, main
from sbtrain_staging.errors import SourceError
from sbtrain_staging.sources.scan import scan
from staging_trees import write_file

ENVIRON = {"SLURMD_NODENAME": "c1"}


@pytest.fixture
def to(tmp_path: Path) -> str:
    (tmp_path / "scratch").mkdir()
    return f"{tmp_path}/scratch/%n"


def listed(to: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["status", "--to", to, "--json"], ENVIRON) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_status_and_clean(to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(to, capsys) == []
    files = [write_file(tmp_path / name, 3000) for name in ("a.h5", "b.h5")]
    for key, file in zip("xy", files, strict=True):
        assert main(["run", "--to", to, "--key", key, str(file)], ENVIRON) == 0
    assert [copy["state"] for copy in listed(to, capsys)] == ["ready", "ready"]
    assert main(["clean", "--to", to, "--all"], ENVIRON) == 0
    assert len(listed(to, capsys)) == 2
    assert main(["clean", "--to", to, "--key", "x", "--all"], ENVIRON) == 0
    assert [copy["source"] for copy in listed(to, capsys)] == [str(files[1])]
    assert main(["clean", "--to", to, "--key", "y", str(files[1])], ENVIRON) == 0
    assert listed(to, capsys) == []
    main(["status", "--to", to], ENVIRON)
    assert capsys.readouterr().out == "c1: nothing is staged\n"


def test_an_unfinished_copy_is_shown(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_file(tmp_path / "a.h5", 40 << 20)
    assert main(["run", "--to", to, "--key", "k", str(file)], ENVIRON) == 0
    manifest = scan(file)
    folder = NodeCache(tmp_path / "scratch" / "c1").partial / manifest.version
    folder.mkdir()
    (folder / "manifest").write_bytes(manifest.to_bytes())
    (folder / "journal").write_bytes(b"\0" * 20)
    states = {copy["state"]: copy for copy in listed(to, capsys)}
    assert states["unfinished"]["held_bytes"] == 16 << 20
    main(["status", "--to", to], ENVIRON)
    assert "unfinished, 16.8 MB of 41.9 MB" in capsys.readouterr().out


def test_plan_says_what_would_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_file(tmp_path / "a.h5", 10 << 20)
    rates = ["--source-rate", "1M", "--link-rate", "10M"]
    assert main(["plan", "--nodes", "4", *rates, "--json", str(file)], ENVIRON) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["data_bytes"] == 10 << 20
    assert found["replicate_s"] == pytest.approx(10, rel=0.1)
    assert found["first_s"] < 1
    assert main(["plan", "--nodes", "4", str(file)], ENVIRON) == 0
    assert "read once, to 4 nodes" in capsys.readouterr().out
    absent = str(tmp_path / "no")
    assert main(["plan", "--nodes", "4", absent], ENVIRON) == SourceError.exit_code


def test_a_scratch_that_cannot_be_looked_at_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for command in ("status", "clean"):
        assert main([command, "--to", f"{tmp_path}/file/%n"], ENVIRON) == 32
        assert "Not a directory" in capsys.readouterr().err


def test_wrong_usage_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "--to", "/s", "--key", "k", "x"]
    wrong = (
        [],
        ["run"],
        [*run, "--quota", "9Q"],
        [*run, "--readers", "0"],
        ["plan", "--node", "2", "x"],
        ["plan", "--nodes", "2", "--link-rate", "0", "x"],
    )
    for argv in wrong:
        with pytest.raises(SystemExit) as ended:
            main(argv, ENVIRON)
        assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1), ("2K", 2048), ("1.5GiB", 3 << 29), ("1tb", 1 << 40)]
)
def test_sizes(text: str, expected: int) -> None:
    assert bytes_of(text) == expected
