"""Which framework a script follows is read from what its code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework_scripts import FRAMEWORKS, SCRIPTS, WITH_SERVERS
from sbtrain.options.script import Script
from sbtrain.scripts.frameworks import Follows, framework_of
from sbtrain.scripts.layouts import layouts_of
from sbtrain.scripts.uses import script_uses
from sbtrain_perf.request import Framework

JOIN = "from sbtrain_jobs import join\n"
MPI = "from mpi4py import MPI\n"
RANK = MPI + "import os, torch.distributed as dist\nrank = MPI.COMM_WORLD.Get_rank()\n"


def script(text: str | bytes, folder: Path = Path("/nowhere"), name: str = "t.py") -> Script:
    content = text if isinstance(text, bytes) else text.encode()
    return Script(name=name, folder=folder, content=content, shown=name)


def follows(text: str | bytes, folder: Path = Path("/nowhere"), name: str = "t.py") -> Follows:
    return framework_of(script(text, folder, name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_as_documentations_write_them_are_recognised(name: str) -> None:
    assert follows(SCRIPTS[name]).framework == FRAMEWORKS[name]
    layout = layouts_of(script(SCRIPTS[name])).layout
    assert layout in (("ps", "auto") if name in WITH_SERVERS else ("allreduce",))


@pytest.mark.parametrize(
    ("text", "framework", "why"),
    [
        ("from torch.distributed import init_process_group as ipg\nipg()\n", "torch",
         "init_process_group on line 2"),
        ("import torch\ndef main():\n    torch.distributed.init_process_group()\n", "torch",
         "init_process_group on line 3"),
        ("from torch.nn.parallel import DistributedDataParallel\nDistributedDataParallel(m)\n",
         "torch", "DistributedDataParallel on line 2"),
        ("import lightning.pytorch as pl\nt = pl.Trainer(max_epochs=1)\n", "torch", "Trainer"),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(M)\n", "torch",
         "LightningCLI"),
        ("from pytorch_lightning import Trainer as T\nT()\n", "torch", "Trainer on line 2"),
        ("import transformers\nclass Mine(transformers.Trainer):\n    pass\nMine(m).train()\n",
         "torch", "Trainer on line 4"),
        ("import tensorflow as tf\nMWMS = tf.distribute.MultiWorkerMirroredStrategy\nMWMS()\n",
         "tensorflow", "MultiWorkerMirroredStrategy on line 3"),
        (JOIN + "with join() as run:\n    run.tensorflow()\n", "tensorflow",
         "run.tensorflow() on line 3"),
        ("from jax import distributed\ndistributed.initialize()\n", "jax", "initialize"),
        ("import keras\nkeras.distribution.initialize()\n", "jax", "initialize on line 2"),
        ("import horovod.keras as hvd\nhvd.init()\n", "horovod", "init on line 2"),
        ("from mpi4py.MPI import COMM_WORLD as comm\ncomm.rank\n", "mpi", "MPI.COMM_WORLD"),
        (MPI + "print(MPI.Get_processor_name())\n", "mpi", "mpi4py on line 1"),
        ("import torch\ntorch.distributed.init_process_group(backend='mpi')\n", "mpi", "init"),
        # What brings up the world counts.
        (SCRIPTS["torch_ddp"] + MPI + "MPI.COMM_WORLD.gather(loss)\n", "torch", "init_process"),
        (SCRIPTS["horovod_torch"] + MPI, "horovod", "init on line 4"),
        (MPI + "import horovod.keras as hvd\nhvd.init(comm=MPI.COMM_WORLD)\n", "horovod", "on"),
        (SCRIPTS["horovod_keras"] + "tf.distribute.MultiWorkerMirroredStrategy()\n", "horovod",
         "init on line 4"),
        (RANK + "dist.init_process_group('gloo', rank=rank, world_size=2)\n", "mpi",
         "MPI.COMM_WORLD on line 3"),
        (RANK + "os.environ['RANK'] = str(rank)\ndist.init_process_group()\n", "mpi", "MPI"),
        (RANK + "os.environ.update(RANK=f'{rank}')\ndist.init_process_group()\n", "mpi", "MPI"),
        (RANK + "os.environ.setdefault('RANK', str(rank))\ndist.init_process_group()\n", "mpi",
         "MPI"),
        (MPI + "import jax\nwho = lambda: MPI.COMM_WORLD.rank\n"
         "jax.distributed.initialize('a:1', 2, process_id=who())\n", "mpi", "line 3"),
        (RANK + "os.environ['OMP_NUM_THREADS'] = str(rank)\ndist.init_process_group()\n",
         "torch", "init_process_group"),
        # What is none of these.
        (JOIN + "import torch\nwith join() as run:\n    for _ in run.steps(): ...\n", "plain",
         "no call in it"),
        ("import torch, jax, tensorflow, horovod.torch, mpi4py, accelerate\n", "plain", "no"),
        ("import jax\njax.distributed.shutdown()\njax.initialize()\n", "plain", "no call"),
        ("class Trainer: ...\nTrainer()\ndef init_process_group(): ...\n", "plain", "no call"),
        ("# import horovod.torch as hvd\n'''hvd.init()'''\nprint('hvd.init()')\n", "plain",
         "no call"),
        ("def (:\n", "plain", "it cannot be read as Python (line 1: "),
        (b"x = '\xff'\nimport horovod.torch as hvd\nhvd.init()\n", "plain", "line 1"),
    ],
)  # fmt: skip
def test_the_framework_is_that_of_what_the_code_calls(
    text: str | bytes, framework: Framework, why: str
) -> None:
    found = follows(text)
    assert (found.framework, found.alone) == (framework, False)
    assert why in found.why


def test_a_shell_script_is_plain_and_said_so() -> None:
    assert follows("#!/bin/sh\npython ddp.py\n", name="job").why == "it is no Python"


def test_modules_beside_the_script_count_as_far_as_it_imports_them(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "import far\nimport horovod.torch as hvd\n\nhvd.init()\n"
    )
    (tmp_path / "far.py").write_text("import jax\njax.distributed.initialize()\n")
    found = follows("import setup\n", tmp_path)
    assert found == Follows(framework="horovod", why="init on line 4 of setup.py")
    script_uses.cache_clear()
    assert follows("# import setup\n", tmp_path).framework == "plain"
    torch = "import setup, torch\ntorch.distributed.init_process_group()\n"
    (tmp_path / "setup.py").write_text("import far\n")
    assert follows(torch, tmp_path).framework == "torch"


def test_a_script_that_spawns_the_processes_of_its_node_is_started_once_there() -> None:
    text = (
        "import torch.multiprocessing as mp\nimport torch.distributed as dist\n"
        "def work(rank):\n    dist.init_process_group(rank=rank, world_size=2)\n"
        "mp.spawn(work, nprocs=2)\n"
    )
    assert follows(text).alone
    assert framework_of(script(text), by_user="mpi") == Follows(
        framework="mpi",
        why="as --train-layout says, though it calls init_process_group on line 4: PyTorch's "
        "env:// convention",
        alone=True,
    )
