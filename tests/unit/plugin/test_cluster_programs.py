"""Finding Slurm's programs, and what is said where they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbtrain.cluster.errors import ClusterError, SlurmNotInstalledError
from sbtrain.cluster.programs import PACKAGES, find_programs, release_of, version_in


def make_programs(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho slurm-wlm 24.11.5\n")
        (folder / name).chmod(0o755)


def test_finds_all_and_the_version(tmp_path: Path) -> None:
    make_programs(tmp_path, list(PACKAGES))
    programs = find_programs({"PATH": "/nowhere"}, accounting=False, folders=[str(tmp_path)])
    assert programs.paths["slurmctld"] == str(tmp_path / "slurmctld")
    assert programs.search_path == f"/nowhere{os.pathsep}{tmp_path}"
    assert programs.version == "24.11.5"


def test_names_what_is_missing_and_the_packages_that_bring_it(tmp_path: Path) -> None:
    make_programs(tmp_path, [name for name in PACKAGES if name not in ("munged", "slurmd")])
    with pytest.raises(SlurmNotInstalledError) as caught:
        find_programs({"PATH": str(tmp_path)}, accounting=False, folders=[])
    assert caught.value.message == "not installed on this host: slurmd, munged"
    assert caught.value.hint.endswith(" slurmd munge")
    assert caught.value.exit_code == 51


@pytest.mark.parametrize(
    ("euid", "begins"), [(0, "run: apt-get install"), (1000, "ask the administrator")]
)
def test_says_who_can_install_it(
    monkeypatch: pytest.MonkeyPatch, euid: int, begins: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    with pytest.raises(SlurmNotInstalledError) as caught:
        find_programs({"PATH": "/nowhere"}, accounting=True, folders=[])
    assert caught.value.hint.startswith(begins)
    for package in (
        "slurmctld",
        "slurmd",
        "slurm-client",
        "munge",
        "slurmdbd",
        "mariadb-server",
    ):
        assert package in caught.value.hint
    assert "slurm-wlm-mysql-plugin" in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("said", "release"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5-1\n", (24, 11)), ("slurm 26.05", (26, 5))],
)
def test_reads_versions(said: str, release: tuple[int, int]) -> None:
    assert release_of(version_in(said)) == release


def test_a_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ClusterError, match="version"):
        version_in("who knows")
