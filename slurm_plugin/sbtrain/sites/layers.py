"""The site that a call plans for, laid from what is known of it: built in, said by Slurm,
/etc/sbtrain/*.toml, the user's own file, $SBTRAIN_SITE, --train-site. A later layer says more
or otherwise, key by key; of what Slurm knows, Slurm's word holds (sites/settled.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrain.sites.contradictions import contradictions
from sbtrain.sites.schema import KeyPath, Problem, schema_problems
from sbtrain.sites.settled import settled
from sbtrain.sites.shape import shape_of
from sbtrain.sites.site_file import (
    SiteFile,
    bundled,
    private_site,
    raise_for,
    read_site_file,
    site_path,
    site_schema,
)
from sbtrain_perf.request import ClusterShape

ADMINS = Path("/etc/sbtrain")
DISCOVERED = "Slurm"
_MOST_SAID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """data: in the form of a site file, of which the files state a part. stale: what of them
    Slurm contradicts, with file and line. invented: neither Slurm nor a file says anything."""

    shape: ClusterShape
    data: dict[str, Any]
    files: tuple[SiteFile, ...] = ()
    stale: tuple[str, ...] = ()
    invented: bool = False

    def stated_by(self) -> Iterator[tuple[KeyPath, object, str]]:
        """Each key that is not a table, its value, and the file that states it, or Slurm."""
        for path, value in _flat(self.data):
            said = (
                str(one.path)
                for one in reversed(self.files)
                if dict(_flat(one.data)).get(path) == value
            )
            yield path, value, next(said, DISCOVERED)


def load_site(
    name_or_path: str | None,
    environ: Mapping[str, str],
    found: Mapping[str, Any] | None = None,
    *,
    of_call: Mapping[str, Any] | None = None,
    to_run: bool = False,
    asks_gpus: bool = False,
) -> Site:
    """
    Args:
        name_or_path: a bundled site's name, or the path of a file; laid over $SBTRAIN_SITE.
        found: what Slurm says (sites/discovery.py); None: nothing, and files are believed.
        of_call: the same of those nodes alone that the call may have.
        to_run: on this very cluster. Otherwise a named file of which no partition is here is
            another cluster's, and is believed alone.
        asks_gpus: the call does, also of partitions whose GPUs a file leaves out of plans.

    Raises:
        SiteError: there is no such site, or a file is wrong; the message names the file, the
            line and the dotted key.
    """
    files = _of_one_cluster(list(_files(name_or_path, environ)), found)
    if found is not None and not found["partitions"]:
        found = None
    named = name_or_path or environ.get("SBTRAIN_SITE")
    if found is not None and named and not to_run and _elsewhere(files[-1], found):
        files, found = files[-1:], None
    stated = _merged(files)
    stale: tuple[str, ...] = ()
    invented = found is None and not stated.get("partitions")
    if found is not None:
        checked = settled(found, stated, asks_gpus=asks_gpus)
        data = checked.data
        if of_call:
            data = _of_call(data, of_call, stated, found, asks_gpus=asks_gpus)
        stale = tuple(_located(problem, files) for problem in checked.problems)
    elif invented:
        files = [read_site_file(bundled("generic")), *files]
        data = _merged(files)
    else:
        data = stated
    sources = [*([DISCOVERED] if found is not None else []), *(str(one.path) for one in files)]
    source = " and ".join(sources)
    if files:
        data.setdefault("name", files[-1].path.stem)
    problems = list(schema_problems(data, site_schema())) or list(contradictions(data))
    if problems and files:
        raise_for(problems, _owner(problems[0], files))
    return Site(
        shape=shape_of(data, source),
        data=data,
        files=tuple(files),
        stale=stale,
        invented=invented,
    )


def form_problems(path: Path) -> tuple[str, ...]:
    """Everything that is wrong with a file by itself, one line each.

    Raises:
        SiteError: it cannot be read, others may write it, or it is not TOML.
    """
    from sbtrain.sites.site_file import parsed

    one = parsed(path)
    problems = list(schema_problems(one.data, site_schema(), whole=False))
    problems = problems or list(contradictions(one.data, whole=False))
    return tuple(map(one.located, problems))


def _of_call(
    data: Mapping[str, Any],
    narrowed: Mapping[str, Any],
    stated: Mapping[str, Any],
    found: Mapping[str, Any],
    *,
    asks_gpus: bool,
) -> dict[str, Any]:
    """Where a file repeats what Slurm says of all nodes, Slurm's word for fewer counts."""
    more = {
        name: {
            key: value
            for key, value in one.items()
            if found["partitions"][name].get(key) != value
        }
        for name, one in stated.get("partitions", {}).items()
        if name in narrowed["partitions"]
    }
    settled_anew = settled(narrowed, {"partitions": more}, asks_gpus=asks_gpus).data
    tables = dict(data["partitions"])
    for name, table in settled_anew["partitions"].items():
        kept = {key: value for key, value in tables[name].items() if key == "planned"}
        tables[name] = {**_named_alike(table, tables[name]), **kept}
    gpus = {**narrowed.get("gpus", {}), **data.get("gpus", {})}
    return {**data, **({"gpus": gpus} if gpus else {}), "partitions": tables}


def _named_alike(table: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """One type of GPU is still one of several: what is learnt of it is kept by its name."""
    types = whole.get("gpu_types")
    if types is None or "gpu" not in table:
        return table
    name = table["gpu"]
    of = {"nodes": table["nodes"], "gpus_per_node": table["gpus_per_node"]}
    gres = {key: word for key, word in types.get(name, {}).items() if key == "gres"}
    plain = {key: table[key] for key in table if key not in ("gpu", "gpus_per_node")}
    return {**plain, "gpu_types": {name: of | gres}}


def _elsewhere(file: SiteFile, found: Mapping[str, Any]) -> bool:
    """It describes another cluster, none of whose partitions is here."""
    partitions = file.data.get("partitions", {})
    return bool(partitions) and not any(name in found["partitions"] for name in partitions)


def stale_note(stale: Sequence[str]) -> str:
    """One warning of all."""
    more = len(stale) - _MOST_SAID
    said = "; ".join(stale[:_MOST_SAID]) + (f"; and {more} more" if more > 0 else "")
    return f"{said}: Slurm's word holds ('sbtrainctl site check' lists all)"


def _files(wanted: str | None, environ: Mapping[str, str]) -> Iterator[SiteFile]:
    """The layers of files, the weakest first."""
    own = private_site(environ)
    for path in (*sorted(ADMINS.glob("*.toml")), *([own] if own else []), *_users(environ)):
        if path.is_file():
            yield read_site_file(path)
    for one in dict.fromkeys((environ.get("SBTRAIN_SITE"), wanted)):
        if one:
            yield read_site_file(site_path(one))


def _users(environ: Mapping[str, str]) -> Iterator[Path]:
    """$XDG_CONFIG_HOME/sbtrain/site.toml, else ~/.config's."""
    named = environ.get("XDG_CONFIG_HOME", "")
    home = environ.get("HOME", "")
    folder = Path(named) if named.startswith("/") else Path(home) / ".config"
    path = folder / "sbtrain" / "site.toml"
    if (home or named) and path.is_file():
        yield path


def _of_one_cluster(
    files: Sequence[SiteFile], found: Mapping[str, Any] | None
) -> list[SiteFile]:
    """Files that name one cluster, or none: that of the strongest; of several below
    /etc/sbtrain, the one that is Slurm's ClusterName."""
    names = [_name(one) for one in files if "name" in one.data]
    if len(set(names)) < 2:
        return list(files)
    name = names[-1]
    above = [one for one in files if one.path.parent != ADMINS and "name" in one.data]
    if found is not None and not above and found["name"].lower() in names:
        name = found["name"].lower()
    return [one for one in files if "name" not in one.data or _name(one) == name]


def _name(file: SiteFile) -> str:
    """Slurm makes all letters of ClusterName small."""
    return str(file.data["name"]).lower()


def _merged(files: Sequence[SiteFile]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for one in files:
        data = _laid(data, one.data)
    return data


def _laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    laid = dict(below)
    for key, value in above.items():
        laid[key] = _laid(below.get(key, {}), value) if isinstance(value, dict) else value
    return laid


def _flat(data: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value


def _located(problem: Problem, files: Sequence[SiteFile]) -> str:
    return _owner(problem, files).located(problem)


def _owner(problem: Problem, files: Sequence[SiteFile]) -> SiteFile:
    """The strongest file that has the key, or the table that it is missing in."""
    place = problem.path
    while place:
        for one in reversed(files):
            if place in one.lines:
                return one
        place = place[:-1]
    return files[-1]
