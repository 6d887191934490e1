"""What staging would refuse in the job is refused when the job is submitted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrain
from plans import example_plan
from sbtrain.submission.data import data_set
from sbtrain_jobs.process import CommandResult
from sbtrain_perf.request import DataSet

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("from sbtrain_jobs import join\n")
    (tmp_path / "set" / "rows").mkdir(parents=True)
    with h5py.File(tmp_path / "set" / "rows" / "a.h5", "w") as file:
        file["x"] = numpy.arange(10)
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:] = h5py.VirtualSource("rows/a.h5", "x", (10,))
    with h5py.File(tmp_path / "set" / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    return tmp_path


def submit(place: Path, *words: str, **variables: str) -> CommandResult:
    environ = clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(place / "home"), **variables)
    usual = ("--train-steps=9", "--train-dry-run")
    return sbtrain(*usual, *words, "train.py", cwd=place, environ=environ)


def test_a_virtual_data_set_without_its_sources(place: Path) -> None:
    said = submit(place, "--train-data=set/v.h5")
    assert (said.returncode, said.stdout) == (2, "")
    assert f"{place}/set/v.h5 is put together from {place}/set/rows/a.h5" in said.stderr
    assert f"name the folder that holds both, {place}/set, and open v.h5 in it" in said.stderr
    assert "without --train-data" in said.stderr
    assert submit(place, "--train-data=set").returncode == 0


def test_data_that_is_not_staged_may_refer_to_anything(place: Path) -> None:
    words = ("--train-site=bluewaters", "-N1", "--train-data=set/v.h5")  # without scratch
    assert submit(place, *words).returncode == 0, submit(place, *words).stderr


def test_links_out_of_a_tree_are_followed_and_counted(place: Path) -> None:
    (place / "links").mkdir()
    (place / "links" / "file").symlink_to("../set/rows/a.h5")
    (place / "links" / "folder").symlink_to("../set/rows")
    (place / "links" / "within").symlink_to("file")
    size = (place / "set" / "rows" / "a.h5").stat().st_size
    assert submit(place, "--train-data=links").returncode == 0
    (place / "links" / "up").symlink_to("..")
    found = data_set(["links"], cwd=place, samples=1, count="skip")
    assert found.total_bytes == 3 * size  # what `within` leads to lies outside as well
    said = submit(place, "--train-data=links")
    assert said.returncode == 2
    assert f"{place}/links/up is a link to a folder that holds it" in said.stderr


def test_what_is_no_data_is_named(place: Path) -> None:
    os.mkfifo(place / "set" / "pipe")
    said = submit(place, "--train-data=set")
    assert said.returncode == 2
    assert f"{place}/set/pipe is a device, pipe or socket" in said.stderr


def test_h5py_is_asked_for_where_it_is_needed(place: Path) -> None:
    (place / "sitecustomize.py").write_text("import sys\nsys.modules['h5py'] = None\n")
    (place / "plain").write_text("no HDF5")
    path = clean_environ()["PYTHONPATH"]
    variables = {"PYTHONPATH": f"{place}:{path}"}
    assert submit(place, "--train-data=plain", **variables).returncode == 0
    said = submit(place, "--train-data=set", **variables)
    assert said.returncode == 6
    assert "the Python package 'h5py'" in said.stderr
    assert said.stderr.endswith(
        f"{sys.executable} -m pip install h5py mpi4py xxhash # the extra staging\n"
    )


def test_a_missing_mpi_library_is_said_before_the_job_waits(place: Path) -> None:
    """As a warning: the nodes of the job may have what the login node lacks."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    missing = {"MPI4PY_LIBMPI": "/no/libmpi.so"}
    said = submit(place, "-N2", "--train-data=set", **missing)
    assert said.returncode == 0
    [warning] = [line for line in said.stderr.splitlines() if "MPI" in line]
    assert warning.startswith("sbtrain: warning: staging to more than one node needs an MPI")
    assert "cannot load MPI library" in warning
    assert warning.endswith(" -m pip install mpich # the extra mpich")
    assert "Traceback" not in said.stderr
    for words, variables in (
        (("-N2", "--train-data=set"), {}),
        (("-N1", "--train-data=set"), missing),
        (("-N2",), missing),
    ):
        said = submit(place, *words, **variables)
        assert said.returncode == 0
        assert "MPI" not in said.stderr


def test_a_missing_mpi4py_is_refused_with_its_extra(place: Path) -> None:
    (place / "sitecustomize.py").write_text("import sys\nsys.modules['mpi4py'] = None\n")
    variables = {"PYTHONPATH": f"{place}:{clean_environ()['PYTHONPATH']}"}
    said = submit(place, "-N2", "--train-data=set", **variables)
    assert (said.returncode, said.stdout) == (6, "")
    assert "staging to more than one node needs the Python package 'mpi4py'" in said.stderr
    assert said.stderr.endswith("# the extra staging\n")
    assert submit(place, "-N1", "--train-data=set", **variables).returncode == 0


def test_a_plan_without_data_asks_nothing() -> None:
    from sbtrain.submission.data import check_staging

    plan = example_plan(data=DataSet(), scratch_path="/tmp/%u")
    assert check_staging(plan) == ("", "")


def test_ranks_of_staging_are_started_by_what_fits_the_mpi_library(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    from sbtrain.submission.data import check_staging

    (tmp_path / "rows").write_bytes(b"1")
    data = DataSet(paths=(str(tmp_path / "rows"),), total_bytes=1)
    library = Path(sys.prefix) / "lib/libmpi.so.12"  # MPICH's; Open MPI's is libmpi.so.40
    if not library.exists():
        pytest.skip("MPICH's wheel is not installed")
    for nodes, plugin in ((2, "pmi2"), (1, "none")):
        plan = example_plan(data=data, scratch_path="/tmp/%u", nodes=nodes)
        assert check_staging(plan) == (plugin, "")
