"""Random trees of HDF5 files that refer to each other, through links of the file system too:
what is staged reads as the source did, or nothing is staged."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

from sbtrain_staging.commandline import main
from sbtrain_staging.errors import SourceError
from sbtrain_staging.reports.run_report import read_report

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

NAMES = ("rows", "virtual", "of virtual", "link")


def refer(path: Path, name: str, chance: random.Random) -> None:
    """Have a file refer to another by this name, in one of three ways."""
    made, wanted = chance.choice((("virtual", "rows"), ("of virtual", "virtual"), ("link", "")))
    with h5py.File(path, "a") as file:
        if made in file:
            return
        if made == "link":
            file[made] = h5py.ExternalLink(name, "/rows")
            return
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource(name, wanted, (10,))
        file.create_virtual_dataset(made, layout)


def name_of(other: Path, path: Path, chance: random.Random) -> str:
    relative = os.path.relpath(other, path.parent)
    really = os.path.relpath(other, path.parent.resolve())
    usual = (relative, relative, relative, relative, f"./{relative}", really)
    return chance.choice((*usual, str(other), "none.h5"))


def write_tree(place: Path, chance: random.Random) -> list[Path]:
    """Files in a tree and beside it, links, and references from one to another."""
    within = [place / "tree", place / "tree" / "a", place / "tree" / "a" / "b"]
    outside = [place, place / "out"]
    for folder in (*within, *outside):
        folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(chance.randrange(2, 7)):
        folder = chance.choice(within if chance.random() < 0.75 else outside)
        path = folder / f"f{number}{chance.choice(('.h5', '.nc', ''))}"
        with h5py.File(path, "w", userblock_size=chance.choice((0, 0, 512))) as file:
            file["rows"] = numpy.arange(10) + 100 * number + 1
        files.append(path)
    for number in range(chance.randrange(3)):
        link = chance.choice(within) / f"link{number}{chance.choice(('.h5', ''))}"
        target = chance.choice((*files, *within, *outside))
        absolute = chance.random() < 0.3
        link.symlink_to(target if absolute else os.path.relpath(target, link.parent))
        if target in files:
            files.append(link)
    for _ in range(chance.randrange(5)):
        path, other = chance.choice(files), chance.choice(files)
        with contextlib.suppress(OSError):
            refer(path, name_of(other, path, chance), chance)
    return files


def values(root: Path) -> dict[tuple[str, str], object]:
    """All rows of all files below a folder, or of one file."""
    found: dict[tuple[str, str], object] = {}
    for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if not path.is_file():
            continue
        with h5py.File(path, "r", locking=False) as file:
            for name in NAMES:
                key = (str(path.relative_to(root)), name)
                try:
                    found[key] = file[name][...].tolist()
                except (KeyError, OSError):
                    found[key] = "nothing"
    return found


@pytest.mark.parametrize(
    "trials", [60, pytest.param(3000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_what_is_staged_reads_as_its_source(
    tmp_path: Path, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    chance = random.Random(20261206)
    codes = []
    for trial in range(trials):
        place, scratch = tmp_path / "place", tmp_path / "scratch"
        scratch.mkdir()
        files = write_tree(place, chance)
        source = place / "tree" if chance.random() < 0.7 else chance.choice(files)
        before = values(source)
        report = tmp_path / "report.json"
        words = ["--to", str(scratch), "--key", "k", "--report", str(report), str(source)]
        codes.append(main(["run", *words], {}))
        place.rename(tmp_path / "away")
        if codes[-1] == 0:
            after = values(Path(read_report(report).nodes[0].paths[0]))
            assert {key: after.get(key) for key in before} == before, trial
        for folder in ("away", "scratch"):
            shutil.rmtree(tmp_path / folder)
    assert set(codes) == {0, SourceError.exit_code}
    assert codes.count(0) > trials // 3
