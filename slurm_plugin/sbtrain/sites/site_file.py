"""One site file: TOML -> data in the form of schema.json, or what is wrong with it and where.

A file may hold as little as one key: what is left out is Slurm's word, or a default
(sites/layers.py).
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrain.errors import SiteError
from sbtrain.sites.schema import KeyPath, Problem, schema_problems
from sbtrain.sites.toml_lines import key_lines

_WRITABLE_BY_ALL = 0o002


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """data: right as far as it goes. lines: from 1, of each key and table."""

    path: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int]

    def located(self, problem: Problem) -> str:
        """path:line: key: message. A missing key's line is that of the table it belongs in."""
        place = problem.path
        while place and place not in self.lines:
            place = place[:-1]
        key = ".".join(problem.path) or "top level"
        return f"{self.path}:{self.lines.get(place, 1)}: {key}: {problem.message}"


def read_site_file(path: Path) -> SiteFile:
    """
    Raises:
        SiteError: it cannot be read, others may write it, or what it says is wrong; the
            message names the file, the line and the dotted key.
    """
    found = parsed(path)
    raise_for(list(schema_problems(found.data, site_schema(), whole=False)), found)
    return found


def raise_for(problems: Sequence[Problem], found: SiteFile) -> None:
    """Raises SiteError where there are any."""
    if problems:
        more = len(problems) - 1
        raise SiteError(
            found.located(problems[0]) + (f" (and {more} more)" if more else ""),
            hint=f"sbtrainctl site check {found.path} lists all; 'sbtrainctl site keys' says "
            "what each key means",
        )


def parsed(path: Path) -> SiteFile:
    """The file, right or wrong.

    Raises:
        SiteError: it cannot be read, others may write it, or it is not TOML.
    """
    text = _read(path)
    return SiteFile(path=path, data=_parse(text, path), lines=key_lines(text))


def site_path(wanted: str) -> Path:
    """The file of a bundled site's name, or of a path (with a slash, or ending in .toml).

    Raises:
        SiteError: the name is not bundled.
    """
    if "/" in wanted or wanted.endswith(".toml"):
        return Path(wanted)
    if wanted not in bundled_sites():
        near = difflib.get_close_matches(wanted, bundled_sites(), n=1, cutoff=0.5)
        raise SiteError(
            f"there is no site named {wanted!r}"
            + (f"; did you mean {near[0]}?" if near else ""),
            hint=f"name one of {', '.join(bundled_sites())}, or the path of your own file",
        )
    return bundled(wanted)


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


def bundled(name: str) -> Path:
    return _folder() / f"{name}.toml"


def private_site(environ: Mapping[str, str]) -> Path | None:
    """The site of the private cluster that SLURM_CONF belongs to.

    Such a cluster's folder holds cluster.json beside etc/slurm.conf, and may hold a site
    file of its own.
    """
    conf = environ.get("SLURM_CONF")
    if not conf:
        return None
    folder = Path(conf).parent.parent
    if not (folder / "cluster.json").is_file():
        return None
    own = folder / "site.toml"
    return own if own.is_file() else bundled("private")


def _read(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_mode & _WRITABLE_BY_ALL:
            raise SiteError(
                f"everybody may write the site file {path}", hint=f"chmod o-w {path}"
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SiteError(
            f"cannot read the site file {path}: {error.strerror}",
            hint=f"name one of {', '.join(bundled_sites())}, or the path of your own file",
        ) from error
    except UnicodeDecodeError as error:
        raise SiteError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error


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
