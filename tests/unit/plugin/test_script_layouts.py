"""What a script does says which layouts it can take part in; what it writes does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.options.script import Script
from sbtrain.submission.script_layouts import MOST_BYTES, Layouts, layouts_of
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
        (JOIN + "def main(run):\n    import tensorflow\n    run.tensorflow()\n", "auto"),
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
        (JOIN + "match join().role:\n    case 'ps':\n        serve()\n", "auto"),
        ("import os\nprint(os.environ['SBTRAIN_ROLE'])\n", "allreduce"),
        ("import os\nconfig = os.environ.get('TF_CONFIG')\n", "allreduce"),
        ("unit = 'ps'\nif unit == 'ps': pass\n", "allreduce"),
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
    assert why in found.why


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
        ("#!/bin/bash\n# [ $SBTRAIN_ROLE = ps ]\npython train.py\n", "allreduce"),
        ("#!/bin/bash\necho \"test $SBTRAIN_ROLE\"\n", "allreduce"),
        ("#!/bin/bash\necho SBTRAIN_ROLE TF_CONFIG ParameterServerStrategy\n", "allreduce"),
    ],
)  # fmt: skip
def test_a_shell_script_plays_a_server_where_it_tests_its_role(
    text: str, layout: LayoutChoice
) -> None:
    assert layouts(text, name="job").layout == layout


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
    layouts_of.cache_clear()
    assert layouts(thin, tmp_path).layout == "auto"
