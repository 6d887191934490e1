"""CM-DARE: unseen CNNs on one worker, unseen checkpoints, larger clusters than fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from accuracy_checks.checking import Check, Planner, Plot, pool, values, write_fold
from accuracy_checks.replay import SHIPPED, Replay, Run, Setting, as_rates
from sbtrain_perf.score import cmdare_checkpoint, cmdare_cluster, cmdare_speed
from sbtrain_perf.score.cmdare import Cnn, read_cnns, read_worker_steps
from sbtrain_perf.score.metrics import Point
from sbtrain_perf.score.scoring import GroupScore

MODELS = "cmdare/models.csv"
SPEED = "cmdare/speed_single_worker.csv"
BASE = "cmdare/speed_base_k80_p100_v100.csv"
SAVES = "cmdare/checkpoint_samples.csv"
CLUSTER = "cmdare/speed_cluster.csv"
NO_SESSIONS = Planner(note="as above: it knows no sessions")


def checks(data: Path, scratch: Path) -> list[Check]:
    return [*_speed(data, scratch), *_checkpoint(data, scratch), *_cluster(data, scratch)]


def plots(data: Path, scratch: Path) -> list[Plot]:
    speeds: dict[str, list[Point]] = {}
    for fold in _without_one_network(data, scratch, SPEED):
        for gpu, models in cmdare_speed.points(*fold).items():
            speeds.setdefault(gpu, []).extend(models["ours"])
    saves: list[Point] = []
    for fold in _without_one_network(data, scratch, SAVES):
        saves += cmdare_checkpoint.points(*fold)["ours"]
    clusters: dict[str, list[Point]] = {}
    for fitted in _fitted_sizes(data):
        fit, held = _larger_clusters(data, scratch, fitted)
        for row, point in zip(
            cmdare_cluster.read_clusters(held),
            cmdare_cluster.points(fit, held)["ours"],
            strict=True,
        ):
            clusters.setdefault(f"{row.group}, fit n <= {fitted}", []).append(point)
    return [
        Plot(
            name="cmdare-speed",
            title="One worker, network left out",
            unit="s per step",
            series=speeds,
        ),
        Plot(
            name="cmdare-checkpoint",
            title="One save, network left out",
            unit="s",
            series={"saves": saves},
        ),
        Plot(
            name="cmdare-cluster",
            title="Clusters larger than fitted",
            unit="updates/s",
            series=clusters,
        ),
    ]


def _without_one_network(data: Path, scratch: Path, name: str) -> Iterator[tuple[Path, Path]]:
    for model in values(data, name, "model"):
        folder = scratch / Path(name).stem / model
        files = {name: lambda row, model=model: "score" if row["model"] == model else "fit"}
        yield write_fold(data, folder, files, whole=[MODELS])


def _largest(data: Path) -> int:
    return max(int(value) for value in values(data, CLUSTER, "n_workers"))


def _fitted_sizes(data: Path) -> list[int]:
    """4 where the data has 5 to 8 workers, as the bar asks; else smaller stand-ins."""
    return [4] if _largest(data) > 4 else [2, 3]


def _larger_clusters(data: Path, scratch: Path, fitted: int) -> tuple[Path, Path]:
    files = {CLUSTER: lambda row: "fit" if int(row["n_workers"]) <= fitted else "score"}
    folder = scratch / "cluster" / str(fitted)
    return write_fold(data, folder, files, whole=[MODELS, SPEED, BASE])


def setting(
    cnns: Mapping[str, Cnn], model: str, gpu: str, *, workers: int, servers: int
) -> Setting:
    """One GPU a node, servers on nodes of their own."""
    network = cnns[model].network
    return Setting(
        workload=model,
        gpu=gpu,
        nodes=workers + servers,
        servers=servers,
        parameters=round(network.parameters),
        tensors=round(network.tensors),
    )


def _planned_speeds(data: Path, gpu: str) -> Planner:
    """A network that never ran is planned from what is shipped, whatever other ones did."""
    cnns = read_cnns(data, data)
    rows = [
        (setting(cnns, row.model, row.gpu, workers=1, servers=1), row.step_s)
        for row in read_worker_steps(data)
        if row.gpu == gpu
    ]
    note = "shipped, and fitted on these very rows: learns nothing across networks"
    return Planner.of(Replay([(gpu, 1)]).steps(rows, SHIPPED), note=note)


def _planned_saves(data: Path) -> Planner:
    cnns = read_cnns(data, data)
    replay = Replay([("K80", 1)])
    runs = {
        save.name: Run(
            setting=setting(cnns, save.name, "K80", workers=1, servers=0),
            saves=tuple(
                (seconds, 1e6 * (save.files.data_mb + save.files.meta_mb))
                for seconds in save.durations_s
            ),
        )
        for save in cmdare_checkpoint.read_saves(data, cnns)
    }
    points = []
    for name, run in runs.items():
        learnt = replay.learnt([other for key, other in runs.items() if key != name])
        predicted_s = replay.planned(run.setting, learnt).prediction.checkpoint_s
        points += [Point(measured=took_s, predicted=predicted_s) for took_s, _ in run.saves]
    return Planner.of(points, note="from the number of parameters: no size is known before")


def _planned_clusters(data: Path, fitted: int) -> dict[str, Planner]:
    cnns = read_cnns(data, data)
    rows = cmdare_cluster.read_clusters(data)
    replay = Replay([(row.gpu, 1) for row in rows])

    def where(row: cmdare_cluster.ClusterRow) -> Setting:
        return setting(cnns, row.model, row.gpu, workers=row.workers, servers=row.servers)

    learnt = replay.learnt(
        [Run(setting=where(r), step_s=1.0 / r.speed_1_s) for r in rows if r.workers <= fitted]
    )
    held = [row for row in rows if row.workers > fitted]
    points = as_rates(replay.steps([(where(row), 1.0 / row.speed_1_s) for row in held], learnt))
    groups = {row.group for row in held}
    found = {
        group: [p for row, p in zip(held, points, strict=True) if row.group == group]
        for group in groups
    }
    return {name: Planner.of(kept) for name, kept in ({"all": points} | found).items()}


def _speed(data: Path, scratch: Path) -> list[Check]:
    scores: list[GroupScore] = []
    for fold in _without_one_network(data, scratch, SPEED):
        scores += cmdare_speed.score(*fold)
    lines = []
    for gpu, bar, papers in (("K80", 5.0, "11-25"), ("P100", 7.0, "15-29")):
        ours, plain = pool(scores, group=gpu), pool(scores, group=gpu, model="ours-no-session")
        reference = pool(scores, group=gpu, model="sqrt-terms")
        svr = pool(scores, group=gpu, model="svr-rbf")
        lines += [
            Check(
                what=f"one worker, unseen CNN, {gpu}",
                value=ours.mape,
                planner=_planned_speeds(data, gpu),
                bar=bar,
                n=ours.n,
                coverage90=ours.coverage90,
                yardstick=f"papers {papers}; svr-rbf {svr.mape:.1f}, "
                f"sqrt-terms {reference.mape:.1f}",
            ),
            Check(
                what=f"one worker, unseen CNN, {gpu}, sessions unknown",
                value=plain.mape,
                planner=NO_SESSIONS,
                n=plain.n,
                coverage90=plain.coverage90,
                check_coverage=False,
                note="what a site that was never measured can expect",
            ),
        ]
    return lines


def _checkpoint(data: Path, scratch: Path) -> list[Check]:
    scores: list[GroupScore] = []
    for fold in _without_one_network(data, scratch, SAVES):
        scores += cmdare_checkpoint.score(*fold)
    ours = pool(scores, group="all")
    plain = pool(scores, group="all", model="ours-no-session")
    linear = pool(scores, group="all", model="linear")
    rbf = pool(scores, group="all", model="svr-rbf")
    return [
        Check(
            what="checkpoint time, unseen CNN",
            value=ours.mape,
            planner=_planned_saves(data),
            bar=5.5,
            n=ours.n,
            coverage90=ours.coverage90,
            yardstick=f"papers 7.9-19.6; linear {linear.mape:.1f}, svr-rbf {rbf.mape:.1f}",
        ),
        Check(
            what="checkpoint time, unseen CNN, sessions unknown",
            value=plain.mape,
            planner=NO_SESSIONS,
            n=plain.n,
            coverage90=plain.coverage90,
            check_coverage=False,
        ),
    ]


def _cluster(data: Path, scratch: Path) -> list[Check]:
    """As the bar asks where the data has 5 to 8 workers; else the same with fewer."""
    largest = _largest(data)
    full = largest > 4
    lines = []
    for fitted in _fitted_sizes(data):
        scores = cmdare_cluster.score(*_larger_clusters(data, scratch, fitted))
        planned = _planned_clusters(data, fitted)
        for group, bar in (("all", 8.0), ("P100/1", 10.0)):
            ours = pool(scores, group=group)
            sums = pool(scores, group=group, model="sum-of-speeds")
            four = pool(scores, group=group, model="four-constants")
            lines.append(
                Check(
                    what=f"cluster, fit n <= {fitted}, score to {largest}, {group}",
                    value=ours.mape,
                    planner=planned[group],
                    bar=bar if full else None,
                    n=ours.n,
                    coverage90=ours.coverage90,
                    check_coverage=full,
                    yardstick=f"sum of speeds {sums.mape:.1f}, four constants {four.mape:.1f}",
                    note="" if full else f"bar {bar:g} is for 5-8 workers, not in this data",
                )
            )
    return lines
