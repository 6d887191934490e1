"""What site files state, held against what Slurm says: what Slurm knows is Slurm's to say, and
a file may ask for less of it, not for more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sbtrain.sites.schema import Problem
from sbtrain_perf.wording import count

_GPU_KEYS = ("gpu", "gpus_per_node", "gpu_types")
_SLURMS_OWN = ("kill_wait_s",)
_AT_MOST = {"max_nodes_per_job": "nodes", "max_time_h": "", "cores_per_node": ""}
_EQUAL = ("nodes", "default_time_h", "grace_s")
_NEAR = 1.02  # memory that is rounded is not wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """data: what holds. problems: where the files are wrong, by their keys."""

    data: dict[str, Any]
    problems: tuple[Problem, ...] = ()


def settled(
    found: Mapping[str, Any], stated: Mapping[str, Any], *, asks_gpus: bool = False
) -> Settled:
    """
    Args:
        found: sites.discovery's.
        stated: what the files say, any part of it.
        asks_gpus: of GPUs that a file leaves out of plans, for a call that asks for some.
    """
    here, named = found["partitions"], stated.get("partitions", {})
    problems = []
    tables = {name: dict(table) for name, table in here.items()}
    for name, table in named.items():
        if name not in here:
            words = "Slurm has no such partition"
            problems.append(Problem(path=("partitions", name), message=words))
            continue
        tables[name], wrong = _partition(here[name], table, asks_gpus=asks_gpus)
        problems += [
            Problem(path=("partitions", name, key), message=message) for key, message in wrong
        ]
    if any("price_per_node_hour" in table for table in tables.values()):
        for name, table in tables.items():
            if name not in named:  # it is not free because nobody has priced it
                table["planned"] = False
    data = {**found, **stated, "partitions": tables}
    for key in _SLURMS_OWN:
        if key in stated and stated[key] != found[key]:
            data[key] = found[key]
            message = f"{stated[key]:g}, Slurm has {found[key]:g}"
            problems.append(Problem(path=(key,), message=message))
    gpus = {**found.get("gpus", {}), **stated.get("gpus", {})}
    return Settled(
        data={**data, **({"gpus": gpus} if gpus else {})},
        problems=tuple(problems),
    )


def _partition(
    found: Mapping[str, Any], stated: Mapping[str, Any], *, asks_gpus: bool
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What holds of one, and what of the stated is wrong."""
    data = {**found, **{key: stated[key] for key in stated if key not in _GPU_KEYS}}
    wrong = list(_contradicted(found, stated))
    for key, _ in wrong:
        if key in found:
            data[key] = found[key]
        else:
            data.pop(key, None)
    if stated.get("preemptible") is False and found.get("preemptible"):
        wrong.append(("preemptible", "false, and Slurm lets others take its nodes"))
        data["preemptible"] = True
    longest = data.get("max_time_h")
    if longest is not None and data.get("default_time_h", 0) > longest:
        data["default_time_h"] = longest
    if found.get("preempts_others"):
        data["preempts_others"] = True
    if not data.get("preemptible"):
        data.pop("mean_time_to_preemption_h", None)
    gpus, problem = _gpus(found, stated, asked=asks_gpus)
    for key in _GPU_KEYS:
        data.pop(key, None)
    return {**data, **gpus}, [*wrong, *problem]


def _contradicted(
    found: Mapping[str, Any], stated: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for key in _EQUAL:
        if key in stated and stated[key] != found.get(key, 0):
            yield key, f"{stated[key]:,}, Slurm has {found.get(key, 'none')}"
    for key, instead in _AT_MOST.items():
        most = found.get(key, found.get(instead))
        if key in stated and most is not None and stated[key] > most:
            yield key, f"{stated[key]:,}, Slurm has {most:,}"
    held = found.get("memory_gib_per_node")
    asked = stated.get("memory_gib_per_node", 0.0)
    if held is not None and asked > held * _NEAR:
        yield "memory_gib_per_node", f"{asked:g}, Slurm has {held:g}"


def _gpus(
    found: Mapping[str, Any], stated: Mapping[str, Any], *, asked: bool
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The keys of GPUs that hold, and what of the stated ones is wrong."""
    has = {key: found[key] for key in _GPU_KEYS if key in found}
    said = {key: stated[key] for key in _GPU_KEYS if key in stated}
    if not said:
        return has, []
    if said.get("gpus_per_node") == 0:
        return has if asked else {}, []
    key = "gpu_types" if "gpu_types" in said else "gpu"
    if not has:
        return {}, [(key, "Slurm's nodes have no GPUs")]
    ours, slurms = (
        _types(said, stated.get("nodes", found["nodes"])),
        _types(has, found["nodes"]),
    )
    if len(ours) == len(slurms) == 1 and "gpu" in said:
        (((name, fewer),), ((known, most),)) = ours.items(), slurms.items()
        unknown = known == "gpu"
        if (unknown or name.lower() == known.lower()) and fewer[1] <= most[1]:
            if "gpu_types" not in has:
                return {"gpu": name, "gpus_per_node": fewer[1]}, []
            (of,) = has["gpu_types"].values()
            return {"gpu_types": {name: {**of, "gpus_per_node": fewer[1]}}}, []
    if {name.lower(): held for name, held in ours.items()} == {
        name.lower(): held for name, held in slurms.items()
    }:
        return _in_slurms_words(said, has), []
    words = ", ".join(
        f"{gpus} x {name} on {count(nodes, 'node')}" for name, (nodes, gpus) in slurms.items()
    )
    return has, [(key, f"Slurm has {words}")]


def _in_slurms_words(said: Mapping[str, Any], has: Mapping[str, Any]) -> dict[str, Any]:
    """As a file has it, asked for as Slurm knows it where the file does not say how."""
    known = {name.lower(): of for name, of in has.get("gpu_types", {}).items()}
    if "gpu_types" not in said or not known:
        return dict(said) if not known else dict(has)
    types = {name: {**known[name.lower()], **of} for name, of in said["gpu_types"].items()}
    return {"gpu_types": types}


def _types(keys: Mapping[str, Any], nodes: int) -> dict[str, tuple[int, int]]:
    """Nodes and GPUs a node, by type."""
    if "gpu_types" in keys:
        return {
            name: (of.get("nodes", nodes), of.get("gpus_per_node", 1))
            for name, of in keys["gpu_types"].items()
        }
    return {keys.get("gpu", "gpu"): (nodes, keys.get("gpus_per_node", 1))}
