"""TensorFlow: MultiWorkerMirroredStrategy, in a training loop of its own.

Run it: sbtrain -N 2 tensorflow_allreduce.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from digits_batches import CLASSES, PIXELS, RATE, Digits, options, tell


def main() -> None:
    asked = options(__doc__)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id or 0
    world = strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((PIXELS,)), keras.layers.Dense(CLASSES, kernel_initializer="zeros")]
        )
        optimizer = keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)
    counted = tf.Variable(0, dtype=tf.int64)
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, step=counted)
    own = asked.checkpoints if rank == 0 else asked.checkpoints / f"of-worker-{rank}"
    manager = tf.train.CheckpointManager(state, str(own), max_to_keep=2)
    if (found := tf.train.latest_checkpoint(str(asked.checkpoints))) is not None:
        state.restore(found)
        print(f"rank {rank} resumes after step {int(counted)}", flush=True)

    @tf.function
    def train_step(images, labels):
        def of_one_replica():
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(
                    labels, model(images, training=True), from_logits=True
                )
                loss = tf.reduce_mean(losses) / world
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(of_one_replica), axis=None
        )

    digits = Digits(rank, world)
    for step in range(int(counted) + 1, asked.steps + 1):
        loss = train_step(*map(tf.constant, digits.batch(step)))
        counted.assign(step)
        if rank == 0:
            tell(step, float(loss), asked)
        if step % 10 == 0:
            manager.save(step)  # every worker must: the variables are read together


if __name__ == "__main__":
    main()
