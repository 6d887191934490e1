"""Whether a program can use GPUs at all, by what it imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.options.script import Script
from sbtrain.scripts.gpus import leaves_gpus_alone

CORES = [
    "import json, pathlib\n",
    "import numpy as np\nfrom sbtrain_jobs import join\n",
    "from mpi4py import MPI\nimport h5py\n# import torch\n",
    "import plain.inner\n",
    "from plain import inner\n",
    "import re\nre.compile('x')\n",
]
MAY = [
    "import torch\n",
    "try:\n    import cupy\nexcept ImportError:\n    cupy = None\n",
    "def f():\n    from jax import numpy\n",
    "import subprocess\n",
    "from importlib import import_module\n",
    "import beside\n",
    "from package.deep import x\n",
    "import somebodys_own\n",
    "import net.trainer\n",  # which imports by its place
    "from net import trainer\n",
    "__import__('torch')\n",
    "exec(open('x').read())\n",
    "import os\nos.system('python x.py')\n",
    "from os import execvp\n",
    "import os\nos.execvp('x', [])\n",
    "import asyncio\nasyncio.create_subprocess_exec('x')\n",
    "from pkgutil import resolve_name\n",
    "print 'Python 2'\n",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("import torch\n")
    for name, text in (("package", "import tensorflow\n"), ("plain", "import numpy\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "inner.py").write_text("import beside2\n")
        (tmp_path / name / "deep.py").write_text(text)
    (tmp_path / "plain/inner.py").write_text("import csv\nimport plain.deep\n")
    (tmp_path / "net").mkdir()
    (tmp_path / "net/trainer.py").write_text("from .model import Net\n")
    (tmp_path / "net/model.py").write_text("import torch\n")
    return tmp_path


@pytest.mark.parametrize("text", [*CORES, *MAY])
def test_it_is_told_by_the_imports(text: str, folder: Path) -> None:
    script = Script(name="t.py", folder=folder, content=text.encode(), shown="t.py")
    assert leaves_gpus_alone(script) is (text in CORES)


def test_of_a_shell_script_it_is_not_told(folder: Path) -> None:
    script = Script(name="t.sh", folder=folder, content=b"#!/bin/sh\ntrue\n", shown="t.sh")
    assert not leaves_gpus_alone(script)
