"""Scripts with a seeded mistake: a world that cannot form, or forms wrongly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """script: of launch_scripts; mistake: lines that are put before its own; reason: what the
    run's output must say, as a regular expression."""

    script: str
    what: str
    mistake: str
    reason: str


_SECOND = "import os, time\nif os.environ.get('SBTRAIN_RANK') == '1':\n    "
_ABSENT = f"{_SECOND}time.sleep(600)\n"
_GONE = f"{_SECOND}raise SystemExit(0)\n"
_ALONE = "import os\nos.environ.update(RANK='0', WORLD_SIZE='1')\n"
_TWICE = "import os\nos.environ['RANK'] = '0'\n"
_TAKEN = (
    "import os, socket\n"
    "if os.environ['RANK'] == '0':\n"
    "    taken = socket.socket()\n"
    "    taken.bind(('', 0))\n"
    "    taken.listen()\n"
    "    os.environ['MASTER_PORT'] = str(taken.getsockname()[1])\n"
)
_NO_NAME = "no-such-node.invalid"
_UNRESOLVABLE = f"import os\nos.environ['MASTER_ADDR'] = '{_NO_NAME}'\n"
_JAX_UNRESOLVABLE = f"import os\nos.environ['JAX_COORDINATOR_ADDRESS'] = '{_NO_NAME}:9'\n"
_TF_ALONE = (
    "import json, os\n"
    "found = json.loads(os.environ['TF_CONFIG'])\n"
    "own = found['cluster']['worker'][found['task']['index']]\n"
    "found = {'cluster': {'worker': [own]}, 'task': {'type': 'worker', 'index': 0}}\n"
    "os.environ['TF_CONFIG'] = json.dumps(found)\n"
)
_NAMED = r"worker[ -]1 on node \S+"
_OF_ONE = "world of 1"
TWINS = tuple(
    Twin(script=script, what=what, mistake=mistake, reason=reason)
    for script, what, mistake, reason in (
        ("pytorch_ddp", "absent rank", _ABSENT, _NAMED),
        ("pytorch_ddp", "a rank that is gone", _GONE, _NAMED),
        ("pytorch_ddp", "worlds of one", _ALONE, _OF_ONE),
        ("pytorch_ddp", "a rank twice", _TWICE, "twice|both"),
        ("pytorch_ddp", "port taken", _TAKEN, "EADDRINUSE|already in use|port"),
        ("pytorch_ddp", "unresolvable name", _UNRESOLVABLE, _NO_NAME),
        ("lightning_trainer", "absent rank", _ABSENT, _NAMED),
        ("accelerate_loop", "worlds of one", _ALONE, _OF_ONE),
        ("jax_arrays", "absent rank", _ABSENT, _NAMED),
        ("jax_arrays", "unresolvable name", _JAX_UNRESOLVABLE, _NO_NAME),
        ("tensorflow_multiworker", "absent rank", _ABSENT, _NAMED),
        ("tensorflow_multiworker", "worlds of one", _TF_ALONE, _OF_ONE),
        ("mpi4py_allreduce", "absent rank", _ABSENT, _NAMED),
        ("horovod_torch", "absent rank", _ABSENT, _NAMED),
    )
)
