"""JAX: one process a node (or one a GPU), data-parallel over all devices.

Run it: sbtrain -N 2 jax_sharded.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from digits_batches import CLASSES, PIXELS, RATE, Digits, options, tell
from jax.sharding import NamedSharding, PartitionSpec


@jax.jit
def train_step(weights, images, labels):
    def loss_of(weights):
        logits = images @ weights["kernel"] + weights["bias"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen.mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return jax.tree.map(lambda w, g: w - RATE * g, weights, gradients), loss


def main() -> None:
    asked = options(__doc__)
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    state, done = {"kernel": np.zeros((PIXELS, CLASSES)), "bias": np.zeros(CLASSES)}, 0
    checkpoint = asked.checkpoints / "weights.npz"
    if checkpoint.exists():
        with np.load(checkpoint) as saved:
            done, state = int(saved["step"]), {name: saved[name] for name in state}
        print(f"rank {rank} resumes after step {done}", flush=True)
    weights = jax.device_put(
        {name: value.astype("float32") for name, value in state.items()},
        NamedSharding(mesh, PartitionSpec()),
    )

    digits = Digits(rank, world)
    for step in range(done + 1, asked.steps + 1):
        images, labels = (
            jax.make_array_from_process_local_data(by_rows, part) for part in digits.batch(step)
        )
        weights, loss = train_step(weights, images, labels)
        if rank == 0:
            tell(step, float(loss), asked)
            if step % 10 == 0:
                unfinished = checkpoint.with_name("new.npz")
                np.savez(unfinished, step=step, **jax.device_get(weights))
                unfinished.replace(checkpoint)


if __name__ == "__main__":
    main()
