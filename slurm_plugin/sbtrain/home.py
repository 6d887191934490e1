"""The user-level home of sbtrain: where the list of runs and what was learnt lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sbtrain.errors import HomeError

COEFFICIENTS_NAME = "coefficients.json"
RUNS_NAME = "runs.jsonl"


def home(environ: Mapping[str, str]) -> Path:
    """$SBTRAIN_HOME, else $XDG_DATA_HOME/sbtrain, else ~/.local/share/sbtrain.

    A relative XDG_DATA_HOME does not count, as its specification says.
    """
    own = environ.get("SBTRAIN_HOME")
    if own:
        return Path(own).expanduser().absolute()
    data = Path(environ.get("XDG_DATA_HOME") or "")
    if not data.is_absolute():
        try:
            data = Path.home() / ".local/share"
        except RuntimeError as error:
            raise HomeError(
                f"there is no home folder: {error}", hint="set SBTRAIN_HOME to a folder"
            ) from None
    return data / "sbtrain"


def made_home(environ: Mapping[str, str]) -> Path:
    """The home, made for this user alone where it is not there yet.

    Raises:
        HomeError: it cannot be made.
    """
    folder = home(environ)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(
            f"cannot make {folder}: {error.strerror}",
            hint="set SBTRAIN_HOME to a folder that you may write",
        ) from error
    return folder


def learnt_coefficients(environ: Mapping[str, str]) -> Path | None:
    """The coefficients that a refit has written; None until there are any."""
    path = home(environ) / COEFFICIENTS_NAME
    return path if path.is_file() else None
