"""As many trainers a node as the user or the framework wants, on a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain

WHO = """\
import json, os
from pathlib import Path

names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SBTRAIN_NODE", "CUDA_VISIBLE_DEVICES")
said = {name: os.environ.get(name) for name in (*names, "SLURM_CPUS_ON_NODE")}
Path(f"rank-{os.environ['RANK']}").write_text(json.dumps(said))
"""
SITE = """\
name = "gpus"
shared_gb_s = 1
shared_client_gb_s = 0.5
[partitions.spot]
nodes = 4
cores_per_node = 4
memory_gib_per_node = 15
gpu = "K80"
gpus_per_node = 2
"""
GPUS = ("-w", "g1,g2", "--gres=gpu:2", "--train-site=site.toml")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("options", "nodes", "devices"),
    [
        pytest.param(("--ntasks-per-node=2", "-c2"), "0011", "", id="tasks-a-node"),
        pytest.param(("-n3", "--exclusive", "-t", "5"), "001", "", id="uneven"),
        pytest.param((*GPUS, "--train-layout=torch"), "0011", "0,1", id="gpus"),
        pytest.param((*GPUS, "--train-layout=jax"), "01", "", id="one-a-node"),
    ],
)
def test_a_node_has_as_many_trainers_as_are_wanted(
    options: tuple[str, ...],
    nodes: str,
    devices: str,
    tmp_path: Path,
    slurm_environment: dict[str, str],
) -> None:
    (tmp_path / "train.py").write_text(WHO)
    (tmp_path / "site.toml").write_text(SITE)
    environ = clean_environ(**slurm_environment, SBTRAIN_HOME=str(tmp_path / "home"))
    words = ("--wait", "-p", "spot", "-N2", "--train-steps=1", *options, "train.py")
    run = sbtrain(*words, cwd=tmp_path, environ=environ)
    assert run.returncode == 0, run.stderr
    paths = sorted(tmp_path.glob("rank-*"))
    assert [path.name for path in paths] == [f"rank-{rank}" for rank in range(len(nodes))]
    said = [json.loads(path.read_text()) for path in paths]
    assert "".join(one["SBTRAIN_NODE"] for one in said) == nodes
    for rank, one in enumerate(said):
        assert int(one["WORLD_SIZE"]) == len(nodes)
        assert int(one["LOCAL_WORLD_SIZE"]) == nodes.count(nodes[rank])
        assert int(one["LOCAL_RANK"]) == nodes[:rank].count(nodes[rank])
        assert int(one["SLURM_CPUS_ON_NODE"]) == 4  # all that the job has there, for the agent
    if devices:
        assert {one["CUDA_VISIBLE_DEVICES"] for one in said} == {devices}  # by LOCAL_RANK
