"""The command line of sbtrain: what is sbatch's (kept verbatim and in order), what is ours
(`--train-*`), and the script with its arguments.

The grammar is sbatch's own: getopt_long, which takes a long option by an unambiguous
prefix, its value after `=` or as the next word, bundles short options, and stops at the
first word that is no option. The table is the union of Slurm 22.05 and 24.11, read off both
programs. A long option that is not in it passes as it is, without a value of its own: a
site's plugin may know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from sbtrain.errors import HeterogeneousError, SbatchUsageError, ScriptError
from sbtrain_perf.errors import RequestError

Takes = Literal["value", "maybe", "nothing"]

TRAIN_PREFIX = "--train-"
_ALIKE = 0.8  # of difflib: what two names have in common when one is the other misspelt

_VALUE = """account acctg-freq array autocomplete batch bb bbf begin chdir cluster
cluster-constraint clusters comment constraint container container-id context core-spec
cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq
gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power prefer
priority profile qos reservation segment signal sockets-per-node switches tasks-per-node
thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes
wckey wrap"""
_MAYBE = "exclusive get-user-env nice no-kill oom-kill-step propagate resv-ports"
_NOTHING = """contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable
quiet reboot requeue spread-job stepmgr test-only usage use-min-nodes verbose version wait"""

LONG: Mapping[str, Takes] = {
    **dict.fromkeys(_VALUE.split(), "value"),
    **dict.fromkeys(_MAYBE.split(), "maybe"),
    **dict.fromkeys(_NOTHING.split(), "nothing"),
}
SHORT: Mapping[str, str] = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "Q": "quiet",
    "S": "core-spec",
    "V": "version",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "h": "help",
    "i": "input",
    "k": "no-kill",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "x": "exclude",
}
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
# What sbtrain does itself: its own script takes the place of --wrap, and sbatch must print
# the job's id and end at once. Such words are read and not passed on.
DONE_HERE = {"wrap", "wait", "quiet"}


class Setting(NamedTuple):  # a dataclass costs what is handed on to sbatch a tenth of its time
    """One option as sbatch reads it: the long name, and its value if it has one."""

    name: str
    value: str | None = None


class Words(NamedTuple):
    """Words split by getopt's rules.

    words holds sbatch's words untouched and in order, except --wrap, --wait and --quiet, and
    theirs those too; settings what all of them mean; train the words of our own flags as
    (flag, value); rest what follows the last option, behind the `--` that stop holds where
    one stands there.
    """

    words: tuple[str, ...]
    theirs: tuple[str, ...]
    stop: tuple[str, ...]
    settings: tuple[Setting, ...]
    train: tuple[tuple[str, str | None], ...]
    rest: tuple[str, ...]


class CommandLine(NamedTuple):
    """One call of sbtrain. script is None when it comes from standard input or --wrap.
    without_ours: every word but those of our own flags, as sbatch would be called. settings
    and the like are those of the first component, where there are several."""

    without_ours: tuple[str, ...]
    components: int
    sbatch_words: tuple[str, ...]
    settings: tuple[Setting, ...]
    train: tuple[tuple[str, str | None], ...]
    script: str | None
    script_args: tuple[str, ...]
    wrap: str | None

    @property
    def shows_only(self) -> bool:
        """Whether nothing may be submitted."""
        return any(name in ("train-explain", "train-dry-run") for name, _ in self.train)


def split_command_line(argv: Sequence[str], train_flags: Mapping[str, bool]) -> CommandLine:
    """Split the words after the program's name.

    Args:
        train_flags: our flags without their leading dashes, and whether each takes a value;
            sbtrainctl's own among them where it reads the line.

    Raises:
        SbatchUsageError, ScriptError: what sbatch refuses: an option lacks its value; --wrap
            with a script.
        RequestError: one of ours is unknown or lacks its value.
    """
    split = part = split_words(argv, train_flags)
    without_ours, train, components = part.theirs, part.train, 1
    while part.rest and part.rest[0] == ":":
        part = split_words(part.rest[1:], train_flags)
        without_ours += (":", *part.theirs)
        train += part.train
        components += 1
    rest = part.rest
    wrap = last_value(split.settings, "wrap")
    if wrap is not None and rest:
        raise ScriptError(
            "script arguments are not permitted with --wrap",
            hint="give either --wrap or a script",
        )
    return CommandLine(
        without_ours=(*without_ours, *part.stop, *rest),
        components=components,
        sbatch_words=split.words,
        settings=split.settings,
        train=train,
        script=rest[0] if rest else None,
        script_args=rest[1:],
        wrap=wrap,
    )


def split_words(argv: Sequence[str], train_flags: Mapping[str, bool]) -> Words:
    """Split words by getopt's rules, `+` mode.

    Raises:
        SbatchUsageError: an option of sbatch lacks its value.
        RequestError: one of ours is unknown or lacks its value.
    """
    words: list[str] = []
    theirs: list[str] = []
    stop: tuple[str, ...] = ()
    settings: list[Setting] = []
    train: list[tuple[str, str | None]] = []
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            stop = ("--",)
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        following = argv[at + 1] if at + 1 < len(argv) else None
        if word.startswith(TRAIN_PREFIX) or _name(word) in train_flags:
            flag, taken = _train(word, following, train_flags)
            train.append(flag)
        else:
            if word.startswith("--"):
                _refuse_misspelt(word, train_flags)
                found, taken = _long(word, following)
                wrong = "=" in word and found[0].name != "wrap"  # which sbatch says
                kept = word if wrong or found[0].name not in DONE_HERE else ""
            else:
                found, taken = _bundle(word, following)
                kept = _without_ours(word, found)
            settings.extend(found)
            values = argv[at + 1 : at + 1 + taken]
            theirs.extend((word, *values))
            if kept:
                words.extend((kept, *values))
        at += 1 + taken
    return Words(
        words=tuple(words),
        theirs=tuple(theirs),
        stop=stop,
        settings=tuple(settings),
        train=tuple(train),
        rest=tuple(argv[at:]),
    )


def last_value(settings: Sequence[Setting], name: str) -> str | None:
    """The value that counts: the last one given, or None where the option is absent."""
    for setting in reversed(settings):
        if setting.name == name:
            return setting.value
    return None


def given(settings: Sequence[Setting], *names: str) -> bool:
    return any(setting.name in names for setting in settings)


def heterogeneous() -> HeterogeneousError:
    return HeterogeneousError(
        "heterogeneous jobs (several components, ':' or hetjob) cannot be planned",
        hint="give one component: sbtrain places servers and workers in it itself; "
        "or submit this one with sbatch",
    )


def resolve(name: str) -> tuple[str, Takes] | None:
    """A long option's full name and what it takes; None when sbatch would not know it.

    Raises:
        SbatchUsageError: it stands for several.
    """
    candidates = [name] if name in LONG else [full for full in LONG if full.startswith(name)]
    if not candidates:
        return None
    if len(candidates) > 1:
        raise SbatchUsageError(
            f"option --{name} is ambiguous: " + ", ".join(f"--{full}" for full in candidates),
            hint="write it in full",
        )
    (full,) = candidates
    return _ALIASES.get(full, full), LONG[full]


def _long(word: str, following: str | None) -> tuple[list[Setting], int]:
    name, equals, text = word[2:].partition("=")
    value = text if equals else None
    known = resolve(name)
    if known is None:
        return [Setting(name=name, value=value)], 0
    name, takes = known
    if takes == "value" and value is None:
        if following is None:
            raise SbatchUsageError(
                f"option --{name} requires an argument", hint=f"write --{name}=VALUE"
            )
        return [Setting(name=name, value=following)], 1
    return [Setting(name=name, value=value)], 0


def _bundle(word: str, following: str | None) -> tuple[list[Setting], int]:
    """`-HN4`: options without a value, then perhaps one with, attached or as next word."""
    found: list[Setting] = []
    for place, letter in enumerate(word[1:], start=1):
        if letter not in SHORT:
            found.append(Setting(name=letter))
            continue
        name = SHORT[letter]
        attached = word[place + 1 :]
        takes = LONG[name]
        if takes == "nothing":
            found.append(Setting(name=name))
        elif takes == "maybe" or attached:
            found.append(Setting(name=name, value=attached or None))
            return found, 0
        elif following is None:
            raise SbatchUsageError(
                f"option -{letter} requires an argument", hint=f"write --{name}=VALUE"
            )
        else:
            found.append(Setting(name=name, value=following))
            return found, 1
    return found, 0


def _without_ours(word: str, found: Sequence[Setting]) -> str:
    """A bundle without the letters of what sbtrain does itself: `-HW` is then `-H`."""
    letters = word[1 : 1 + len(found)]
    kept = [
        letter
        for letter, setting in zip(letters, found, strict=True)
        if setting.name not in DONE_HERE
    ]
    rest = word[1 + len(found) :]
    return f"-{''.join(kept)}{rest}" if kept else ""


def unknown_options(settings: Sequence[Setting]) -> tuple[str, ...]:
    """Long options that neither sbatch nor sbtrain knows, in order, each once."""
    names = (setting.name for setting in settings if len(setting.name) > 1)
    return tuple(dict.fromkeys(name for name in names if name not in LONG))


def nearest_option(name: str, train_flags: Iterable[str]) -> str:
    """The known long option that is written most like this one; empty where none is."""
    from difflib import get_close_matches

    near = get_close_matches(name, (*train_flags, *LONG), n=1, cutoff=_ALIKE)
    return near[0] if near else ""


def _name(word: str) -> str:
    return word[2:].partition("=")[0] if word.startswith("--") else ""


def _refuse_misspelt(word: str, train_flags: Mapping[str, bool]) -> None:
    """One of ours with letters wrong: what is written like it can be no plugin's option."""
    name = _name(word)
    if not train_flags or resolve(name) is not None:
        return
    near = nearest_option(name, train_flags)
    if near in train_flags:
        raise RequestError(f"unknown option --{name}", hint=f"did you mean --{near}?")


def _train(
    word: str, following: str | None, train_flags: Mapping[str, bool]
) -> tuple[tuple[str, str | None], int]:
    name, equals, text = word[2:].partition("=")
    if name not in train_flags:
        from difflib import get_close_matches

        prefix = TRAIN_PREFIX.removeprefix("--")  # alike in all, so it makes none of them near
        known = [flag.removeprefix(prefix) for flag in train_flags if flag.startswith(prefix)]
        near = get_close_matches(name.removeprefix(prefix), known, n=1)
        raise RequestError(
            f"unknown option --{name}",
            hint=f"did you mean {TRAIN_PREFIX}{near[0]}?"
            if near
            else "sbtrain --help lists them",
        )
    if not train_flags[name]:
        if equals:
            raise RequestError(f"option --{name} takes no value", hint=f"write --{name} alone")
        return (name, None), 0
    if equals:
        return (name, text), 0
    if following is None:
        raise RequestError(
            f"option --{name} requires an argument", hint=f"write --{name}=VALUE"
        )
    return (name, following), 1
