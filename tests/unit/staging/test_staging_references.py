"""HDF5 files that refer to others: taken where all is in one tree, refused by name else."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sbtrain_staging.commandline import main
from sbtrain_staging.errors import SourceError
from sbtrain_staging.reports.run_report import read_report
from staging_trees import write_file

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")


def write_rows(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["x"] = numpy.arange(1, 11)
    return path


def write_virtual(path: Path, *names: str, group: str = "g/v", block: int = 0) -> Path:
    """A virtual data set over ten rows of each of these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = h5py.VirtualLayout((10 * len(names),), "i8")
    for number, name in enumerate(names):
        layout[10 * number : 10 * number + 10] = h5py.VirtualSource(name, "x", (10,))
    with h5py.File(path, "w", userblock_size=block) as file:
        file.create_virtual_dataset(group, layout)
    return path


def write_numbered(path: Path, name: str) -> Path:
    """A virtual data set that goes on for as long as there are files of that pattern."""
    path.parent.mkdir(parents=True, exist_ok=True)
    space = h5py.h5s.create_simple((10,), (h5py.h5s.UNLIMITED,))
    space.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), (10,), (10,))
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_virtual(space, name.encode(), b"x", h5py.h5s.create_simple((10,)))
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, made)
    return path


def write_link(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["deep/link"] = h5py.ExternalLink(name, "/x")
    return path


def write_raw(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10,), "i8", external=[(name, 0, 80)])
    return path


def of_test(source: Path) -> Path:
    """The folder that the fixture below marked."""
    return next(path for path in source.parents if (path / ".of-test").exists())


def stage(source: Path, *extra: str) -> int:
    folder = of_test(source)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    report = folder / "report.json"
    words = ["--to", str(scratch), "--key", "k", "--report", str(report), *extra, str(source)]
    return main(["run", *words], {})


def copy_of(source: Path) -> Path:
    assert stage(source) == 0
    report = of_test(source) / "report.json"
    return Path(read_report(report).nodes[0].paths[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where stage() puts its scratch and report."""
    (tmp_path / ".of-test").touch()
    return tmp_path


Make = Callable[[Path], Path]
REFUSED: dict[str, tuple[Make, str]] = {
    "beside": (lambda f: write_virtual(f / "v.h5", "a.h5"), "a.h5"),
    "in a block": (lambda f: write_virtual(f / "v.h5", "a.h5", block=1024), "a.h5"),
    "in a block, another name": (lambda f: write_virtual(f / "v", "a.h5", block=8192), "a.h5"),
    "in a large block": (lambda f: write_virtual(f / "v.h5", "a.h5", block=1 << 20), "a.h5"),
    "another name": (lambda f: write_virtual(f / "rows.dat", "a.h5"), "a.h5"),
    "below": (lambda f: write_virtual(f / "v.h5", "sub/b.h5"), "sub/b.h5"),
    "above": (lambda f: write_virtual(f / "tree" / "v.h5", "../a.h5").parent, "a.h5"),
    "absolute": (lambda f: write_virtual(f / "v.h5", str(f / "a.h5")), "a.h5"),
    "one of two": (lambda f: write_virtual(f / "tree/v", "b.h5", "../a.h5").parent, "a.h5"),
    "missing": (lambda f: write_virtual(f / "v.h5", "c.h5"), "c.h5"),
    "absolute, in the tree": (
        lambda f: write_virtual(f / "tree/v.h5", str(f / "tree/b.h5")).parent,
        "tree/b.h5",
    ),
    "numbered": (lambda f: write_numbered(f / "v.h5", "part-%b.h5"), "part-0.h5"),
    "numbered, none": (lambda f: write_numbered(f / "v.h5", "none-%b"), "none-%b"),
    "link": (lambda f: write_link(f / "v.h5", "a.h5"), "a.h5"),
    "link out of a tree": (lambda f: write_link(f / "tree/v.h5", "../a.h5").parent, "a.h5"),
    "absolute link": (lambda f: write_link(f / "v.h5", str(f / "a.h5")), "a.h5"),
    "raw": (lambda f: write_raw(f / "v.h5", "raw.bin"), "raw.bin"),
    "raw, absolute": (lambda f: write_raw(f / "v.h5", str(f / "raw.bin")), "raw.bin"),
    "raw in a tree": (lambda f: write_raw(f / "tree/v.h5", "raw.bin").parent, "raw.bin"),
    "by a detour": (
        lambda f: write_virtual(f / "tree/v.h5", "../tree/b.h5").parent,
        "tree/b.h5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_lies_outside_is_named(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.h5", "sub/b.h5", "part-0.h5", "part-1.h5", "tree/b.h5"):
        write_rows(folder / name)
    write_file(folder / "raw.bin", 80)
    make, named = REFUSED[case]
    assert stage(make(folder)) == SourceError.exit_code
    said = capsys.readouterr().err
    assert named in said
    assert "hint: " in said
    assert "h5repack" in said
    assert list((folder / "scratch").rglob("data/*")) == []


def test_the_hint_names_a_folder_that_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder / "set" / "rows" / "a.h5")
    write_virtual(folder / "set" / "index" / "v.h5", "../rows/a.h5")
    assert stage(folder / "set" / "index" / "v.h5") == SourceError.exit_code
    said = capsys.readouterr().err
    assert f"the folder that holds both, {folder}/set, and open index/v.h5 in it" in said
    copy = copy_of(folder / "set")
    (folder / "set").rename(folder / "away")
    with h5py.File(copy / "index" / "v.h5") as file:
        assert list(file["g/v"]) == list(range(1, 11))


def test_a_tree_that_holds_all_is_staged(folder: Path) -> None:
    tree = folder / "tree"
    write_rows(tree / "a.h5")
    write_rows(tree / "sub" / "b.h5")
    for number in range(3):
        write_rows(tree / f"part-{number}.h5")
    write_virtual(tree / "v.h5", "a.h5", "sub/b.h5", "./sub/../a.h5")
    write_virtual(tree / "sub" / "nested.h5", "../a.h5", "b.h5")
    write_numbered(tree / "numbered.h5", "part-%b.h5")
    write_link(tree / "link.h5", "sub/b.h5")
    write_link(tree / "nowhere.h5", "no.h5")
    write_virtual(tree / "twice.h5", "sub/nested.h5")
    (tree / "alias").symlink_to("sub")
    write_virtual(tree / "by-alias.h5", "alias/b.h5")
    (tree / "other.h5").write_bytes(b"of another kind")
    (tree / "torn.h5").write_bytes((tree / "a.h5").read_bytes()[:300])
    copy = copy_of(tree)
    tree.rename(folder / "away")
    rows = list(range(1, 11))
    for name in ("v.h5", "sub/nested.h5", "by-alias.h5"):
        with h5py.File(copy / name) as file:
            assert list(file["g/v"]) == rows * (len(file["g/v"]) // 10)
    with h5py.File(copy / "numbered.h5") as file:
        assert list(file["v"]) == 3 * rows
    with h5py.File(copy / "link.h5") as file:
        assert list(file["deep/link"]) == rows


LEFT_OPEN = """
import os, sys, h5py
with h5py.File(sys.argv[1], "w", libver="latest") as file:
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:] = h5py.VirtualSource("a.h5", "x", (10,))
    file.create_virtual_dataset("v", layout)
file = h5py.File(sys.argv[1], "r+", libver="latest")
if sys.argv[2] == "swmr":
    file.swmr_mode = True
file.flush()
os._exit(0)
"""


@pytest.mark.parametrize(("mode", "said"), [("swmr", "/a.h5 (v)"), ("write", "h5clear -s")])
def test_a_file_that_its_writer_left_open_is_looked_into(
    folder: Path, mode: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder / "a.h5")
    for path in (folder / "v.h5", folder / "tree" / "v.h5"):
        path.parent.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-c", LEFT_OPEN, str(path), mode], check=True)
    write_rows(folder / "tree" / "a.h5")
    with pytest.raises(OSError, match="already open for"), h5py.File(folder / "v.h5", "r"):
        pass
    assert stage(folder / "v.h5") == SourceError.exit_code
    assert said in capsys.readouterr().err
    assert stage(folder / "tree") == (0 if mode == "swmr" else SourceError.exit_code)


@pytest.mark.parametrize("harmed", ["group", "data"])
def test_what_cannot_be_looked_at_is_named(
    folder: Path, harmed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The virtual data set comes behind it, and would be read as zeros."""
    write_rows(folder / "a.h5")
    path = write_virtual(folder / "v.h5", "a.h5", group="z/v")
    with h5py.File(path, "r+") as file:
        file["group/deep"] = 1
        file["data"] = 2
        at = h5py.h5o.get_info(file[harmed].id).addr
    with path.open("r+b") as raw:
        raw.seek(at)
        raw.write(b"\xff" * 16)
    assert stage(path) == SourceError.exit_code
    said = capsys.readouterr().err
    assert f"{path} may refer to other files" in said
    assert "cannot be read" in said


def test_a_link_that_hdf5_finds_in_the_current_folder_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder / "here" / "shared.h5")
    write_link(folder / "tree" / "v.h5", "shared.h5")
    monkeypatch.chdir(folder / "here")
    with h5py.File(folder / "tree" / "v.h5") as file:
        assert list(file["deep/link"]) == list(range(1, 11))
    assert stage(folder / "tree") == SourceError.exit_code
    assert f"{folder}/here/shared.h5" in capsys.readouterr().err
    monkeypatch.chdir(folder)
    assert stage(folder / "tree") == 0
    (folder / "here" / "alias.h5").symlink_to("../tree/v.h5")
    assert stage(folder / "here" / "alias.h5") == SourceError.exit_code


def test_a_file_refers_to_itself(folder: Path) -> None:
    path = write_rows(folder / "v.h5")
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:] = h5py.VirtualSource(".", "x", (10,))
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("v", layout)
    with h5py.File(copy_of(path)) as file:
        assert list(file["v"]) == list(range(1, 11))


def test_a_file_that_is_staged_under_another_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And refers to itself by its own."""
    with h5py.File(write_rows(folder / "v.h5"), "r+") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        space = h5py.h5s.create_simple((10,))
        made.set_virtual(space, b"v.h5", b"x", space)
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, made)
    (folder / "alias.h5").symlink_to("v.h5")
    assert stage(folder / "alias.h5") == SourceError.exit_code
    assert "v.h5" in capsys.readouterr().err
    with h5py.File(copy_of(folder / "v.h5")) as file:
        assert list(file["v"]) == list(range(1, 11))


def test_a_link_of_the_file_system_hides_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder / "other" / "a.h5")
    write_virtual(folder / "other" / "v.h5", "a.h5")
    (folder / "tree").mkdir()
    (folder / "tree" / "v.h5").symlink_to("../other/v.h5")
    assert stage(folder / "tree") == SourceError.exit_code
    assert f"{folder}/other/a.h5" in capsys.readouterr().err
    (folder / "alias.h5").symlink_to("other/v.h5")
    assert stage(folder / "alias.h5") == SourceError.exit_code
    # A link within the tree, from whose place a name leads out of it.
    (folder / "tree" / "v.h5").unlink()
    write_link(folder / "tree" / "v.h5", "../../other/a.h5")
    (folder / "tree" / "deep").mkdir()
    (folder / "tree" / "deep" / "v.h5").symlink_to("../v.h5")
    assert stage(folder / "tree") == SourceError.exit_code
    (folder / "tree" / "deep" / "v.h5").unlink()
    # Into the tree, but from where the file lies: a copy has it elsewhere.
    write_rows(folder / "tree" / "b.h5")
    (folder / "tree" / "v.h5").unlink()
    (folder / "tree" / "w.h5").symlink_to("../other/w.h5")
    write_virtual(folder / "other" / "w.h5", "../tree/b.h5")
    assert stage(folder / "tree") == SourceError.exit_code


def test_parts_of_a_tree_may_not_refer_to_each_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder / "tree" / "a.h5")
    write_virtual(folder / "tree" / "v.h5", "a.h5")
    assert stage(folder / "tree", "--mode", "shard") == SourceError.exit_code
    assert "may come to another node" in capsys.readouterr().err
    assert stage(folder / "tree", "--mode", "stream") == 0


def test_of_many_files_those_with_a_name_of_hdf5_are_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbtrain_staging.formats import hdf5_references

    monkeypatch.setattr(hdf5_references, "ALL_LOOKED_AT", 3)
    write_rows(folder / "a.h5")
    for number in range(5):
        write_file(folder / "tree" / str(number), 10)
    write_virtual(folder / "tree" / "v.NC4", "../a.h5")
    assert stage(folder / "tree") == SourceError.exit_code


def test_only_structure_is_read(folder: Path) -> None:
    """Of a sparse terabyte."""
    with h5py.File(folder / "large.h5", "w") as file:
        file.create_dataset("x", (1 << 40,), "u1")
        for number in range(1000):
            file[f"small/{number}"] = number
    from sbtrain_staging.formats.hdf5_references import references

    assert list(references(os.fsencode(folder / "large.h5"))) == []


def test_a_file_of_a_newer_hdf5_is_named_with_the_h5py_that_reads_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Path(__file__).resolve().parents[2] / "golden" / "timings-hdf5-2.0.h5.gz"
    (folder / "new.h5").write_bytes(gzip.decompress(made.read_bytes()))
    newer = h5py.version.hdf5_version_tuple >= (2,)
    assert stage(folder / "new.h5") == (0 if newer else SourceError.exit_code)
    assert newer or "-m pip install 'h5py>=3.16'" in capsys.readouterr().err


def test_without_h5py_it_is_named(folder: Path) -> None:
    write_rows(folder / "a.h5")
    write_file(folder / "b", 10)
    (folder / "scratch").mkdir()
    for name, expected in (("b", 0), ("a.h5", 30)):
        code = (
            "import sys; sys.modules['h5py'] = None\n"
            "from sbtrain_staging.commandline import main\n"
            "sys.exit(main(sys.argv[1:], {}))"
        )
        words = ["run", "--to", str(folder / "scratch"), "--key", "k", str(folder / name)]
        path = os.pathsep.join(part for part in sys.path if part)
        result = subprocess.run(
            [sys.executable, "-c", code, *words],
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == expected, result.stderr
    assert "'h5py' is not installed" in result.stderr
    assert "-m pip install h5py mpi4py xxhash # the extra staging" in result.stderr
