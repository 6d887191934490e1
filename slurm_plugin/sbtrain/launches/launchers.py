"""Which commands start processes over the nodes of a job, and what may stand before one:
`env`, `time`, `timeout 10`, `apptainer exec IMAGE` and the like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Letters that every launch line has; a text without them has none.
LETTERS = (
    *("run", "mpiexec", "launch", "deepspeed", "ray", "clush", "dsh", "pssh", "parallel"),
    "flux",
)
_LAUNCHER = re.compile(
    r"srun|yhrun|(?:mpirun|mpiexec|orterun|prterun|oshrun|shmemrun)(?:[._-]\w+)?|prun|torchrun|"
    r"deepspeed|horovodrun|jsrun|lrun|aprun|ibrun|ccc_mprun|likwid-mpirun|charmrun|clush|pdsh|"
    r"pssh|parallel-ssh|pbsdsh"
)
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "accelerate": frozenset({"launch"}),
    "ray": frozenset({"start"}),
    "colossalai": frozenset({"run"}),
    "flux": frozenset({"run", "submit"}),
    "fabric": frozenset({"run"}),
    "lightning": frozenset({"run"}),
}
_MODULES = frozenset(
    {
        *("torch.distributed.run", "torch.distributed.launch"),
        *("accelerate.commands.launch", "deepspeed.launcher.runner"),
        *("horovod.runner", "horovod.run", "horovod.runner.launch"),
    }
)
_ASKS = frozenset({"--version", "-V", "--help", "-h", "-?", "--usage", "--info"})
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
SHELLS = frozenset({"sh", "bash", "dash", "ksh", "ksh93", "mksh", "zsh", "ash", "csh", "tcsh"})
_MOST_PREFIXES = 30  # `env` before `env` before `env`
_LOOKS_UP = frozenset({"which", "type", "whence", "eval", "trap", "su", "sg"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REMOTE = re.compile(r"-S.*|--sshlogin(?:file)?(?:=.*)?|--slf(?:=.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """program starts processes as `words` say."""

    program: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A command that runs `text` as a shell, or a Python, does; None: what it reads."""

    text: str | None
    python: bool = False


class Unknown(str):
    """A word that a variable stands for whose value is not known: it may be no word at all."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefix:
    """A command that starts the one behind it. values: its options that take the next word;
    skip: words of its own before the command; subcommands: one of these comes first; not_if:
    an option with which it starts nothing."""

    values: frozenset[str] = frozenset()
    skip: int = 0
    subcommands: frozenset[str] = frozenset()
    not_if: frozenset[str] = frozenset()


def _prefix(values: str = "", *, skip: int = 0, of: str = "", not_if: str = "") -> _Prefix:
    return _Prefix(
        values=frozenset(values.split()),
        skip=skip,
        subcommands=frozenset(of.split()),
        not_if=frozenset(not_if.split()),
    )


_CONTAINER = _prefix(
    "-B --bind -H --home -o --overlay -W --workdir -S --scratch --pwd --cwd --app --env "
    "--env-file --network --security --mount --add-caps --drop-caps --hostname --dns "
    "--fusemount --apply-cgroups --pem-path",
    skip=1,
    of="exec run",
)
_OCI = _prefix(
    "-v --volume -e --env -w --workdir -u --user --name --network --net --gpus --device "
    "--mount --entrypoint --env-file --ipc --shm-size --ulimit -m --memory --cpus -p "
    "--publish --security-opt --cap-add -h --hostname --group-add --runtime",
    skip=1,
    of="run exec",
)
_IN_ENVIRONMENT = _prefix("-n --name -p --prefix --cwd -e --environment --with", of="run exec")
_PREFIXES: Mapping[str, _Prefix] = {
    "env": _prefix("-u --unset -C --chdir"),
    "command": _prefix(not_if="-v -V"),
    "exec": _prefix("-a"),
    "builtin": _prefix(),
    "nohup": _prefix(),
    "setsid": _prefix(),
    "unbuffer": _prefix(),
    "time": _prefix("-f --format -o --output"),
    "nice": _prefix("-n --adjustment"),
    "ionice": _prefix("-c --class -n --classdata", not_if="-p --pid"),
    "chrt": _prefix("-T -P -D", skip=1, not_if="-p --pid"),
    "taskset": _prefix(skip=1, not_if="-p --pid"),
    "numactl": _prefix(
        "-N --cpunodebind -m --membind -C --physcpubind -i --interleave -p --preferred "
        "--weighted-interleave -w"
    ),
    "hwloc-bind": _prefix("--cpubind --membind", skip=1),
    "stdbuf": _prefix("-i --input -o --output -e --error"),
    "timeout": _prefix("-k --kill-after -s --signal", skip=1),
    "sudo": _prefix("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T"),
    "doas": _prefix("-u -C"),
    "flock": _prefix("-w --wait --timeout -E --conflict-exit-code", skip=1),
    "xargs": _prefix("-n -P -I -d -a -L -s -E --max-args --max-procs --delimiter --arg-file"),
    "watch": _prefix("-n --interval"),
    "strace": _prefix("-e -o -s -p -u -E -P -I -O -S -X -a -b"),
    "ltrace": _prefix("-e -o -s -p -u -n -l -x -a"),
    "perf": _prefix("-e --event -o --output -F -g -C -p -c", of="stat record trace mem"),
    "nsys": _prefix(
        "-o --output -t --trace -s --sample -c --capture-range", of="profile launch"
    ),
    "ncu": _prefix("-o --export -k --kernel-name -s -c --set --section"),
    "vtune": _prefix("-c -collect -r -result-dir -knob"),
    "tau_exec": _prefix("-T"),
    "map": _prefix("-o --output"),
    "ddt": _prefix("-o --output"),
    "perf-report": _prefix("-o --output"),
    "likwid-pin": _prefix("-c -C"),
    "likwid-perfctr": _prefix("-c -C -g -o"),
    "xvfb-run": _prefix("-s --server-args -n --server-num -e --error-file -f -w -p"),
    "catchsegv": _prefix(),
    "ch-run": _prefix("-b --bind -c --cd --set-env --unset-env -m --mount", skip=1),
    "shifter": _prefix("-i --image -V --volume -e --env -m --module -w --workdir"),
    "enroot": _prefix("-m --mount -e --env -c --conf", skip=1, of="start"),
    "apptainer": _CONTAINER,
    "singularity": _CONTAINER,
    "docker": _OCI,
    "podman": _OCI,
    "podman-hpc": _OCI,
    "conda": _IN_ENVIRONMENT,
    "mamba": _IN_ENVIRONMENT,
    "micromamba": _IN_ENVIRONMENT,
    "pixi": _IN_ENVIRONMENT,
    "poetry": _IN_ENVIRONMENT,
    "pipenv": _IN_ENVIRONMENT,
    "hatch": _IN_ENVIRONMENT,
    "uv": _prefix("--with --python -p --project --directory --env-file --extra", of="run"),
    "parallel": _prefix(
        "-j --jobs -a --arg-file -I --joblog --results --delay --timeout -N -n"
    ),
}


def may_launch(program: str) -> bool:
    """Whether a command that begins with this word can launch anything."""
    name = program.rpartition("/")[2]
    return bool(
        name in _PREFIXES
        or name in _SUBCOMMANDS
        or name in SHELLS
        or name in _LOOKS_UP
        or _LAUNCHER.fullmatch(name)
        or _PYTHON.fullmatch(name)
    )


def judge(fields: Sequence[str]) -> Launch | Code | None:
    """What a command does, by its words: launch, run code, or neither."""
    for _ in range(_MOST_PREFIXES):
        if not fields:
            return None
        if _ASSIGNMENT.match(fields[0]):
            fields = fields[1:]
            continue
        name = fields[0].rpartition("/")[2]
        rest = fields[1:]
        if _LAUNCHER.fullmatch(name):
            return _unless_asked(name, rest)
        if name in _SUBCOMMANDS:
            if rest and rest[0] in _SUBCOMMANDS[name]:
                return _unless_asked(f"{name} {rest[0]}", rest[1:])
            return None
        if name == "parallel" and any(map(_REMOTE.fullmatch, rest)):
            return Launch(program=name, words=tuple(rest))
        if _PYTHON.fullmatch(name):
            return _python(name, rest)
        if name in SHELLS or name in ("su", "sg"):
            code = _command_text(rest)
            return None if code == Code(text=None) and name not in SHELLS else code
        if name == "eval":
            return Code(text=" ".join(rest))
        if name == "trap":
            first = 1 if rest[:1] == ["--"] else 0
            action = rest[first] if len(rest) > first + 1 else ""
            return None if not action or action.startswith("-") else Code(text=action)
        if name in _PREFIXES:
            after = _behind(_PREFIXES[name], rest)
            if name in ("flock", "parallel", "watch", "env"):
                text = _text_of(name, rest, after)
                if text is not None:
                    return text
            fields = after
            continue
        if fields[0].startswith(("$", "`", "{")) and rest and rest[0].startswith("-"):
            return _python("python", rest)  # "$PYTHON" -u -m torch.distributed.run
        if not isinstance(fields[0], Unknown):
            return None
        fields = rest
    return None


def _unless_asked(program: str, words: Sequence[str]) -> Launch | None:
    """`srun --version` starts nothing."""
    if len(words) == 1 and words[0] in _ASKS:
        return None
    return Launch(program=program, words=tuple(words))


def _python(name: str, words: Sequence[str]) -> Launch | Code | None:
    """`python -u -m torch.distributed.run`, `python $(which torchrun)`."""
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        word = words[at]
        at += 1
        if word.startswith("--"):
            continue
        found = re.search(r"[mcWX]", word[1:])
        if found is None:
            continue
        place = 1 + found.start()
        attached = word[place + 1 :]
        value = attached or (words[at] if at < len(words) else "")
        at += not attached
        if found[0] == "m":
            known = value in _MODULES
            return _unless_asked(f"{name} -m {value}", words[at:]) if known else None
        if found[0] == "c":
            return Code(text=value, python=True)
    script = words[at] if at < len(words) else ""
    base = script.rpartition("/")[2]
    if _LAUNCHER.fullmatch(base) or base in _SUBCOMMANDS:
        launch = judge(words[at:])
        return launch if isinstance(launch, Launch) else None
    return None


def _command_text(words: Sequence[str]) -> Code | None:
    """`bash -l -c TEXT`."""
    if all(re.fullmatch(r"-[a-bd-z]+", word) for word in words):
        return Code(text=None)
    for at, word in enumerate(words):
        if word == "--command" and at + 1 < len(words):
            return Code(text=words[at + 1])
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word):
            behind = [one for one in words[at + 1 :] if not re.fullmatch(r"[-+][A-Za-z]+", one)]
            return Code(text=behind[0]) if behind else None
    return None


def _behind(prefix: _Prefix, words: Sequence[str]) -> Sequence[str]:
    """The command that a prefix starts; empty where it starts none."""
    at = 0
    if prefix.subcommands:
        while at < len(words) and words[at].startswith("-"):
            at += 1
        if at >= len(words) or words[at] not in prefix.subcommands:
            return ()
        at += 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if word in prefix.not_if or _has_letter(word, prefix.not_if):
            return ()
        at += word in prefix.values
    at += prefix.skip
    if at < len(words) and words[at] == "--":
        at += 1
    return words[at:]


def _has_letter(word: str, options: frozenset[str]) -> bool:
    """One of `-v -V` in a bundle like `-pv`."""
    return not word.startswith("--") and any(f"-{mark}" in options for mark in word[1:])


def _text_of(name: str, words: Sequence[str], after: Sequence[str]) -> Code | None:
    """`flock FILE -c TEXT`, `parallel 'TEXT' ::: ...`, `env -S TEXT`: one word is a command."""
    if name == "env":
        for at, word in enumerate(words):
            if word in ("-S", "--split-string", "-vS") and at + 1 < len(words):
                return Code(text=" ".join(words[at + 1 :]))
            if word.startswith("-S"):
                return Code(text=" ".join((word[2:], *words[at + 1 :])))
            if not word.startswith("-"):
                break
        return None
    if name == "flock":
        return Code(text=after[1]) if list(after[:1]) == ["-c"] and len(after) > 1 else None
    code = list(after)
    for at, word in enumerate(code):
        if word.startswith(":::"):
            del code[at:]
            break
    return Code(text=" ".join(code)) if code else None
