"""The command line of `sbtrainctl cluster`, without any Slurm."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sbtrain.cluster.errors import ClusterError, SlurmNotInstalledError
from sbtrain.commands import cluster
from sbtrain.commands.arguments import Parser


def parse(*argv: str) -> argparse.Namespace:
    parser = Parser()
    cluster.add_parser(parser.add_subparsers(dest="command", required=True))
    return parser.parse_args(["cluster", *argv])


def test_defaults() -> None:
    args = parse("up")
    assert args.folder == Path(".sbtrain/cluster")
    assert args.nodes is None
    assert args.accounting is None


@pytest.mark.parametrize("count", ["0", "65", "four"])
def test_refuses_senseless_node_counts(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("up", "--nodes", count)
    assert caught.value.code == 2
    assert "not a whole number from 1 to 64" in capsys.readouterr().err


def test_a_folder_where_nothing_was_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ("--folder", str(tmp_path / "c"))
    assert cluster.run(parse("status", *folder)) == 1
    assert capsys.readouterr().out == (
        f"down in {tmp_path}/c\nstart or mend it: sbtrainctl cluster up --folder {tmp_path}/c\n"
    )
    assert cluster.run(parse("status", "--json", *folder)) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "down"
    assert cluster.run(parse("down", *folder)) == 0
    assert capsys.readouterr().out == "nothing ran\n"
    with pytest.raises(ClusterError) as caught:
        cluster.run(parse("env", *folder))
    assert caught.value.hint == f"start it: sbtrainctl cluster up --folder {tmp_path}/c"
    assert not (tmp_path / "c").exists(), "looking makes nothing"


def test_up_without_slurm_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbtrain.cluster import lifecycle

    def nothing(*_: object, **__: object) -> None:
        raise SlurmNotInstalledError("not installed on this host: munged", hint="run: ...")

    monkeypatch.setattr(lifecycle, "find_programs", nothing)
    with pytest.raises(SlurmNotInstalledError):
        cluster.run(parse("up", "--folder", str(tmp_path / "c")))
    assert not (tmp_path / "c").exists()


def test_the_parser_needs_no_heavy_module() -> None:
    script = (
        "import sys; import sbtrain.commands.cluster;"
        "print([m for m in sys.modules if m.startswith('sbtrain.cluster')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    assert said.stdout.strip() == "[]"
