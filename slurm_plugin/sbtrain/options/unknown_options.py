"""Options that neither sbatch nor sbtrain knows: named, with what may have been meant.

They pass to sbatch as they are, because a plugin of the site may know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sbtrain.errors import ScriptError
from sbtrain.options.argv import CommandLine, Setting, nearest_option, unknown_options
from sbtrain.options.flag_table import FLAGS


def unknown_option_notes(settings: Sequence[Setting]) -> Iterator[str]:
    for name in unknown_options(settings):
        near = _meant(name)
        meant = f"; did you mean --{near}?" if near else ""
        yield f"unknown option --{name}: sbatch gets it as it is, the plan ignores it{meant}"


def _meant(name: str) -> str:
    ours = f"train-{name}"  # --site is sbtrainctl's word for --train-site
    return ours if ours in FLAGS else nearest_option(name, FLAGS)


@contextmanager
def unknown_options_named(line: CommandLine) -> Iterator[None]:
    """Reading the script inside the block: where there is none, the word may have been the
    value of an unknown option.

    Raises:
        ScriptError: as inside, with the option's name.
    """
    try:
        yield
    except ScriptError as error:
        loose = [one for one in line.settings if one.value is None]
        names = unknown_options(loose)
        if line.script is None or not names:
            raise
        near = _meant(names[-1])
        hint = "the value of an option that only your site knows is written behind '='"
        raise ScriptError(
            f"unknown option --{names[-1]}, so that {line.script!r} is taken for the script: "
            f"{error.message}",
            hint=f"did you mean --{near}?" if near else hint,
        ) from error
