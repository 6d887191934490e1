"""The parser of sbtrainctl's commands: no abbreviations, help that fits the screen."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sbtrain.commands.streams import WIDTH, screen_width

if TYPE_CHECKING:
    # argparse has no public name for it.
    Subparsers = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """What add_subparsers and add_parser make of it is one too."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": _Help, "allow_abbrev": False, **given})


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str, **given: Any) -> None:
        super().__init__(prog, **{"width": min(screen_width(), WIDTH), **given})
