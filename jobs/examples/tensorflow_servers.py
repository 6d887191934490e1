"""TensorFlow: ParameterServerStrategy, asynchronous, led by a coordinator.

Run it: sbtrain -N 3 tensorflow_servers.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf
from digits_batches import CLASSES, PIXELS, RATE, Digits, options, tell


def main() -> None:
    asked = options(__doc__)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
        )
        server.join()
    lead(asked, resolver)


def lead(asked, resolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        kernel = tf.Variable(tf.zeros((PIXELS, CLASSES)))
        bias = tf.Variable(tf.zeros(CLASSES))
        counted = tf.Variable(0, dtype=tf.int64)
    state = tf.train.Checkpoint(kernel=kernel, bias=bias, step=counted)
    manager = tf.train.CheckpointManager(state, str(asked.checkpoints), max_to_keep=2)
    if manager.restore_or_initialize() is not None:
        print(f"resumes after step {int(counted)}", flush=True)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, images @ kernel + bias
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [kernel, bias])
        for variable, gradient in zip([kernel, bias], gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    digits = Digits(0, 1)
    for step in range(int(counted) + 1, asked.steps + 1):
        batch = tuple(map(tf.constant, digits.batch(step)))
        loss = coordinator.schedule(train_step, args=batch)
        if step % 10 == 0 or step <= 10:
            coordinator.join()
            tell(step, float(loss.fetch()), asked)
        if step % 10 == 0:
            counted.assign(step)
            manager.save(step)
    coordinator.join()


if __name__ == "__main__":
    main()
