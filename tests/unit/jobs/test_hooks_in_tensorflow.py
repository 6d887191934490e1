"""What hooks tell of TensorFlow's own loops and of Keras, which train as ever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from test_hooked_steps import RunWithout, supervisor, told
from test_hooks import heard, of_a_rank, ran

from played_supervisor import PlayedSupervisor
from preloaded import PreloadedParent
from sbtrain_jobs.process import CommandResult
from sbtrain_jobs.wire.messages import PhaseDone, Saved, StepsDone

__all__ = ["supervisor"]
pytestmark = pytest.mark.tensorflow


@pytest.fixture
def run_without(with_tensorflow: PreloadedParent) -> RunWithout:
    """Of what no hook is to see TensorFlow may be there before it starts."""

    def run(text: str, environ: Mapping[str, str], cwd: Path) -> CommandResult:
        (cwd / "train.py").write_text(text)
        return with_tensorflow.run(cwd / "train.py", env=environ, cwd=cwd, timeout_s=300)

    return run


TENSORFLOW = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
w = tf.Variable(tf.ones((4, 3)))
b = tf.Variable(tf.zeros(3))
TRACED
def loss_of(x):
    return tf.reduce_mean((x @ w + b) ** 2)
TRACED
def train(x):
    with tf.GradientTape() as tape:
        loss = loss_of(x)
    for variable, gradient in zip((w, b), tape.gradient(loss, (w, b))):
        variable.assign_sub(0.1 * gradient)
    return loss
for step in range(9):
    x = tf.fill((2, 4), float(step))
    train(x)
    loss_of(x)
print(float(tf.reduce_sum(w)), train.__name__)
"""


@pytest.mark.parametrize("traced", ["@tf.function", pytest.param("", marks=pytest.mark.slow)])
def test_a_loop_of_tensorflow(
    traced: str, supervisor: PlayedSupervisor, tmp_path: Path, run_without: RunWithout
) -> None:
    text = TENSORFLOW.replace("TRACED", traced)
    found = told(supervisor, text, tmp_path, run_without=run_without)
    assert found.steps == tuple(range(2, 10))
    assert (found.start.parameters, found.start.tensors) == (15, 2)
    assert found.start.variables == (12, 3)


SERVERS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import socket
import tensorflow as tf
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
spec = {name: [f"127.0.0.1:{port()}"] for name in ("worker", "ps")}
cluster = tf.train.ClusterSpec({**spec, "chief": [f"127.0.0.1:{port()}"]})
servers = [tf.distribute.Server(cluster, name, 0, protocol="grpc") for name in spec]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    w = tf.Variable(tf.ones(4))
@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
@tf.function
def evaluate():
    return tf.reduce_sum(w)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
for _ in range(12):
    coordinator.schedule(train)
    coordinator.schedule(evaluate)
coordinator.join()
print(float(tf.reduce_sum(w)), flush=True)
"""


def test_what_a_coordinator_schedules(
    supervisor: PlayedSupervisor, tmp_path: Path, run_without: RunWithout
) -> None:
    found = told(supervisor, SERVERS, tmp_path, run_without=run_without)
    assert found.steps in (tuple(range(2, 13)), tuple(range(2, 12)))  # the last may be at it
    assert (found.start.parameters, found.start.tensors) == (4, 1)


KERAS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import multiprocessing, numpy, keras
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = numpy.arange(256.0).reshape(64, 4) / 256
model.fit(x, x[:, :1], epochs=2, batch_size=8, validation_split=0.5, verbose=0)
model.save_weights("w.weights.h5")
print(*(float(v.numpy().sum()) for v in model.trainable_variables))
"""


def test_keras_tells_of_steps_and_saves_and_trains_as_ever(
    supervisor: PlayedSupervisor, tmp_path: Path, run_without: RunWithout
) -> None:
    environ = of_a_rank(supervisor, TF_ENABLE_ONEDNN_OPTS="0", KERAS_BACKEND="tensorflow")
    said = ran(KERAS, environ, tmp_path)
    assert said.returncode == 0, said.stderr
    told = heard(supervisor)
    (start,) = [m for m in told if isinstance(m, PhaseDone) and m.name == "start"]
    assert (start.parameters, start.tensors) == (19, 4)
    assert start.variables == (12, 3, 3, 1)
    steps = [m for m in told if isinstance(m, StepsDone)]
    assert steps[0].first == 1
    assert sum(len(m.seconds) for m in steps) == 8
    (saved,) = [m for m in told if isinstance(m, Saved)]
    assert saved == Saved(rank=1, step=8, path=str(tmp_path / "w.weights.h5"))
    (kept,) = [m for m in told if isinstance(m, PhaseDone) and m.name == "checkpoint"]
    assert kept.size_bytes == (tmp_path / "w.weights.h5").stat().st_size
    without = run_without(KERAS, {**environ, "SBTRAIN_ROLE": ""}, tmp_path)
    assert without.stdout == said.stdout
