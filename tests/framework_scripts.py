"""Small training scripts as the documentation of each framework tells its users to write them:
none knows of sbtrain. Each fits a line on data of its own and says who it was, and its loss.
Written as NAME.py they would hide the package that they import: call them train.py.

tensorflow_keras needs tf-keras beside a Keras 3, horovod_keras an older TensorFlow than 2.16.
"""

from __future__ import annotations

from collections.abc import Mapping

from sbtrain_perf.request import Framework

_TORCH_DDP = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 256).reshape(-1, 1)
    data = TensorDataset(x, 3 * x + 1)
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
    model = DDP(torch.nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
    print(f"rank {rank} of {world}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

_TORCH_FSDP = """\
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x)


kind = "cuda" if torch.cuda.is_available() else "cpu"
distributed.init_process_group()
mesh = init_device_mesh(kind, (distributed.get_world_size(),))
torch.manual_seed(0)
model = Net().to(kind)
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(10):
    x = torch.randn(16, 8, device=kind)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
rank, world = distributed.get_rank(), distributed.get_world_size()
print(f"rank {rank} of {world}: loss {loss.item():.4f}")
distributed.destroy_process_group()
"""

_LIGHTNING = """\
import os

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    nodes = int(os.environ.get("SLURM_NNODES", 1))
    tasks = int(os.environ.get("SLURM_NTASKS", 1)) // nodes
    x = torch.linspace(-1, 1, 256).reshape(-1, 1)
    trainer = L.Trainer(
        accelerator="auto", devices=tasks, num_nodes=nodes, strategy="ddp", max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )
    trainer.fit(Line(), DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16))
    loss = trainer.callback_metrics["loss"].item()
    print(f"rank {trainer.global_rank} of {trainer.world_size}: loss {loss:.4f}")
"""

_FABRIC = """\
import os

import torch
from lightning.fabric import Fabric


def main():
    nodes = int(os.environ.get("SLURM_NNODES", 1))
    tasks = int(os.environ.get("SLURM_NTASKS", 1)) // nodes
    fabric = Fabric(accelerator="auto", devices=tasks, num_nodes=nodes, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    model = torch.nn.Linear(1, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(10):
        x = torch.rand(16, 1, device=fabric.device)
        loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
    print(f"rank {fabric.global_rank} of {fabric.world_size}: loss {loss.item():.4f}")


main()
"""

_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
x = torch.linspace(-1, 1, 256).reshape(-1, 1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
rank, world = accelerator.process_index, accelerator.num_processes
print(f"rank {rank} of {world}: loss {loss.item():.4f}")
accelerator.end_training()
"""

_TRANSFORMERS = """\
import torch
from transformers import Trainer, TrainingArguments


class Lines(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.tensor([index / 64])
        return {"x": x, "labels": 3 * x + 1}


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def main():
    args = TrainingArguments(
        output_dir="results", per_device_train_batch_size=8, max_steps=4, report_to="none",
        save_strategy="no", disable_tqdm=True,
    )
    trainer = Trainer(model=Line(), args=args, train_dataset=Lines())
    result = trainer.train()
    rank, world = args.process_index, args.world_size
    print(f"rank {rank} of {world}: loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
"""

_DEEPSPEED = """\
import deepspeed
import torch

deepspeed.init_distributed()
model = torch.nn.Linear(1, 1)
config = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-2}},
    "zero_optimization": {"stage": 1},
}
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config
)
for _ in range(10):
    x = torch.rand(16, 1, device=engine.device)
    loss = torch.nn.functional.mse_loss(engine(x), 3 * x + 1)
    engine.backward(loss)
    engine.step()
print(f"rank {engine.global_rank} of {engine.world_size}: loss {loss.item():.4f}")
"""

_TENSORFLOW_KERAS = """\
import json
import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 does not fit on several workers
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

per_worker_batch = 16
config = json.loads(os.environ.get("TF_CONFIG", "{}"))
workers = len(config.get("cluster", {}).get("worker", [])) or 1
x = tf.reshape(tf.linspace(-1.0, 1.0, 256), (-1, 1))
data = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).repeat()
data = data.batch(per_worker_batch * workers)

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(data, epochs=1, steps_per_epoch=8, verbose=0)
rank, world = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
print(f"rank {rank} of {world}: loss {history.history['loss'][-1]:.4f}")
"""

_TENSORFLOW_LOOP = """\
import tensorflow as tf

strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
world = strategy.num_replicas_in_sync
with strategy.scope():
    weight, bias = tf.Variable(0.0), tf.Variable(0.0)


def data_of(context):
    batch = context.get_per_replica_batch_size(16 * world)
    x = tf.linspace(-1.0, 1.0, 256)
    data = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).repeat()
    return data.shard(context.num_input_pipelines, context.input_pipeline_id).batch(batch)


data = iter(strategy.distribute_datasets_from_function(data_of))


@tf.function
def train_step(iterator):
    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * x + bias - y) ** 2) / world
        context = tf.distribute.get_replica_context()
        grads = context.all_reduce("sum", tape.gradient(loss, [weight, bias]))
        weight.assign_sub(0.1 * grads[0])
        bias.assign_sub(0.1 * grads[1])
        return loss

    losses = strategy.run(step, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for _ in range(8):
    loss = train_step(data)
print(f"rank {strategy.cluster_resolver.task_id} of {world}: loss {loss.numpy():.4f}")
"""

_TENSORFLOW_SERVERS = """\
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()
else:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight, bias = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def step():
        x = tf.random.uniform((16,))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * x + bias - (3 * x + 1)) ** 2)
        for variable, grad in zip((weight, bias), tape.gradient(loss, [weight, bias])):
            variable.assign_sub(0.1 * grad)
        return loss

    losses = [coordinator.schedule(step) for _ in range(20)]
    coordinator.join()
    print(f"coordinator: loss {losses[-1].fetch():.4f}")
"""

_TENSORFLOW_1 = """\
import json
import os

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
else:
    setter = tf.train.replica_device_setter(
        worker_device=f"/job:{job}/task:{index}", cluster=cluster
    )
    with tf.device(setter):
        weight = tf.get_variable("weight", initializer=0.0)
        step = tf.train.get_or_create_global_step()
        x = tf.random.uniform((16,))
        loss = tf.reduce_mean((weight * x - 3 * x) ** 2)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=40)]
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=(job == "chief"), hooks=hooks
    ) as session:
        while not session.should_stop():
            _, value = session.run([train, loss])
    print(f"{job} {index}: loss {value:.4f}")
"""

_JAX = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("batch",))
shards = NamedSharding(mesh, PartitionSpec("batch"))
own = np.random.default_rng(jax.process_index()).uniform(size=(16,)).astype(np.float32)


@jax.jit
def step(params, x):
    def loss_of(params):
        return jnp.mean((params[0] * x + params[1] - (3 * x + 1)) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    return params - 0.1 * grads, loss


params = jnp.zeros(2)
for _ in range(10):
    x = jax.make_array_from_process_local_data(shards, own)
    params, loss = step(params, x)
print(f"rank {jax.process_index()} of {jax.process_count()}: loss {float(loss):.4f}")
"""

_MPI4PY = """\
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
rng = np.random.default_rng(rank)
params = np.zeros(2)
for _ in range(10):
    x = rng.uniform(size=16)
    off = params[0] * x + params[1] - (3 * x + 1)
    grads = np.array([2 * np.mean(off * x), 2 * np.mean(off)])
    comm.Allreduce(MPI.IN_PLACE, grads, op=MPI.SUM)
    params -= 0.1 * grads / size
loss = comm.allreduce(float(np.mean(off**2))) / size
print(f"rank {rank} of {size}: loss {loss:.4f}")
"""

_HOROVOD_TORCH = """\
import horovod.torch as hvd
import torch

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for _ in range(10):
    x = torch.rand(16, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
    loss.backward()
    optimizer.step()
print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss.item():.4f}")
"""

_HOROVOD_TENSORFLOW = """\
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
weight, bias = tf.Variable(0.0), tf.Variable(0.0)
optimizer = tf.optimizers.SGD(0.1 * hvd.size())


@tf.function
def step(x, first):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((weight * x + bias - (3 * x + 1)) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, [weight, bias]), [weight, bias]))
    if first:
        hvd.broadcast_variables([weight, bias], root_rank=0)
    return loss


for at in range(10):
    loss = step(tf.random.uniform((16,)), at == 0)
print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss.numpy():.4f}")
"""

_HOROVOD_KERAS = """\
import horovod.tensorflow.keras as hvd
import tensorflow as tf

hvd.init()
x = tf.random.uniform((256, 1))
model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size()))
model.compile(optimizer=optimizer, loss="mse")
calls = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
history = model.fit(x, 3 * x + 1, batch_size=16, epochs=1, callbacks=calls, verbose=0)
print(f"rank {hvd.rank()} of {hvd.size()}: loss {history.history['loss'][-1]:.4f}")
"""

SCRIPTS: Mapping[str, str] = {
    "torch_ddp": _TORCH_DDP,
    "torch_fsdp": _TORCH_FSDP,
    "lightning": _LIGHTNING,
    "fabric": _FABRIC,
    "accelerate": _ACCELERATE,
    "transformers": _TRANSFORMERS,
    "deepspeed": _DEEPSPEED,
    "tensorflow_keras": _TENSORFLOW_KERAS,
    "tensorflow_loop": _TENSORFLOW_LOOP,
    "tensorflow_servers": _TENSORFLOW_SERVERS,
    "tensorflow_1": _TENSORFLOW_1,
    "jax": _JAX,
    "mpi4py": _MPI4PY,
    "horovod_torch": _HOROVOD_TORCH,
    "horovod_tensorflow": _HOROVOD_TENSORFLOW,
    "horovod_keras": _HOROVOD_KERAS,
}
FRAMEWORKS: Mapping[str, Framework] = {
    **dict.fromkeys(("torch_ddp", "torch_fsdp", "lightning", "fabric"), "torch"),
    **dict.fromkeys(("accelerate", "transformers", "deepspeed"), "torch"),
    **dict.fromkeys(("tensorflow_keras", "tensorflow_loop"), "tensorflow"),
    **dict.fromkeys(("tensorflow_servers", "tensorflow_1"), "tensorflow"),
    "jax": "jax",
    "mpi4py": "mpi",
    **dict.fromkeys(("horovod_torch", "horovod_tensorflow", "horovod_keras"), "horovod"),
}
WITH_SERVERS = frozenset({"tensorflow_servers", "tensorflow_1"})  # and in no other way
