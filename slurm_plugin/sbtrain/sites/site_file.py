"""Site files: TOML -> ClusterShape, and which file it is. schema.json says what they hold."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sbtrain.errors import SiteError
from sbtrain.sites.schema import KeyPath, Problem, schema_problems
from sbtrain.sites.toml_lines import key_lines
from sbtrain_perf.request import ClusterShape, GpuGroup, GpuType, Partition

_GB = 1e9
_GBIT = 1e9 / 8
_GIB = 2**30
_HOUR_S = 3600.0


def load_site(name_or_path: str | None, environ: Mapping[str, str]) -> ClusterShape:
    """The cluster that a site file describes.

    Args:
        name_or_path: a bundled site's name, or the path of a file (with a slash, or
            ending in .toml). None: $SBTRAIN_SITE; where that is not set, the private
            cluster's when SLURM_CONF points into one; else `generic`.

    Raises:
        SiteError: there is no such site, or its file is wrong; the message names the
            file, the line and the dotted key.
    """
    path = site_path(name_or_path, environ)
    return _shape(_valid(path), path)


def burst_path(name_or_path: str | None, environ: Mapping[str, str]) -> str | None:
    """The site's burst tier, where its file names one. Raises SiteError as load_site does."""
    found = _valid(site_path(name_or_path, environ)).get("burst_path")
    return None if found is None else str(found)


def check_site(name_or_path: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Everything that is wrong with a site file, one line each: file, line, key, problem.

    Raises:
        SiteError: there is no such site, or the file is not TOML.
    """
    path = site_path(name_or_path, environ)
    text = _read(path)
    problems = tuple(_problems(_parse(text, path)))  # only what parses has an outline
    lines = key_lines(text)
    return tuple(_located(p, lines, path) for p in problems)


def site_path(name_or_path: str | None, environ: Mapping[str, str]) -> Path:
    """The file that load_site reads. Raises SiteError for a name that is not bundled."""
    wanted = name_or_path or environ.get("SBTRAIN_SITE")
    if not wanted:
        return _private_site(environ.get("SLURM_CONF", "")) or _bundled("generic")
    if "/" in wanted or wanted.endswith(".toml"):
        return Path(wanted)
    if wanted not in bundled_sites():
        near = difflib.get_close_matches(wanted, bundled_sites(), n=1, cutoff=0.5)
        raise SiteError(
            f"there is no site named {wanted!r}"
            + (f"; did you mean {near[0]}?" if near else ""),
            hint=f"name one of {', '.join(bundled_sites())}, or the path of your own file",
        )
    return _bundled(wanted)


def bundled_sites() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def site_schema() -> dict[str, Any]:
    """schema.json: the shape of a site file as JSON Schema."""
    schema = json.loads(_folder().joinpath("schema.json").read_text(encoding="utf-8"))
    assert isinstance(schema, dict)
    return schema


def _folder() -> Path:
    import sbtrain_sites

    return Path(str(sbtrain_sites.__file__)).parent


def _bundled(name: str) -> Path:
    return _folder() / f"{name}.toml"


def _private_site(slurm_conf: str) -> Path | None:
    """The site of the private cluster that a SLURM_CONF belongs to.

    Such a cluster's folder holds cluster.json beside etc/slurm.conf, and may hold a site
    file of its own.
    """
    if not slurm_conf:
        return None
    folder = Path(slurm_conf).parent.parent
    if not (folder / "cluster.json").is_file():
        return None
    own = folder / "site.toml"
    return own if own.is_file() else _bundled("private")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SiteError(
            f"cannot read the site file {path}: {error.strerror}",
            hint=f"name one of {', '.join(bundled_sites())}, or the path of your own file",
        ) from error
    except UnicodeDecodeError as error:
        raise SiteError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error


def _valid(path: Path) -> dict[str, Any]:
    text = _read(path)
    data = _parse(text, path)
    problems = list(_problems(data))
    if problems:
        raise _site_error(problems, text, path)
    return data


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
        said, where = (found[1], f"{path}:{found[2]}") if found else (str(error), str(path))
        twice = re.fullmatch(r"Cannot declare \((.+)\) twice", said)
        if twice:
            said = ".".join(re.findall("'([^']*)'", twice[1])) + " is declared twice"
        raise SiteError(f"{where}: {said}", hint="toml.io describes the format") from error
    except (ValueError, RecursionError) as error:  # of Python itself, on its way to a value
        digits = re.search(r"\d{4000}", text)
        at = digits.start() if digits else len(text)
        line = text.count("\n", 0, at) + 1
        key = text[:at].rpartition("\n")[2].partition("=")[0].strip()
        raise SiteError(
            f"{path}:{line}: {key}: a number of very many digits"
            if digits
            else f"{path}: lists or tables are nested too deeply",
            hint="'sbtrainctl site keys' says what each key means",
        ) from error


def _site_error(problems: list[Problem], text: str, path: Path) -> SiteError:
    first = _located(problems[0], key_lines(text), path)
    more = len(problems) - 1
    return SiteError(
        first + (f" (and {more} more)" if more else ""),
        hint=f"sbtrainctl site check {path} lists all; 'sbtrainctl site keys' says what "
        "each key means",
    )


def _located(problem: Problem, lines: dict[KeyPath, int], path: Path) -> str:
    """path:line: key: message. A missing key's line is that of the table it belongs in."""
    place = problem.path
    while place and place not in lines:
        place = place[:-1]
    line = lines.get(place, 1)
    return f"{path}:{line}: {'.'.join(problem.path) or 'top level'}: {problem.message}"


def _problems(data: dict[str, Any]) -> Iterator[Problem]:
    broken = False
    for problem in schema_problems(data, site_schema()):
        broken = True
        yield problem
    if not broken:
        yield from _contradictions(data)


def _contradictions(data: dict[str, Any]) -> Iterator[Problem]:
    """What no single key shows: data fits the schema already."""
    if data["shared_client_gb_s"] > data["shared_gb_s"]:
        yield Problem(
            path=("shared_client_gb_s",),
            message=f"one client's {data['shared_client_gb_s']:g} is more than the "
            f"{data['shared_gb_s']:g} that all clients have together (shared_gb_s)",
        )
    gpus = data.get("gpus", {})
    for name, partition in data["partitions"].items():
        path = ("partitions", name)
        if re.search(r"[\s,:]", name) or not name:
            yield Problem(path=path, message=f"{name!r} cannot be a partition's name")
        for key, message in _partition_contradictions(partition, gpus):
            yield Problem(path=(*path, key), message=message)


def _partition_contradictions(
    partition: dict[str, Any], gpus: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    nodes, most = partition["nodes"], partition.get("max_nodes_per_job", 1)
    if most > nodes:
        yield "max_nodes_per_job", f"{most} is more than the partition's {nodes} nodes"
    gpu = partition.get("gpu")
    if gpu is not None and gpu not in gpus:
        known = ", ".join(gpus) or "none"
        yield "gpu", f"there is no gpus.{gpu} in this file (there: {known})"
    groups = partition.get("gpu_types", {})
    if groups and gpu is not None:
        yield "gpu_types", "given, and gpu too: give one of them"
    held = sum(group["nodes"] for group in groups.values())
    if held > nodes:
        yield "gpu_types", f"{held} nodes together, the partition has {nodes}"
    for name in groups:
        if name not in gpus:
            yield "gpu_types", f"there is no gpus.{name} in this file"
    if gpu is None and "gpus_per_node" in partition:
        yield "gpus_per_node", "given, but gpu is not"
    if not partition.get("preemptible", False) and "mean_time_to_preemption_h" in partition:
        yield "mean_time_to_preemption_h", "given, but preemptible is not true"
    longest = partition.get("max_time_h")
    default = partition.get("default_time_h", 0)
    if longest is not None and default > longest:
        yield "default_time_h", f"{default:g} is more than max_time_h, {longest:g}"
    for key in ("scratch_gib", "scratch_gb_s"):
        if key in partition and "scratch" not in partition:
            yield key, "given, but scratch is not"


def _shape(data: dict[str, Any], path: Path) -> ClusterShape:
    gpus = {
        name: GpuType(
            name=name,
            peak_tflops=float(gpu["peak_tflops"]),
            memory_gib=float(gpu["memory_gib"]),
            memory_bytes_s=gpu["memory_gb_s"] * _GB,
        )
        for name, gpu in data.get("gpus", {}).items()
    }
    plain = ("currency", "preemption_signal", "mpi_plugin", "max_requeues")
    given = {key: data[key] for key in plain if key in data}
    if "requeue_delay_s" in data:
        given["requeue_delay_s"] = float(data["requeue_delay_s"])
    return ClusterShape(
        name=data["name"],
        source=str(path),
        partitions=tuple(
            pool
            for name, partition in data["partitions"].items()
            for pool in _pools(_partition(name, partition, gpus), partition, gpus)
        ),
        shared_bytes_s=data["shared_gb_s"] * _GB,
        shared_client_bytes_s=data["shared_client_gb_s"] * _GB,
        **given,
    )


# Keys that a partition may leave out: field of Partition and factor to its unit.
_OPTIONAL = {
    "price_per_node_hour": ("price_per_node_hour", 1.0),
    "mean_time_to_preemption_h": ("mean_time_to_preemption_s", _HOUR_S),
    "grace_s": ("grace_s", 1.0),
    "max_time_h": ("max_time_s", _HOUR_S),
    "default_time_h": ("default_time_s", _HOUR_S),
    "network_gbit_s": ("network_bytes_s", _GBIT),
    "scratch_gb_s": ("scratch_bytes_s", _GB),
}


def _partition(name: str, data: dict[str, Any], gpus: dict[str, GpuType]) -> Partition:
    gpu = gpus[data["gpu"]] if "gpu" in data else None
    given = {
        field: data[key] * factor for key, (field, factor) in _OPTIONAL.items() if key in data
    }
    return Partition(
        name=name,
        nodes=data["nodes"],
        max_nodes_per_job=data.get("max_nodes_per_job", data["nodes"]),
        cores_per_node=data["cores_per_node"],
        memory_gib_per_node=float(data["memory_gib_per_node"]),
        gpu=gpu,
        gpus_per_node=data.get("gpus_per_node", 1) if gpu else 0,
        preemptible=data.get("preemptible", False),
        preempts_others=data.get("preempts_others", False),
        scratch_path=data.get("scratch"),
        scratch_bytes=int(data.get("scratch_gib", 0) * _GIB),
        **given,
    )


def _pools(
    plain: Partition, data: dict[str, Any], gpus: dict[str, GpuType]
) -> Iterator[Partition]:
    """A partition as it is; or, of several types of GPU, one a type and one of any nodes.

    Without a heterogeneous job Slurm cannot be asked for so many nodes of one type and so
    many of another: it is asked for one type, or for any.
    """
    types = data.get("gpu_types", {})
    if not types:
        yield plain
        return
    groups = []
    for name, of in types.items():
        group = GpuGroup(gpu=gpus[name], nodes=of["nodes"], gpus_per_node=of["gpus_per_node"])
        groups.append(group)
        yield dataclasses.replace(
            plain,
            name=f"{plain.name}:{name}",
            nodes=group.nodes,
            max_nodes_per_job=min(plain.max_nodes_per_job, group.nodes),
            gpu=group.gpu,
            gpus_per_node=group.gpus_per_node,
            gres=f"gpu:{of.get('gres', name)}:{group.gpus_per_node}",
        )
    if len(groups) > 1:
        yield _mixed(plain, groups)


def _mixed(plain: Partition, groups: list[GpuGroup]) -> Partition:
    """Any nodes, as many GPUs of each as all have; the slowest GPU sets all-reduce's pace."""
    fewest = min(group.gpus_per_node for group in groups)
    return dataclasses.replace(
        plain,
        name=f"{plain.name}:mixed",
        nodes=sum(group.nodes for group in groups),
        max_nodes_per_job=min(plain.max_nodes_per_job, sum(group.nodes for group in groups)),
        gpu=GpuType(
            name="mixed",
            peak_tflops=min(group.gpu.peak_tflops for group in groups),
            memory_gib=min(group.gpu.memory_gib for group in groups),
            memory_bytes_s=min(group.gpu.memory_bytes_s for group in groups),
        ),
        gpus_per_node=fewest,
        gres=f"gpu:{fewest}",
        mix=tuple(dataclasses.replace(group, gpus_per_node=fewest) for group in groups),
    )
