"""Links in a source: kept where they lead within it, else what they lead to is staged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sbtrain_staging.commandline import main
from sbtrain_staging.errors import SourceError
from sbtrain_staging.reports.run_report import read_report
from sbtrain_staging.sources.scan import first_change, scan
from staging_trees import write_file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("tree/sub/a", "tree/b", "other/c", "other/deep/d", "elsewhere/e"):
        write_file(tmp_path / name, 100)
    return tmp_path / "tree"


def stage(tree: Path) -> int:
    scratch = tree.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    report = tree.parent / "report.json"
    words = ["--to", str(scratch), "--key", "k", "--report", str(report), str(tree)]
    return main(["run", *words], {})


def staged(tree: Path) -> Path:
    """The copy, where nothing else of the source is left to be read."""
    assert stage(tree) == 0
    copy = Path(read_report(tree.parent / "report.json").nodes[0].paths[0])
    tree.parent.joinpath("away").mkdir()
    for name in ("tree", "other", "elsewhere"):
        tree.parent.joinpath(name).rename(tree.parent / "away" / name)
    return copy


def link(tree: Path, name: str, target: str | Path) -> Path:
    (tree / name).symlink_to(target)
    return tree / name


@pytest.mark.parametrize("name", ["link", "sub/link"])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("target", ["other/c", "tree/sub/a", "tree/b"])
def test_a_link_leads_to_the_same_bytes(
    tree: Path, name: str, absolute: bool, target: str
) -> None:
    to = tree.parent / target
    link(tree, name, to if absolute else os.path.relpath(to, (tree / name).parent))
    assert (tree / name).exists()
    content = to.read_bytes()
    copy = staged(tree)
    assert (copy / name).read_bytes() == content
    assert (copy / name).is_symlink() == target.startswith("tree/")
    if (copy / name).is_symlink():
        assert not (copy / name).readlink().is_absolute()


def test_links_within_stay_as_they_are(tree: Path) -> None:
    targets = ["b", "sub", "sub/a", "./sub/../b", "sub/missing", "/no/where", "link-6", "."]
    for number, target in enumerate(targets):
        link(tree, f"link-{number}", target)
    link(tree, "sub/up", "../b")
    link(tree, "sub/through", "../link-1/a")
    manifest = scan(tree)
    found = {os.fsdecode(manifest.paths[i]): t for i, t in manifest.targets.items()}
    expected = {f"link-{number}": os.fsencode(t) for number, t in enumerate(targets)}
    assert found == expected | {"sub/up": b"../b", "sub/through": b"../link-1/a"}
    assert not manifest.followed


def test_a_folder_elsewhere_is_taken_along(tree: Path) -> None:
    other = tree.parent / "other"
    link(tree, "train", "../other")
    link(other, "inner", "deep/d")  # within what is taken along
    link(other, "out", "../elsewhere")
    link(other, "whole", other / "deep")
    link(other / "deep", "beside", "../c")
    copy = staged(tree)
    for path in ("c", "deep/d", "inner", "whole/d", "out/e", "deep/beside"):
        assert (copy / "train" / path).read_bytes()
    assert not any((copy / "train").joinpath(p).is_symlink() for p in ("", "out"))
    assert (copy / "train" / "inner").readlink() == Path("deep/d")


@pytest.mark.parametrize(
    "make",
    [
        lambda tree: link(tree, "up", ".."),
        lambda tree: link(tree / "sub", "up", tree.parent),
        lambda tree: (
            link(tree, "o", "../other"),
            link(tree.parent / "other", "e", "../elsewhere"),
            link(tree.parent / "elsewhere", "o", "../other"),
        ),
        lambda tree: (link(tree, "o", "../other"), link(tree.parent / "other", "t", tree)),
    ],
    ids=["above", "above, absolute", "in turns", "back"],
)
def test_a_link_without_end_is_named(
    tree: Path, make: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    make(tree)
    assert stage(tree) == SourceError.exit_code
    assert "is a link to a folder that holds it" in capsys.readouterr().err


def test_what_a_link_leads_to_is_watched(tree: Path) -> None:
    link(tree, "link", "../other/c")
    manifest = scan(tree)
    everything = range(len(manifest))
    assert first_change(manifest, everything) is None
    write_file(tree.parent / "other" / "c", 100, seed=2)
    changed = first_change(manifest, everything)
    assert changed is not None
    assert manifest.paths[changed] == b"link"
    assert scan(tree).version != manifest.version


def test_a_link_to_what_cannot_be_read_is_named(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link(tree, "null", "/dev/null")
    assert stage(tree) == SourceError.exit_code
    assert f"{tree}/null is a device" in capsys.readouterr().err


def test_a_source_that_is_a_link_itself(tree: Path) -> None:
    link(tree, "out", "../other/c")
    link(tree, "detour", "../tree/b")  # the copy has the name of the link
    alias = tree.parent / "alias"
    alias.symlink_to("tree")
    assert stage(alias) == 0
    copy = Path(read_report(tree.parent / "report.json").nodes[0].paths[0])
    assert copy.name == "alias"
    assert (copy / "detour").read_bytes() == (tree / "b").read_bytes()
    assert (copy / "detour").readlink() == Path("b")
    assert (copy / "out").read_bytes() == (tree.parent / "other" / "c").read_bytes()
