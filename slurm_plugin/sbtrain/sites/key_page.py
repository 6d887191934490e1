"""The page of a site file's keys, in Markdown, made of schema.json: docs/site-keys.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BEGINNING = """\
# The keys of a site file
A cluster is described to the planner by Slurm itself, and by site files in TOML, which say \
what Slurm does not know. None is needed, and one may hold as little as one key. From weak to \
strong: the defaults below; Slurm's word; `/etc/sbtrain/*.toml`; \
`~/.config/sbtrain/site.toml`; `SBTRAIN_SITE=FILE`; `--train-site FILE`.

Where a file contradicts Slurm in what Slurm knows (nodes, cores, memory, GPUs, limits, who \
is preempted), Slurm's word holds, with a warning; a file may ask for less of it, such as a \
lower `max_nodes_per_job` or `gpus_per_node = 0`. Where files state prices, partitions that \
none of them lists are planned for those alone who name them. A file that everybody may write \
is refused.

`sbtrainctl site init` prints Slurm's word as a file to edit, `sbtrainctl site check` \
compares, `sbtrainctl site show --origin` says where each key comes from. This page is what \
`sbtrainctl site keys` prints.

"""
_END = """
## Checked besides
- `nodes` and `cores_per_node` are required where Slurm is not there to say them.
- `shared_client_gb_s` is at most `shared_gb_s`.
- `max_nodes_per_job`, and the nodes of all `gpu_types` together, are at most `nodes`.
- `gpu` and the names under `gpu_types` are names under `gpus`, or of types that are known by \
name; a partition has one of the two.
- `gpus_per_node` stands beside `gpu`, `mean_time_to_preemption_h` beside `preemptible`, \
unless Slurm says the other.
- `default_time_h` is at most `max_time_h`.
- A partition's name holds no blank, comma or colon.
"""
_KINDS = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "tables",
}
_NAMES = {"gpus": "TYPE", "partitions": "NAME", "gpu_types": "TYPE"}


def key_page(schema: Mapping[str, Any]) -> str:
    """One section a table of the file: its keys with type, limits, default and meaning."""
    sections = "".join(_sections(schema, ()))
    return f"{_BEGINNING}{schema['description']}\n{sections}{_END}"


def _sections(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    keys: Mapping[str, Any] = table["properties"]
    title = f"`[{'.'.join(path)}]`" if path else "At the top of the file"
    yield f"\n## {title}\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for key, said in keys.items():
        meaning, _, words = said["description"].partition("; default: ")
        default = "required" if key in table.get("required", ()) else words or said["default"]
        yield f"| `{key}` | {_value(said)} | {_shown(default)} | {meaning} |\n"
    for key, said in keys.items():
        if said["type"] == "object":
            yield from _sections(said["additionalProperties"], (*path, key, _NAMES[key]))


def _value(said: Mapping[str, Any]) -> str:
    pattern = said.get("pattern", "")
    if words := re.fullmatch(r"\^\(([A-Z0-9|]+)\)\$", pattern):
        return words[1].replace("|", ", ")
    if pattern:
        return f"text of the form `{pattern}`".replace("|", "\\|")
    low = said.get("minimum")
    if low is None:
        return _KINDS[said["type"]]
    return f"{_KINDS[said['type']]}, {_shown(low)} to {_shown(said['maximum'])}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.12g}" if value >= 0.001 or value == 0 else f"{value:.6f}"
