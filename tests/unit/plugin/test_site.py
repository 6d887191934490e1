"""Site files: the bundled ones, units, errors by file, line and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbtrain.errors import SiteError
from sbtrain.sites.layers import form_problems, load_site
from sbtrain.sites.site_file import (
    bundled_sites,
    site_path,
    site_schema,
)
from sbtrain_perf.request import GpuType, slurm_partition

SMALL = """\
name = "small"
shared_gb_s = 2
shared_client_gb_s = 0.5

[gpus.k80]
peak_tflops = 4.113
memory_gib = 12
memory_gb_s = 240

[partitions.gpu]
nodes = 4
cores_per_node = 8
memory_gib_per_node = 64
gpu = "k80"
gpus_per_node = 2
network_gbit_s = 40
max_time_h = 36
price_per_node_hour = 2
scratch = "/local/%u/%n"
scratch_gib = 100
scratch_gb_s = 1.5
"""


def site_file(folder: Path, text: str) -> str:
    path = folder / "site.toml"
    path.write_text(text)
    return str(path)


def line_of(text: str, start: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith(start))


def test_units_are_converted(tmp_path: Path) -> None:
    shape = load_site(site_file(tmp_path, SMALL), {}).shape
    (partition,) = shape.partitions
    assert shape.shared_bytes_s == 2e9
    assert shape.shared_client_bytes_s == 5e8
    assert partition.gpu is not None
    assert partition.gpu.memory_bytes_s == 2.4e11
    assert partition.network_bytes_s == 5e9
    assert partition.max_time_s == 129_600.0
    assert partition.scratch_bytes == 100 * 2**30
    assert partition.scratch_bytes_s == 1.5e9
    assert partition.scratch_path == "/local/%u/%n"


def test_what_is_left_out_has_the_defaults_that_the_schema_states(tmp_path: Path) -> None:
    text = """\
name = "bare"
shared_gb_s = 1
shared_client_gb_s = 1
[partitions.p]
nodes = 3
cores_per_node = 4
memory_gib_per_node = 8
"""
    shape = load_site(site_file(tmp_path, text), {}).shape
    (partition,) = shape.partitions
    top = site_schema()["properties"]
    keys = top["partitions"]["additionalProperties"]["properties"]
    for key in (
        "currency",
        "requeue_delay_s",
        "kill_wait_s",
        "preemption_signal",
        "max_requeues",
    ):
        assert getattr(shape, key) == top[key]["default"]
    assert partition.network_bytes_s == keys["network_gbit_s"]["default"] * 1.25e8
    assert partition.scratch_bytes_s == keys["scratch_gb_s"]["default"] * 1e9
    assert partition.grace_s == keys["grace_s"]["default"]
    assert partition.price_per_node_hour == keys["price_per_node_hour"]["default"]
    assert partition.preemptible is keys["preemptible"]["default"]
    assert partition.max_nodes_per_job == 3
    assert partition.gpus_per_node == 0


def test_bundled_sites_load_and_pass_their_check() -> None:
    assert bundled_sites() == ("bluewaters", "generic", "private")
    for name in bundled_sites():
        assert load_site(name, {}).shape.name == name
        assert form_problems(site_path(name)) == ()


def test_blue_waters_has_the_published_nodes_and_gpu() -> None:
    xe, xk = load_site("bluewaters", {}).shape.partitions
    assert (xe.nodes, xk.nodes) == (22_640, 4_224)
    assert xk.gpu is not None
    assert (xk.gpu.peak_tflops, xk.gpu.memory_gib) == (3.95, 6.0)
    assert xk.gpu.memory_bytes_s == 2.5e11


def test_the_private_site_has_the_private_clusters_partitions() -> None:
    shape = load_site("private", {}).shape
    assert {p.name: p.nodes for p in shape.partitions} == {
        "standard": 4,
        "spot": 8,
        "urgent": 8,
    }
    assert [p.name for p in shape.partitions if p.preemptible] == ["spot"]
    assert all(p.scratch_path and "%n" in p.scratch_path for p in shape.partitions)


def test_without_a_name_the_environment_decides(tmp_path: Path) -> None:
    conf = tmp_path / "etc/slurm.conf"
    conf.parent.mkdir()
    conf.touch()
    assert load_site(None, {}).shape.name == "generic"
    assert load_site(None, {"SLURM_CONF": str(conf)}).shape.name == "generic"
    (tmp_path / "cluster.json").touch()
    assert load_site(None, {"SLURM_CONF": str(conf)}).shape.name == "private"
    (tmp_path / "site.toml").write_text(SMALL)
    assert load_site(None, {"SLURM_CONF": str(conf)}).shape.name == "small"
    chosen = {"SLURM_CONF": str(conf), "SBTRAIN_SITE": "bluewaters"}
    assert load_site(None, chosen).shape.name == "bluewaters"
    assert load_site("generic", chosen).shape.name == "generic"


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SiteError, match="did you mean bluewaters") as caught:
        site_path("bluewater")
    assert "generic" in caught.value.hint


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="No such file"):
        load_site(str(tmp_path / "none.toml"), {})


def test_a_folder_and_binary_matter_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="directory"):
        load_site(f"{tmp_path}/", {})
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SiteError, match="UTF-8"):
        load_site(str(tmp_path / "site.toml"), {})


CHANGES = [
    ("nodes = 4", "node = 4", "partitions.gpu.node: unknown key; did you mean nodes?"),
    ("memory_gb_s = 240", "memory_gbs = 240", "did you mean memory_gb_s?"),
    ("shared_gb_s = 2", "shared_gbit_s = 2", "did you mean shared_gb_s?"),
    ("nodes = 4", "nodes = 4.5", "partitions.gpu.nodes: expected a whole number, found a"),
    ("nodes = 4", "nodes = true", "expected a whole number, found true or false"),
    ("nodes = 4", 'nodes = "4"', "expected a whole number, found a string"),
    ("nodes = 4", "nodes = [4]", "expected a whole number, found a list"),
    ("nodes = 4", "nodes = 1979-05-27", "expected a whole number, found a date or time"),
    ("nodes = 4", "nodes = 0", "partitions.gpu.nodes: 0 is less than 1"),
    ("nodes = 4", "nodes = 4\nmax_nodes_per_job = 5", "5 is more than the partition's 4"),
    ("price_per_node_hour = 2", "price_per_node_hour = -1", "-1 is less than 0"),
    ("price_per_node_hour = 2", "price_per_node_hour = nan", "not a finite number"),
    ("network_gbit_s = 40", "network_gbit_s = 0", "network_gbit_s: 0 is not more than 0"),
    ('gpu = "k80"', 'gpu = "k8"', "partitions.gpu.gpu: there is no gpus.k8 in this file"),
    ("max_time_h = 36", "max_time_h = 36\ndefault_time_h = 40", "40 is more than max_time_h"),
    ('scratch = "/local/%u/%n"', 'scratch = "local"', "partitions.gpu.scratch: 'local'"),
    ('scratch = "/local/%u/%n"', 'scratch = "/l/%N"', "partitions.gpu.scratch: '/l/%N'"),
    ("shared_client_gb_s = 0.5", "shared_client_gb_s = 5", "is more than the 2"),
    ('name = "small"', 'name = ""', "name: empty"),
    (
        "max_time_h = 36",
        "mean_time_to_preemption_h = 2",
        "mean_time_to_preemption_h: given, but preemptible is not true",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), CHANGES)
def test_a_wrong_value_is_named_by_file_line_and_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert SMALL.count(f"\n{old}\n") or SMALL.startswith(f"{old}\n")
    text = SMALL.replace(old, new, 1)
    path = site_file(tmp_path, text)
    with pytest.raises(SiteError, match=re.escape(said)) as caught:
        load_site(path, {})
    key_line = new.splitlines()[-1]
    if "not true" not in said:  # which Slurm may say otherwise
        assert any(
            re.match(rf"{re.escape(path)}:{line_of(text, key_line)}: ", line)
            for line in form_problems(Path(path))
        )
    assert len(caught.value.message.splitlines()) == 1


@pytest.mark.parametrize("key", ["nodes", "cores_per_node"])
def test_a_missing_key_is_named_with_its_table(tmp_path: Path, key: str) -> None:
    text = re.sub(rf"(?m)^{key} = .*\n", "", SMALL)
    with pytest.raises(SiteError, match=rf"{key}: missing") as caught:
        load_site(site_file(tmp_path, text), {})
    assert f"site.toml:{line_of(text, '[partitions.gpu]')}: " in caught.value.message


def test_what_no_file_states_is_assumed_or_unknown(tmp_path: Path) -> None:
    text = "[partitions.p]\nnodes = 2\ncores_per_node = 4\ngpu = 'Wonder'\n[gpus.Wonder]\n"
    shape = load_site(site_file(tmp_path, text), {}).shape
    assert (shape.name, shape.shared_bytes_s, shape.shared_client_bytes_s) == ("site", 1e9, 5e8)
    assert shape.assumed == ("shared_bytes_s", "shared_client_bytes_s")
    (one,) = shape.partitions
    assert one.memory_gib_per_node is None
    assert one.assumed == ("network_bytes_s", "scratch_bytes_s")
    assert one.gpu == GpuType(
        name="Wonder", peak_tflops=None, memory_gib=None, memory_bytes_s=None
    )


def test_a_type_of_gpu_that_is_known_by_name_needs_no_figures(tmp_path: Path) -> None:
    text = "[partitions.p]\nnodes = 2\ncores_per_node = 4\ngpu = 'h100'\n"
    own = text + "[gpus.h100]\nmemory_gib = 64\n"
    for said, held_gib in ((text, 80.0), (own, 64.0)):
        gpu = load_site(site_file(tmp_path, said), {}).shape.partitions[0].gpu
        assert gpu is not None
        assert (gpu.name, gpu.peak_tflops, gpu.memory_gib) == ("h100", 67.0, held_gib)


def test_no_partition_at_all_is_an_error(tmp_path: Path) -> None:
    text = SMALL[: SMALL.index("[partitions")]
    found = load_site(site_file(tmp_path, text), {})  # laid over what is built in
    assert found.invented
    assert [one.name for one in found.shape.partitions] == ["batch"]
    with pytest.raises(SiteError, match="partitions: empty"):
        load_site(site_file(tmp_path, text + "[partitions]\n"), {})


def test_a_partition_that_stands_twice_is_named_with_its_line(tmp_path: Path) -> None:
    text = SMALL + "[partitions.gpu]\nnodes = 1\n"
    with pytest.raises(SiteError, match=r"partitions\.gpu is declared twice") as caught:
        load_site(site_file(tmp_path, text), {})
    assert f"site.toml:{len(SMALL.splitlines()) + 1}: " in caught.value.message


@pytest.mark.parametrize("name", ["a b", "a,b"])
def test_a_name_that_slurm_cannot_know_is_refused(tmp_path: Path, name: str) -> None:
    text = SMALL.replace("[partitions.gpu]", f'[partitions."{name}"]')
    with pytest.raises(SiteError, match="cannot be a partition's name"):
        load_site(site_file(tmp_path, text), {})


@pytest.mark.parametrize("line", ["nodes = = 3", "[partitions", "nodes = 3 4", '"a', "a b = 1"])
@pytest.mark.parametrize("read", [load_site, lambda path, _: form_problems(Path(path))])
def test_broken_toml_is_named_by_line(
    tmp_path: Path, read: Callable[[str, dict[str, str]], object], line: str
) -> None:
    with pytest.raises(SiteError, match=r"site\.toml:2: "):
        read(site_file(tmp_path, f'name = "x"\n{line}\nb = 1\n'), {})


def test_all_problems_are_listed_and_the_first_counts_the_rest(tmp_path: Path) -> None:
    text = SMALL.replace("nodes = 4", "nodes = 0").replace("memory_gib = 12", "memory_gib = -1")
    path = site_file(tmp_path, text)
    assert len(form_problems(Path(path))) == 2
    with pytest.raises(SiteError, match=r"\(and 1 more\)"):
        load_site(path, {})


def test_every_key_of_the_schema_is_read(tmp_path: Path) -> None:
    """A key that the schema knows but the reader ignores would be a silent mistake."""
    top = site_schema()["properties"]
    partition = dict(top["partitions"]["additionalProperties"]["properties"])
    del partition["gpu_types"]  # stands for gpu: a test of its own
    values: dict[str, object] = {
        "name": '"n"',
        "currency": '"EUR"',
        "preemption_signal": '"TERM"',
        "mpi_plugin": '"other"',
        "burst_path": '"/b"',
        "gpu": '"G"',
        "preemptible": "true",
        "preempts_others": "true",
        "planned": "false",
        "whole_nodes": "false",
        "scratch": '"/s"',
        "nodes": 9,
        "max_nodes_per_job": 8,
        "max_time_h": 99,
        "shared_gb_s": 99,
    }

    def value(key: str) -> object:
        return values.get(key, 7)

    lines = [f"{key} = {value(key)}" for key in top if key not in ("gpus", "partitions")]
    lines += ["[gpus.G]"]
    lines += [f"{key} = 7" for key in top["gpus"]["additionalProperties"]["properties"]]
    lines += ["[partitions.p]"]
    full = "\n".join([*lines, *(f"{key} = {value(key)}" for key in partition)])
    shape = load_site(site_file(tmp_path, full), {}).shape
    assert load_site(site_file(tmp_path, full), {}).data["burst_path"] == "/b"
    (read,) = shape.partitions
    assert (shape.requeue_delay_s, shape.max_requeues, shape.currency) == (7.0, 7, "EUR")
    assert (shape.preemption_signal, shape.mpi_plugin) == ("TERM", "other")
    assert read.gpu is not None
    assert (read.gpu.peak_tflops, read.gpu.memory_gib) == (7.0, 7.0)
    hours = (read.mean_time_to_preemption_s, read.default_time_s, read.max_time_s)
    assert hours == (25_200.0, 25_200.0, 356_400.0)
    assert (read.max_nodes_per_job, read.cores_per_node, read.gpus_per_node) == (8, 7, 7)
    assert (read.memory_gib_per_node, read.price_per_node_hour, read.grace_s) == (7.0,) * 3
    assert (read.preemptible, read.preempts_others, read.scratch_path) == (True, True, "/s")
    assert (read.planned, read.whole_nodes) == (False, False)
    assert (read.scratch_bytes, read.scratch_bytes_s) == (7 * 2**30, 7e9)
    assert read.network_bytes_s == 8.75e8
    # Leaving any one out must change what is read, or be refused.
    for key in partition:
        text = re.sub(
            rf"(?m)^{key} = .*$", "", full.replace("[partitions.p]", "\n[partitions.p]")
        )
        try:
            changed = load_site(site_file(tmp_path, text), {}).shape
        except SiteError:
            continue
        assert changed.partitions != shape.partitions, key


MIXED = (
    SMALL.replace('gpu = "k80"\ngpus_per_node = 2\n', "")
    + """
[partitions.gpu.gpu_types.k80]
nodes = 3
gpus_per_node = 2
gres = "tesla"
[partitions.gpu.gpu_types.P100]
nodes = 1
gpus_per_node = 4
[gpus.P100]
peak_tflops = 9.5
memory_gib = 16
memory_gb_s = 732
"""
)


def test_a_partition_of_several_gpu_types_is_one_a_type_and_one_of_any(tmp_path: Path) -> None:
    found = load_site(site_file(tmp_path, MIXED), {}).shape.partitions
    assert [(p.name, p.nodes, p.gpus_per_node, p.gres) for p in found] == [
        ("gpu:k80", 3, 2, "gpu:tesla:2"),
        ("gpu:P100", 1, 4, "gpu:P100:4"),
        ("gpu:mixed", 4, 2, "gpu:2"),
    ]
    assert [slurm_partition(p.name) for p in found] == ["gpu"] * 3
    mixed = found[2]
    assert mixed.gpu is not None
    assert (mixed.gpu.peak_tflops, mixed.gpu.memory_gib) == (4.113, 12)
    assert [(g.gpu.name, g.nodes, g.gpus_per_node) for g in mixed.mix] == [
        ("k80", 3, 2),
        ("P100", 1, 2),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nodes = 3", "nodes = 9", "10 nodes together, the partition has 4"),
        ("gpu_types.P100]", "gpu_types.V99]", "there is no gpus.V99 in this file"),
        ("[partitions.gpu]", '[partitions.gpu]\ngpu = "k80"', "given, and gpu too"),
    ],
)
def test_what_contradicts_the_gpu_types_is_named(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(SiteError, match=said):
        load_site(site_file(tmp_path, MIXED.replace(old, new)), {})


SENSELESS = {
    "nodes = 99999999999999999999999999": "is more than 1,000,000",
    f"nodes = 1{'0' * 60}": "a number of very many digits is more than 1,000,000",
    "price_per_node_hour = 1e308": "1e+308 is more than 1,000,000",
    "cores_per_node = 1000000": "1000000 is more than 100,000",
    "scratch_gib = 1e10": "10000000000.0 is more than 1,000,000,000",
    "max_time_h = 1e-300": "1e-300 is less than 1e-06",
    "network_gbit_s = 0": "0 is not more than 0",
    "gpus_per_node = 4000": "4000 is more than 1,000",
}


@pytest.mark.parametrize("given", SENSELESS)
def test_a_number_without_sense_is_named_with_its_limit(given: str, tmp_path: Path) -> None:
    key = given.partition(" ")[0]
    line = line_of(SMALL, f"{key} = ")
    path = site_file(tmp_path, SMALL.replace(SMALL.splitlines()[line - 1], given))
    (problem,) = form_problems(Path(path))
    assert problem.startswith(f"{path}:{line}: partitions.gpu.{key}: ")
    assert SENSELESS[given] in problem


def test_every_number_of_the_schema_has_limits() -> None:
    def numbers(schema: dict[str, object]) -> Iterator[dict[str, object]]:
        if schema.get("type") in ("number", "integer"):
            yield schema
        for value in schema.values():
            if isinstance(value, dict):
                yield from numbers(value)

    found = list(numbers(site_schema()))
    assert len(found) == 23
    assert all("minimum" in one and "maximum" in one for one in found)


def test_what_python_will_not_read_is_an_error_too(tmp_path: Path) -> None:
    for value, said in (
        ("9" * 5000, ":11: nodes: a number of very many digits"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
    ):
        with pytest.raises(SiteError, match=said):
            form_problems(
                Path(site_file(tmp_path, SMALL.replace("nodes = 4", f"nodes = {value}")))
            )


def test_of_the_admins_files_that_of_this_cluster_counts_however_its_name_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrain.sites.layers.ADMINS", tmp_path)
    for name, rate in (("BigCluster", 3.0), ("other", 7.0)):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nshared_gb_s = {rate}\n')
    found = {"name": "bigcluster", "kill_wait_s": 30.0}
    found["partitions"] = {"main": {"nodes": 1, "cores_per_node": 1}}
    assert load_site(None, {}, found).data["shared_gb_s"] == 3.0
