"""MPI: numpy, its gradients summed by mpi4py.

Run it: sbtrain -N 2 mpi_numpy.py
"""

import numpy as np
from digits_batches import BATCH, CLASSES, PIXELS, RATE, Digits, options, tell
from mpi4py import MPI


def main() -> None:
    asked = options(__doc__)
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    print(f"rank {rank} of {size}", flush=True)
    weights, done = np.zeros((PIXELS + 1, CLASSES), "float32"), 0
    checkpoint = asked.checkpoints / "weights.npz"
    if checkpoint.exists():
        with np.load(checkpoint) as state:
            weights, done = state["weights"], int(state["step"])
        print(f"rank {rank} resumes after step {done}", flush=True)

    digits = Digits(rank, size)
    total = np.empty_like(weights)
    for step in range(done + 1, asked.steps + 1):
        images, labels = digits.batch(step)
        loss, gradient = loss_and_gradient(weights, images, labels)
        world.Allreduce(gradient, total)
        loss = world.allreduce(loss) / size
        weights -= RATE * total / size
        if rank == 0:
            tell(step, loss, asked)
            if step % 10 == 0:
                unfinished = checkpoint.with_name("new.npz")
                np.savez(unfinished, weights=weights, step=step)
                unfinished.replace(checkpoint)


def loss_and_gradient(weights, images, labels):
    """Of softmax regression with cross entropy, mean over the batch."""
    inputs = np.hstack([images, np.ones((len(images), 1), "float32")])
    logits = inputs @ weights
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = float(-np.log(shares[np.arange(BATCH), labels]).mean())
    shares[np.arange(BATCH), labels] -= 1
    return loss, inputs.T @ shares / BATCH


if __name__ == "__main__":
    main()
