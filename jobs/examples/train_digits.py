#!/usr/bin/env python3
# Formatters write "# SBATCH", which Slurm does not read; hence:
# fmt: off
#SBATCH --job-name=digits
#SBATCH --time=00:15:00
#SBTRAIN --train-steps=400
#SBTRAIN --train-batch=32
# fmt: on
"""Trains a small CNN on handwritten digits, under whichever layout the plan chose.

First write the data, then run it under sbtrain (nodes and layout are planned), under plain
sbatch (one node), or right here:

    python digits_data.py digits.h5
    sbtrain --train-data digits.h5 train_digits.py
    sbatch train_digits.py --data digits.h5
    python train_digits.py --data digits.h5
"""

import argparse
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # the same sums on every CPU

from sbtrain import Run, join


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", default="digits.h5", help="where SBTRAIN_DATA names none")
    parser.add_argument("--checkpoints", help="when run alone")
    parser.add_argument("--min-step-ms", type=float, default=0.0, help="slow steps down")
    options = parser.parse_args()
    with join(default_steps=400, data=[options.data], checkpoints=options.checkpoints) as run:
        train(run, min_step_s=options.min_step_ms / 1000)


def train(run: Run, *, min_step_s: float) -> None:
    cluster = run.tensorflow()
    import keras
    import tensorflow as tf

    x_train, y_train, x_test, y_test = read_digits(run.data[0])
    keras.utils.set_random_seed(run.seed)
    with cluster.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.Adam(3e-3)
        optimizer.build(model.trainable_variables)
    state = [*model.variables, *optimizer.variables]
    run.describe(variables=[math.prod(one.shape) for one in model.trainable_variables])

    @cluster.compile
    def step_on(images, labels):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(
                labels, model(images, training=True), from_logits=True
            )
            loss = tf.reduce_mean(losses) / cluster.replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    sampler = run.sampler(len(x_train))
    start = run.resume(lambda folder: cluster.load(folder, state))
    for step in run.steps(start=start, save=lambda folder: cluster.save(folder, state)):
        began = time.perf_counter()
        chosen = sampler.batch(step)
        cluster.train(step_on, x_train[chosen], y_train[chosen])
        if run.is_chief and step % 50 == 0:
            print(f"step {step} of {run.steps_total}", flush=True)
        time.sleep(max(0.0, min_step_s - (time.perf_counter() - began)))

    if run.is_chief:
        predicted = tf.argmax(model(x_test), axis=-1).numpy()
        accuracy = float((predicted == y_test).mean())
        run.report(accuracy=accuracy)
        print(f"test accuracy {accuracy:.4f}", flush=True)


def read_digits(path):
    import h5py

    with h5py.File(path) as file:
        return [file[name][:] for name in ("x_train", "y_train", "x_test", "y_test")]


if __name__ == "__main__":
    main()
