"""sbatch's options with values that it takes and values that it does not, and every way to
spell them."""

from __future__ import annotations

import random

# Values that sbatch takes, and behind the ~ those that it, or this cluster, does not.
VALUES = {
    "account": "lab|bad name~",
    "acctg-freq": "30|task=30|network=1,energy=2~task=x",
    "array": "0-3|1,3,5|0-10%2|1-5:2|7~5-1|x|0-|1-100000",
    "batch": "k80~x&y",
    "bb": "~capacity=1G|x",
    "begin": "now+1hour|16:00|2030-01-01|tomorrow|noon|now+60|2030-01-01T12:00:00|midnight|"
    "teatime~2020-01-01|now+abc",
    "chdir": "sub|/tmp|.|./sub/..|nope~",
    "cluster-constraint": "x~",
    "comment": "hey|two words|\u00fc|a=b|--x|\udcff|~",
    "constraint": "k80|~k80&x|[a|b]|nope|k80*2",
    "container": "~sub|/nope",
    "core-spec": "~1|x",
    "cores-per-socket": "1~2|x",
    "cpu-freq": "high|1000-2000|low-high:OnDemand~bad",
    "cpus-per-gpu": "~1|x",
    "cpus-per-task": "1|2|4~0|-1|x|1000",
    "deadline": "now+1day|2030-01-01~x",
    "delay-boot": "5~x",
    "dependency": "singleton|after:1+5|~bad|afterok:x|afternotok:1:2|afterany:999999",
    "distribution": "block|cyclic:block|plane=2|*:*:fcyclic~plane|bad|arbitrary",
    "error": "err.txt|%j.err|nodir/x|err-%x-%A_%a|~",
    "exclude": "c1|c[1-2]~nope|c[1",
    "export": "NONE|ALL|A=1|HOME,B=2|NIL|ALL,A=x y|~",
    "export-file": "envfile~nofile",
    "extra-node-info": "1|1:1|*:1:1~x|1:x",
    "gid": "0|root~nope",
    "gpu-bind": "closest|single:1|map_gpu:0~bad",
    "gpu-freq": "high|medium,memory=high~bad",
    "gpus": "1|k80:1|2|0~x:1|bad:bad",
    "gpus-per-node": "1|k80:2~x",
    "gpus-per-socket": "~1|x",
    "gpus-per-task": "1|k80:1~x",
    "gres": "gpu:1|gpu:k80:2|none|gpu~nope:1|help|gpu:x:1",
    "gres-flags": "enforce-binding|disable-binding~x",
    "hint": "nomultithread|compute_bound|memory_bound~help|bad",
    "input": "in.txt|none|in-%j~",
    "job-name": "n|two words|\u00fcml|-x||a/b|%j|\udce9t\udce9~",
    "kill-on-invalid-dep": "yes|no~x",
    "licenses": "~foo:1|foo|foo:x",
    "mail-type": "NONE|BEGIN|FAIL,TIME_LIMIT_80~bad",
    "mail-user": "a@b.c|root~",
    "mcs-label": "~x",
    "mem": "100|1G|0|512K~1.5G|x|100GB|1T|-1",
    "mem-bind": "local|none|rank|map_mem:0~bad",
    "mem-per-cpu": "100|1G~x|20T",
    "mem-per-gpu": "100|1G~x",
    "mincpus": "1|2~x|100",
    "network": "x~",
    "nodefile": "nodes.txt~nofile",
    "nodelist": "c1|c[1-2]|./nodes.txt~nope|c[1-|g1|nodes.txt",
    "nodes": "1|2|1-2|2-|99|+2~2-1|0|x|-1|1k|4,5",
    "ntasks": "1|2|4~0|-1|x|1000",
    "ntasks-per-core": "1~x",
    "ntasks-per-gpu": "1~x",
    "ntasks-per-node": "1|2~x|0",
    "ntasks-per-socket": "1~x",
    "open-mode": "append|truncate|a|t~x",
    "output": "out.txt|%j.out|/dev/null|none|nodir/%x|%A_%a.%N|out\u00fc|two words|~",
    "partition": "standard|spot|urgent|standard,spot~nope|",
    "power": "level~bad",
    "prefer": "~k80|nope",
    "priority": "100|TOP|0~x|-1",
    "profile": "none|task~bad",
    "qos": "normal|nope~",
    "reservation": "~nope|a,b",
    "segment": "~1",
    "signal": "USR1@60|B:USR1|B63@60|R:TERM|RTSTP|10|RB:USR2@5~B:63|x|USR1@99999|USR1@x",
    "sockets-per-node": "1~x",
    "switches": "1|1@5:00~1@5|x",
    "tasks-per-node": "1|2~",
    "thread-spec": "~1|x",
    "threads-per-core": "1|2~x",
    "time": "5|1:00|1:00:00|1-0|1-12:30|0|UNLIMITED|30:90|1-12:30:15~INFINITE|x|-1|8-0|1:2:3:4",
    "time-min": "1~x|10:00",
    "tmp": "100|1G~x",
    "tres-bind": "~gpu:closest",
    "tres-per-task": "~gres/gpu:1",
    "uid": "0|root~nobody-such",
    "wait-all-nodes": "0|1~x",
    "wckey": "w|*w~",
    "wrap": "true|echo $HOME; exit 3|#SBATCH -N2\necho x|#!/bin/bash\ntrue||caf\u00e9 'x~",
}
MAYBE = {
    "exclusive": "user~mcs|x",
    "nice": "5|-5~x|",
    "no-kill": "off~x",
    "propagate": "NONE|ALL|CORE,STACK~x",
    "oom-kill-step": "~0",
    "resv-ports": "~2",
    "get-user-env": "~x",
}
NOTHING = ["contiguous", "hold", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe",
           "parsable", "quiet", "reboot", "requeue", "spread-job", "test-only", "use-min-nodes",
           "verbose"]  # fmt: skip
SHOWS = ("version", "usage", "help")
SHORT = {
    "account": "A", "extra-node-info": "B", "constraint": "C", "chdir": "D", "nodefile": "F",
    "gpus": "G", "hold": "H", "job-name": "J", "licenses": "L", "clusters": "M", "nodes": "N",
    "overcommit": "O", "quiet": "Q", "core-spec": "S", "version": "V", "wait": "W",
    "array": "a", "begin": "b", "cpus-per-task": "c", "dependency": "d", "error": "e",
    "help": "h", "input": "i", "no-kill": "k", "distribution": "m", "ntasks": "n",
    "output": "o", "partition": "p", "qos": "q", "oversubscribe": "s", "time": "t",
    "verbose": "v", "nodelist": "w", "exclude": "x",
}  # fmt: skip
UNKNOWN = ("--stepmgr", "--nope", "--nope=1", "-Z", "--", "---x", "-", "--=x", "-1", "-I")
# Likelier than the rest: what people write.
_USUAL = ["job-name", "nodes", "ntasks", "time", "partition", "output", "error", "mem", "array",
          "cpus-per-task", "gres", "dependency", "export", "ntasks-per-node", "nodelist",
          "comment", "signal", "chdir"]  # fmt: skip


def option(rng: random.Random, *, shows: bool = True) -> list[str]:
    """One option as words."""
    kind = rng.random()
    if kind < 0.004:
        return [rng.choice(UNKNOWN)]
    if kind < 0.009 and shows:
        return _flag(rng, rng.choice(SHOWS))
    if kind < 0.012:  # sbatch asks for the job's end every two seconds
        return _flag(rng, "wait")
    if kind < 0.14:
        return _flag(rng, rng.choice(NOTHING))
    if kind < 0.17:
        return [_bundle(rng)]
    if kind < 0.22:
        name = rng.choice([name for name, values in MAYBE.items() if values[0] != "~"])
        return [rng.choice([f"--{name}", f"--{name}={value(rng, name)}"])]
    name = rng.choice(_USUAL if rng.random() < 0.6 else list(VALUES))
    if VALUES[name].startswith("~") and rng.random() < 0.8:  # this sbatch takes none of them
        name = "job-name"
    return _with_value(rng, name)


def value(rng: random.Random, name: str) -> str:
    """More often than not one that sbatch takes."""
    good, bad = ((VALUES | MAYBE)[name]).split("~")
    return rng.choice((good if rng.random() < 0.93 and good else bad or good).split("|"))


def _with_value(rng: random.Random, name: str) -> list[str]:
    spelt, text = rng.random(), value(rng, name)
    short = SHORT.get(name)
    if short and spelt < 0.02:
        return [f"-{short}={text}"]
    if short and spelt < 0.5:
        return [f"-{short}{text}"] if spelt < 0.25 else [f"-{short}", text]
    written = name if spelt < 0.96 else name[: rng.randint(1, len(name))]
    return [f"--{written}={text}"] if rng.random() < 0.6 else [f"--{written}", text]


def _flag(rng: random.Random, name: str) -> list[str]:
    short = SHORT.get(name)
    if short and rng.random() < 0.5:
        return [f"-{short}"]
    written = name if rng.random() < 0.96 else name[: rng.randint(2, len(name))]
    return [f"--{written}=x" if rng.random() < 0.01 else f"--{written}"]


def _bundle(rng: random.Random) -> str:
    letters = "".join(rng.choices("HOQs", k=rng.randint(1, 3)))
    return f"-{letters}" + rng.choice(["", "k", "N2", "n2", "Jx", "t5"])
