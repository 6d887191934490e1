"""What a script does says which layouts it can take part in; what it writes does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.options.script import Script
from sbtrain.scripts.layouts import Layouts, layouts_of
from sbtrain.scripts.modules import MOST_BYTES
from sbtrain.scripts.uses import Uses, comes_back, script_uses
from sbtrain_perf.request import LayoutChoice

EXAMPLE = Path(__file__).parents[3] / "jobs/examples/train_digits.py"
JOIN = "from sbtrain_jobs import join\n"
LOOP = """\
with join() as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda folder: None):
        pass
"""
FOLLOWS = (
    JOIN + "import tensorflow as tf\nwith join() as run:\n    cluster = run.tensorflow()\n"
)
WITH = "with join() as run:\n    "
RESOLVER = "resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
SERVES = (
    "import tensorflow as tf\n"
    + RESOLVER
    + "strategy = tf.distribute.ParameterServerStrategy(resolver)\n"
)
TUTORIAL = (
    "import tensorflow as tf\n"
    + RESOLVER
    + """\
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()
else:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
"""
)
RINGS = (
    "import json, os\nimport tensorflow as tf\n"
    "workers = len(json.loads(os.environ['TF_CONFIG'])['cluster']['worker'])\n"
    "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
)
MAIN = "def main(run):\n    import tensorflow\n    run.tensorflow()\n"
DDP = """\
import torch
import torch.distributed as dist
from sbtrain_jobs import join

with join() as run:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
"""


def layouts(text: str | bytes, folder: Path = Path("/nowhere"), name: str = "t.py") -> Layouts:
    content = text if isinstance(text, bytes) else text.encode()
    return layouts_of(Script(name=name, folder=folder, content=content, shown=name))


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        # The product's own ways.
        (EXAMPLE.read_text(), "auto"),
        (FOLLOWS, "auto"),
        (FOLLOWS.replace("sbtrain_jobs", "sbtrain"), "auto"),
        ("import keras\nimport sbtrain\nsbtrain.join().tensorflow()\n", "auto"),
        (JOIN + MAIN + "with join() as run:\n    main(run)\n", "auto"),
        (JOIN + MAIN, "allreduce"),
        (JOIN + LOOP, "allreduce"),
        (JOIN + "import numpy as np\n" + LOOP, "allreduce"),
        (JOIN + "import tensorflow as tf\n" + LOOP, "allreduce"),
        (JOIN + "import torch\n" + LOOP, "allreduce"),
        (DDP, "allreduce"),
        (JOIN + "with join() as run:\n    run.tensorflow()\n", "allreduce"),
        ("import tensorflow\nmodel.tensorflow()\n", "allreduce"),
        # TensorFlow's own.
        (SERVES, "ps"),
        (TUTORIAL, "ps"),
        (SERVES.replace("distribute.Param", "distribute.experimental.Param"), "ps"),
        (
            "from tensorflow.distribute import ParameterServerStrategy as P\ns = P(None)\n",
            "ps",
        ),
        ("import tensorflow as tf\nP = tf.distribute.ParameterServerStrategy\nP()\n", "ps"),
        (JOIN + SERVES, "ps"),
        (RINGS, "allreduce"),
        ("import tensorflow as tf\n" + RESOLVER, "allreduce"),
        ("import tensorflow as tf\nif isinstance(s, tf.distribute.Server): ...\n", "allreduce"),
        (RINGS + SERVES, "allreduce"),
        (RINGS + TUTORIAL, "auto"),
        # Roles told apart by the script.
        ("import os\nif os.environ['SBTRAIN_ROLE'] == 'ps':\n    serve()\n", "auto"),
        ("from os import getenv\nif 'ps' == getenv('SBTRAIN_ROLE'): serve()\n", "auto"),
        ("import os\nmatch os.getenv('SBTRAIN_ROLE'):\n    case 'ps' | 'x':\n        serve()\n",
         "auto"),
        (JOIN + RINGS + SERVES + "match join().role:\n    case 'ps':\n        serve()\n",
         "auto"),
        ("import os\nprint(os.environ['SBTRAIN_ROLE'])\n", "allreduce"),
        ("import os\nconfig = os.environ.get('TF_CONFIG')\n", "allreduce"),
        ("unit = 'ps'\nif unit == 'ps': pass\n", "allreduce"),
        (
            "import json, os\nconfig = json.loads(os.environ.get('TF_CONFIG', '{}'))\n"
            "task = config.get('task', {})\nrole, index = task.get('type'), task['index']\n"
            "is_server = role == 'ps'\nif is_server:\n    serve(index)\n",
            "auto",
        ),
        (
            "import os\nPS = 'ps'\ndef role():\n    return os.getenv('SBTRAIN_ROLE')\n"
            "def main():\n    if role() != PS:\n        train()\n        return\n    serve()\n",
            "auto",
        ),
        ("import os\nif os.getenv('SBTRAIN_ROLE') != 'ps':\n    train()\nelse:\n    serve()\n",
         "auto"),
        # What only looks like it.
        (JOIN + LOOP + "print(run.role)\nif unit == 'ps': unit = convert(unit)\n", "allreduce"),
        (JOIN + LOOP + "for a in atoms:\n    if a.role == 'ps': a.move()\n", "allreduce"),
        (JOIN + LOOP + "config = getenv('TF_CONFIG')\nif u == 'ps': f(u)\n", "allreduce"),
        (JOIN + "import tensorflow\nconverter.tensorflow()\n" + LOOP, "allreduce"),
        ("import os\nrole = os.getenv('SBTRAIN_ROLE')\nif p.suffix in ('pdf', 'ps'): f(role)\n",
         "allreduce"),
        ("import json, os\nif 'ps' in json.loads(os.environ['TF_CONFIG'])['cluster']: f()\n",
         "allreduce"),
        ("import os\nif os.getenv('SBTRAIN_ROLE') == 'ps':\n    print('a server', f())\n",
         "allreduce"),
        # Servers of a run from join() serve TensorFlow, and never come back.
        (JOIN + LOOP + "if run.role == 'ps':\n    serve()\n", "allreduce"),
        # What refuses servers.
        (FOLLOWS + "assert run.role != 'ps'\n", "allreduce"),
        (FOLLOWS + "assert run.layout != 'ps', 'rings alone'\nprint(run.role)\n", "allreduce"),
        (FOLLOWS + "assert run.layout == 'allreduce'\n", "allreduce"),
        (FOLLOWS + "if run.layout == 'ps':\n    raise SystemExit('no servers')\n", "allreduce"),
        ("import os, sys\nrole = os.environ['SBTRAIN_ROLE']\nif role == 'ps':\n"
         "    print('no', file=sys.stderr)\n    sys.exit(2)\n", "allreduce"),
        ("import os\ndef no(why):\n    raise RuntimeError(why)\n"
         "if os.environ['SBTRAIN_ROLE'] in ('ps',):\n    no('servers')\n", "allreduce"),
        ("import os\nassert os.environ['SBTRAIN_ROLE'] != 'ps'\n", "allreduce"),
        ("import os\nif os.environ['SBTRAIN_ROLE'] not in ('worker', 'ps'):\n"
         "    raise ValueError\ntrain()\n", "allreduce"),
        # Letters alone.
        ('"""TF_CONFIG, ParameterServerStrategy."""\nprint("TF_CONFIG")\n', "allreduce"),
        ("# import tensorflow as tf\n# tf.distribute.ParameterServerStrategy()\n", "allreduce"),
        (f"text = '''\n{SERVES}'''\n", "allreduce"),
        (f"import tensorflow as tf\ntext = '''\n{TUTORIAL}'''\n", "allreduce"),
        ("raise SystemExit('SBTRAIN_ROLE is not set, nor is TF_CONFIG: ps')\n", "allreduce"),
        ("class ParameterServerStrategy: pass\nParameterServerStrategy()\n", "allreduce"),
    ],
)  # fmt: skip
def test_what_the_code_does_counts(text: str, layout: LayoutChoice) -> None:
    assert layouts(text).layout == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import tensorflow as tf\nprint 'old'\n" + SERVES, "line 2: "),
        ("def f(:\n" + SERVES, "line 1: "),
        (b"# -*- coding: no-such -*-\n" + SERVES.encode(), "no-such"),
        (b"x = '\xff\xfe'\n" + SERVES.encode(), "utf-8"),
        ("(" * 100_000, "cannot be read as Python"),
        ("x = " + "-" * 100_000 + "1\n", "cannot be read as Python"),
        ("x = 1\n" * (MOST_BYTES // 6 + 1), "more than 1 MiB"),
    ],
)
def test_what_cannot_be_read_as_python_gets_all_reduce_and_is_said(
    text: str | bytes, why: str
) -> None:
    found = layouts(text)
    assert found.layout == "allreduce"
    assert "cannot be read as Python" in found.why
    assert why.lower() in found.why.lower()


def test_python_of_another_encoding_is_read() -> None:
    text = "# -*- coding: latin-1 -*-\n# é\n" + SERVES
    assert layouts(text.encode("latin-1")).layout == "ps"
    assert layouts(b"\xef\xbb\xbf" + SERVES.encode()).layout == "ps"


def test_a_scripts_own_odd_escapes_are_no_warning_here() -> None:
    assert layouts("x = '\\d'\nif x is 'a': pass\n" + SERVES).layout == "ps"


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ('#!/bin/bash\n[ "$SBTRAIN_ROLE" = ps ] && exec serve\n', "auto"),
        ("#!/bin/sh\nif test $SBTRAIN_ROLE = ps; then serve; fi\n", "auto"),
        ('#!/bin/bash\n  case "${SBTRAIN_ROLE:-worker}" in\nps) serve;; esac\n', "auto"),
        ("#!/bin/bash\npython train.py\n", "allreduce"),
        ("#!/bin/sh\n[ -n \"$SBTRAIN_ROLE\" ] && echo ps\n", "allreduce"),
        ("#!/bin/sh\n[ \"$SBTRAIN_ROLE\" = chief ] && tar c logs\n", "allreduce"),
        ("#!/bin/sh\n[ \"$SBTRAIN_ROLE\" = ps ] && { echo no >&2; exit 1; }\n", "allreduce"),
        ("#!/bin/sh\nif [[ $SBTRAIN_ROLE == ps ]]; then\n  exit 2\nfi\n", "allreduce"),
        ("#!/bin/sh\ncase $SBTRAIN_ROLE in\nps) echo no; exit 1;;\nesac\n", "allreduce"),
        ("#!/bin/bash\n# [ $SBTRAIN_ROLE = ps ]\npython train.py\n", "allreduce"),
        ("#!/bin/bash\necho \"test $SBTRAIN_ROLE\"\n", "allreduce"),
        ("#!/bin/bash\necho SBTRAIN_ROLE TF_CONFIG ParameterServerStrategy\n", "allreduce"),
    ],
)  # fmt: skip
def test_a_shell_script_plays_a_server_where_it_tests_its_role(
    text: str, layout: LayoutChoice
) -> None:
    assert layouts(text, name="job").layout == layout


def test_two_files_do_not_make_one_fact(tmp_path: Path) -> None:
    (tmp_path / "units.py").write_text("def of(u):\n    return f(u) if u == 'ps' else g(u)\n")
    (tmp_path / "atoms.py").write_text("def solvent(a):\n    return a.role == 'solvent'\n")
    (tmp_path / "config.py").write_text("import os\nCONFIG = os.environ.get('TF_CONFIG')\n")
    text = JOIN + "import units, atoms, config\n" + LOOP
    assert layouts(text, tmp_path).layout == "allreduce"
    (tmp_path / "roles.py").write_text("import os\nROLE = os.environ['SBTRAIN_ROLE']\n")
    text = "import roles\nfrom roles import ROLE as role\nif {} == 'ps':\n    serve()\n"
    assert layouts(text.format("role"), tmp_path).layout == "auto"
    assert layouts(text.format("roles.ROLE"), tmp_path).layout == "auto"


@pytest.mark.parametrize(
    ("text", "back"),
    [
        (LOOP, True),
        (EXAMPLE.read_text(), True),
        ("run = join()\nfor s in run.steps(start=run.resume(load), save=save): f()\n", True),
        ("from sbtrain import Run\ndef main(run: Run):\n"
         "    for s in run.steps(start=run.resume(load), save=save): f()\n", True),
        ("class T:\n    def __init__(self, run):\n        self.run = run\n    def go(self):\n"
         "        at = self.run.resume(load)\n        self.run.steps(start=at, save=save)\n"
         "T(join()).go()\n", True),
        ("@dataclass\nclass T:\n    model: object\n    run: object\n    def go(self):\n"
         "        at = self.run.resume(load)\n        self.run.steps(start=at, save=save)\n"
         "T(model, join()).go()\n", True),
        ("import contextlib\nwith contextlib.ExitStack() as s:\n"
         "    run = s.enter_context(join())\n"
         "    run.steps(start=run.resume(load), **options)\n", True),
        (WITH + "for s in run.steps(): f()\n", False),
        (WITH + "for s in run.steps(save=save): f()\n", False),
        (WITH + "for s in run.steps(start=0, save=save): run.resume(f)\n", False),
        (WITH + "at = run.resume(load)\n    run.steps(start=at)\n", False),
        (WITH + "at = run.resume(load)\n    run.steps(start=at, save=None)\n", False),
        (WITH + "at = game.resume(load)\n    run.steps(start=at, save=save)\n", False),
        (WITH + "at = run.resume(load)\n    dance.steps(start=at, save=save)\n", False),
        ("def (:\n" + LOOP, False),
        ("join()\n", False),
    ],
)  # fmt: skip
def test_a_run_comes_back_where_it_saves_and_resumes(text: str, back: bool) -> None:
    script = Script(name="t.py", folder=Path("/no"), content=(JOIN + text).encode(), shown="")
    assert comes_back(script) is back


def test_a_run_is_followed_into_modules_beside(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("from .fit import fit as train\n")
    (package / "fit.py").write_text("from . import loop\ndef fit(run):\n    loop.go(run=run)\n")
    (package / "loop.py").write_text(
        "def go(*, run):\n    at = run.resume(f)\n    list(run.steps(start=at, save=f))\n"
    )
    text = JOIN + "import mine\nwith join() as run:\n    mine.train({})\n"
    for given, back in (("run", True), ("other", False)):
        content = text.format(given).encode()
        script = Script(name="t.py", folder=tmp_path, content=content, shown="t.py")
        assert comes_back(script) is back


def test_a_large_script_is_read_whole() -> None:
    text = JOIN + "def f(x):\n    return g(x).a[x] if x else h(x)\n" * 5000 + LOOP
    script = Script(name="t.py", folder=Path("/no"), content=text.encode(), shown="t.py")
    assert script_uses(script) == Uses(joins=True, saves=True, resumes=True)


def test_modules_beside_the_script_count_one_level_deep(tmp_path: Path) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text(SERVES)
    (tmp_path / "trainer.py").write_text("import nets.deep\n" + TUTORIAL)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "through.py").write_text("import trainer\n")
    (tmp_path / "locked.py").mkdir()
    assert layouts("from trainer import main\nmain()\n", tmp_path).layout == "ps"
    assert layouts("import nets.deep as d\n", tmp_path).layout == "ps"
    assert layouts("from nets import deep\n", tmp_path).layout == "ps"
    assert layouts("import broken, missing, os, locked\n", tmp_path).layout == "allreduce"
    assert layouts("import through\n", tmp_path).layout == "allreduce"
    assert layouts("# import trainer\n", tmp_path).layout == "allreduce"
    thin = "from model import build\nfrom sbtrain import join\nrun = join()\nrun.tensorflow()\n"
    assert layouts(thin, tmp_path).layout == "allreduce"
    (tmp_path / "model.py").write_text("import tensorflow as tf\n")
    script_uses.cache_clear()
    assert layouts(thin, tmp_path).layout == "auto"
