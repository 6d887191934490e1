"""Choices among measured configurations: the rule, its judgement, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sbtrain_perf.regret.choosing import Curve, Option, choices_on, summarise
from sbtrain_perf.regret.commandline import main
from sbtrain_perf.regret.curves import all_curves, server_curves

CLUSTER = "gpu,model,n_ps,n_workers,speed_mean_steps_s"
STEP = "model,placement,num_nodes,num_replicas,local_bsz,step_time_s,sync_time_s"


def option(
    measured: float, predicted: float, *, size: int, servers: int = 0, fitted: bool = False
) -> Option:
    return Option(
        label=f"{size}/{servers}",
        nodes=size + servers,
        size=size,
        servers=servers,
        measured=measured,
        predicted=predicted,
        fitted=fitted,
    )


def curve(*options: Option) -> Curve:
    return Curve(source="made", name="one", options=options)


def test_the_best_prediction_is_chosen_and_judged_by_what_was_measured() -> None:
    ours, most = choices_on(
        curve(
            option(100.0, 90.0, size=4),
            option(80.0, 120.0, size=8),
            option(50.0, 60.0, size=16),
        ),
        "time",
    )
    assert (ours.chosen, ours.best) == ("8/0", "4/0")
    assert ours.regret == pytest.approx(0.2)
    assert most.chosen == "16/0"
    assert most.regret == pytest.approx(0.5)


def test_what_gains_less_than_noise_is_spared() -> None:
    for gain, chosen in ((1.01, "4/1"), (1.05, "4/2")):
        options = (
            option(100.0, 100.0, size=4, servers=1),
            option(100.0 * gain, 100.0 * gain, size=4, servers=2),
        )
        assert choices_on(curve(*options), "time")[0].chosen == chosen
    for slower, chosen in ((99.0, "2/0"), (97.0, "3/0")):
        options = (option(slower, slower, size=2), option(100.0, 100.0, size=3))
        assert choices_on(curve(*options), "time")[0].chosen == chosen
    hours = (option(198.0, 198.0, size=2), option(300.0, 300.0, size=3))
    assert choices_on(curve(*hours), "node-hours")[0].chosen == "3/0"  # costs are exact


def test_equals_go_to_the_fewest_nodes() -> None:
    ours, _ = choices_on(curve(option(90.0, 99.0, size=3), option(99.0, 99.0, size=2)), "time")
    assert ours.chosen == "2/0"


def test_node_hours_count_the_servers() -> None:
    options = (option(40.0, 40.0, size=4, servers=1), option(46.0, 46.0, size=4, servers=2))
    assert choices_on(curve(*options), "time")[0].chosen == "4/2"
    assert choices_on(curve(*options), "node-hours")[0].chosen == "4/1"


@pytest.mark.parametrize(
    ("one", "two", "predicted_two", "right"),
    [
        (100.0, 150.0, 150.0, 1),
        (100.0, 150.0, 90.0, 0),  # too few
        (100.0, 101.0, 90.0, 1),  # a tie goes to the fewer
        (100.0, 99.0, 150.0, 0),  # one too many, if by a hair
    ],
)
def test_the_number_of_servers(
    one: float, two: float, predicted_two: float, right: int
) -> None:
    options = (
        option(one, 100.0, size=4, servers=1),
        option(two, predicted_two, size=4, servers=2),
        option(one, 100.0, size=5, servers=1),  # alone at its size: nothing to decide
    )
    ours = choices_on(curve(*options), "time")[0]
    assert (ours.servers, ours.right_servers) == (1, right)


def test_summaries_pool_sources() -> None:
    good = Curve(source="a", name="x", options=(option(1.0, 1.0, size=1),))
    bad = Curve(
        source="b",
        name="y",
        options=(option(1.0, 9.0, size=1), option(2.0, 1.0, size=2)),
    )
    found = summarise([choice for c in (good, bad) for choice in choices_on(c, "time")])
    ours = {row.source: row for row in found if row.rule == "ours"}
    assert ours["a"].within_5 == 1.0
    assert ours["b"].worst_regret == pytest.approx(0.5)
    assert ours["all"].within_5 == pytest.approx(0.5)
    assert ours["all"].right_servers is None


def make_data(folder: Path) -> Path:
    """A network whose one server saturates at 4 workers and whose two at 8; all-reduce that
    gains on every node."""
    (folder / "cmdare").mkdir(parents=True)
    (folder / "pollux").mkdir()
    (folder / "cmdare" / "models.csv").write_text(
        "model,model_flops_gf,n_params,n_tensors,ckpt_mb\nnet,1.0,1000000,200,8.0\n"
    )
    rows = []
    for servers in (1, 2):
        for workers in (1, 2, 3, 4, 5, 6, 8):
            speed = workers / 0.1
            capacity = 40.0 * servers**0.9
            reached = (speed**-8 + capacity**-8) ** (-1 / 8)
            rows.append(f"P100,net,{servers},{workers},{reached:.4f}")
    (folder / "cmdare" / "speed_cluster.csv").write_text("\n".join([CLUSTER, *rows]) + "\n")
    (folder / "cmdare" / "speed_single_worker.csv").write_text(
        "gpu,model,step_time_mean_s\nP100,net,0.1\n"
    )
    rows = []
    for shape in ("1", "2", "4", "11", "22", "44", "444", "4444", "1111"):
        for batch in (8, 16, 32):
            nodes, gpus = len(shape), sum(map(int, shape))
            sync = 0.0 if gpus == 1 else 0.02 if nodes == 1 else 0.05 * math.log(2 * nodes)
            step = 0.02 + 0.004 * batch + sync
            rows.append(f"work,{shape},{nodes},{gpus},{batch},{step:.5f},{sync:.5f}")
    (folder / "pollux" / "step_times.csv").write_text("\n".join([STEP, *rows]) + "\n")
    return folder


def test_fits_see_the_few_points_alone(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    (served,) = server_curves(data)
    assert {o.size for o in served.options if o.fitted} == {1, 2, 4}
    held = [o for o in served.options if not o.fitted]
    text = (data / "cmdare" / "speed_cluster.csv").read_text()
    lines = text.splitlines()
    told = [line for line in lines if line.split(",")[3] in ("1", "2", "4", "n_workers")]
    other = [",".join([*line.split(",")[:4], "1.0"]) for line in lines if line not in told]
    (data / "cmdare" / "speed_cluster.csv").write_text("\n".join([*told, *other]) + "\n")
    (again,) = server_curves(data)
    blind = {o.label: o.predicted for o in again.options if not o.fitted}
    assert blind == {o.label: pytest.approx(o.predicted) for o in held}


def test_unseen_workers_get_the_servers_they_need(tmp_path: Path) -> None:
    (served,) = server_curves(make_data(tmp_path))
    ours = choices_on(served, "time")[0]
    assert ours.chosen.endswith("2 servers")
    assert ours.right_servers >= ours.servers - 1


def test_allreduce_curves_are_batches(tmp_path: Path) -> None:
    curves = [one for one in all_curves(make_data(tmp_path)) if one.source == "pollux"]
    assert [c.name for c in curves] == [f"work, {b} a GPU" for b in (8, 16, 32)]
    assert all(o.fitted == (o.nodes <= 2) for c in curves for o in c.options)
    assert all(choices_on(c, "time")[0].chosen == "4444" for c in curves)


def test_the_command_prints_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_data(tmp_path)
    assert main(["--data", str(data)]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].startswith("source  objective")
    assert main(["--data", str(data), "--json", "--few", "1,2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["source"] for row in document["summaries"]} == {"cmdare", "pollux", "all"}
    served = next(row for row in document["choices"] if row["source"] == "cmdare")
    assert served["fitted"] == 4


def test_a_folder_without_curves_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path)]) == 7
    assert "has no curves: its files have no rows" in capsys.readouterr().err
    assert main(["--data", str(tmp_path / "missing")]) == 7
    with pytest.raises(SystemExit) as caught:
        main(["--few", "one"])
    assert caught.value.code == 2


@pytest.mark.parametrize("few", ["0", "-1", "1,0", "", "1,,2", "1.5"])
def test_few_are_numbers_of_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], few: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(tmp_path), f"--few={few}"])
    assert caught.value.code == 2
    assert "numbers from 1, like 1,2,4" in capsys.readouterr().err


def test_few_that_nobody_measured_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_data(tmp_path)
    assert main(["--data", str(data), "--few", "7,99"]) == 7
    assert capsys.readouterr().err == (
        "sbtrain_perf.regret: --few: no run has 7 or 99 workers of one kind\n"
        "hint: measured are 1, 2, 3, 4, 5, 6, 8\n"
    )
    assert main(["--data", str(data), "--few", "2,99"]) == 0


def test_why_a_folder_has_no_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_data(tmp_path)
    (data / "cmdare" / "speed_cluster.csv").write_text(
        f"{CLUSTER}\nP100,net,1,1,10.0\nP100,net,1,2,19.0\n"
    )
    (data / "pollux" / "step_times.csv").write_text(
        f"{STEP}\nwork,44,2,8,16,0.1,0.01\nfew,1,1,1,16,0.1,0.0\nfew,2,1,2,16,0.1,0.0\n"
    )
    (data / "tdl").mkdir()
    (data / "tdl" / "training_jobs.csv").write_text(
        "experiment,config,n_ps,n_k80,avg_steps_s\nspot,4,1,4,20.0\n"
    )
    assert main(["--data", str(data)]) == 7
    error = capsys.readouterr().err
    assert "cmdare P100 net: 2 measured, 3 needed to choose among" in error
    assert "tdl runs: all have spot or remote workers" in error
    assert "pollux few, 16 a GPU: 2 measured, 3 needed" in error
    assert "pollux work: no first look at it: nothing was measured on one GPU" in error


@pytest.mark.parametrize("workers", ["1", "8"])  # one that is fitted, one that is not
@pytest.mark.parametrize("speed", ["0", "-5", "1e300"])
def test_a_speed_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: str, speed: str
) -> None:
    data = make_data(tmp_path)
    path = data / "cmdare" / "speed_cluster.csv"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.split(",")[3] == workers)
    lines[at] = ",".join([*lines[at].split(",")[:4], speed])
    path.write_text("\n".join(lines) + "\n")
    assert main(["--data", str(data)]) == 7
    error = capsys.readouterr().err
    assert f"{path}:{at + 1}: speed_mean_steps_s = '{speed}'" in error
