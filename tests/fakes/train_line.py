"""Fits a line with plain gradient descent, so that any two ways of splitting the same
batches must end in the same weights. Arguments: checkpoint folder when run alone."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

from sbtrain_jobs import join


def main() -> None:
    with join(default_steps=30, default_batch=32, checkpoints=sys.argv[1], seed=5) as run:
        import numpy as np
        import tensorflow as tf

        if os.environ.get("LINE_CPUS"):
            devices = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["LINE_CPUS"])
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, devices)
        cluster = run.tensorflow()
        if os.environ.get("LINE_CPUS"):
            names = [device.name for device in tf.config.list_logical_devices("CPU")]
            cluster.strategy = tf.distribute.MirroredStrategy(names)
            cluster.replicas = len(names)
        points = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
        targets = points @ np.float32([1, -2, 3]) + 0.5
        with cluster.scope():
            weights = tf.Variable([0.0, 0.0, 0.0])
            offset = tf.Variable(0.0)
            import keras

            optimizer = keras.optimizers.SGD(0.05)
            optimizer.build([weights, offset])

        @cluster.compile
        def step_on(inputs, wanted):
            with tf.GradientTape() as tape:
                errors = tf.linalg.matvec(inputs, weights) + offset - wanted
                loss = tf.reduce_mean(errors**2) / cluster.replicas
            variables = [weights, offset]
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        sampler = run.sampler(len(points))
        for step in run.steps(save=lambda folder: cluster.save(folder, [weights, offset])):
            chosen = sampler.batch(step)
            cluster.train(step_on, points[chosen], targets[chosen])


if __name__ == "__main__":
    main()
