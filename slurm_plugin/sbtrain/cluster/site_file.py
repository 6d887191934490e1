"""A private cluster's own site file: the bundled one with this cluster's node counts, and
staging into the nodes' own folders. Written once; from then on it is the user's to edit."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sbtrain.sites.site_file import bundled
from sbtrain_staging.publish import publish_bytes

FILE = "site.toml"


def write_site_file(folder: Path, *, nodes_per_kind: int) -> None:
    """Leave `site.toml` in the cluster's folder unless it is there."""
    target = folder / FILE
    if not target.exists():
        private = bundled("private").read_text(encoding="utf-8")
        text = site_text(private, folder=folder, nodes_per_kind=nodes_per_kind)
        publish_bytes(target, text.encode())


def site_text(bundled: str, *, folder: Path, nodes_per_kind: int) -> str:
    """The bundled private site for one cluster. A folder with a per cent sign in its path
    cannot be named in a site file, where % stands for a node; it keeps the bundled scratch."""
    counts = {"4": nodes_per_kind, "8": 2 * nodes_per_kind}
    text = re.sub(
        r"^nodes = ([48])$", lambda found: f"nodes = {counts[found[1]]}", bundled, flags=re.M
    )
    if "%" in str(folder):
        return text
    scratch = json.dumps(str(folder / "tmp" / "%n"), ensure_ascii=False)
    return re.sub(r'^scratch = ".*"$', lambda _: f"scratch = {scratch}", text, flags=re.M)
