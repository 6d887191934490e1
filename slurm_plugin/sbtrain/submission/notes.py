"""What a user should know of a script that sbtrain starts otherwise than sbatch would: once
for every role, on every node."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from sbtrain.options.argv import CommandLine
from sbtrain.options.flags import FLAGS
from sbtrain.options.unknown_options import unknown_option_notes
from sbtrain.submission.asked import Asked
from sbtrain.submission.script_layouts import layouts_of

_LAUNCHERS = re.compile(
    r"^[ \t]*(?:exec[ \t]+|time[ \t]+)?(srun|mpirun|mpiexec|horovodrun)(?=[ \t])", re.MULTILINE
)


def script_notes(
    asked: Asked, line: CommandLine, *, own: Container[str] = FLAGS, who: str = "sbtrain"
) -> Iterator[str]:
    """One line each, for stderr.

    Args:
        own: options of the command `who`, without their leading dashes.
    """
    script = asked.script
    said = {name for name, _ in (*asked.directives.train, *line.train)}
    yield from _layout_notes(asked, by_user="train-layout" in said)
    if asked.options.data and not asked.request.data.total_bytes:
        yield f"--train-data holds nothing yet: {', '.join(asked.request.data.paths)}"
    launcher = None if script.is_python else _LAUNCHERS.search(script.text)
    if launcher:
        number = script.text.count("\n", 0, launcher.start(1)) + 1
        yield (
            f"{script.shown}:{number}: {launcher[1]} starts processes on all nodes, and "
            f"sbtrain starts the script on every node: write the command without "
            f"{launcher[1]}, or submit with sbatch"
        )
    yield from unknown_option_notes(asked.settings)
    for word in line.script_args:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in own:
            yield (
                f"--{name} stands behind the script, so the script gets it; write it before "
                f"{line.script}, where it is meant for {who}"
            )


def _layout_notes(asked: Asked, *, by_user: bool) -> Iterator[str]:
    """What the script made of the layout, or what the user's layout makes of the script."""
    script, layout = asked.script, asked.options.layout
    found = layouts_of(script)
    if not by_user and layout == "allreduce" and not found.plain:
        yield (
            f"planned without parameter servers: {script.shown} {found.why}; "
            "--train-layout=auto weighs them too"
        )
    elif not by_user and layout == "ps":
        yield (
            f"planned with parameter servers: {script.shown} {found.why}; "
            "--train-layout=auto weighs all-reduce too"
        )
    elif by_user and layout == "ps" and found.layout == "allreduce":
        does = "its parameter servers will run it as the workers do"
        if script.uses_sbtrain:
            does = (
                "in join() its servers and workers will serve TensorFlow, and one rank trains"
            )
        yield f"{script.shown} {found.why}: {does}"
