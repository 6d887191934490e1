"""TensorFlow's part: the strategy that the plan asks for, its steps, its saves, its servers.

Imports TensorFlow, so nothing imports this file at its head; `Run.tensorflow()` and join()
do when they need it. One way of training works under both layouts (Keras's model.fit works
under neither with Keras 3): a step function of tensors that computes gradients and applies
them, run by `TensorFlowRoles.train`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, Protocol

from sbtrain_jobs.errors import CheckpointError
from sbtrain_perf.errors import MissingExtraError, PlanError
from sbtrain_perf.request import Layout, RoleName

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # peers may start later than we do

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise MissingExtraError("tensorflow", extra="tensorflow", purpose="this run") from error

_log = logging.getLogger("sbtrain.tensorflow")
tf.get_logger().setLevel(logging.ERROR)

STATE = "state.npz"
EXIT_WITHIN_S = 10.0

StepFunction = Callable[..., Any]  # tensors -> the loss, a scalar tensor


class JoinedRun(Protocol):
    """What is needed of the run that a process has joined."""

    @property
    def alone(self) -> bool: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def world_size(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...


class TensorFlowRoles(ABC):
    """How steps run under one layout.

    Attributes:
        strategy: create variables, model and optimiser under `scope()`.
        replicas: how many gradients are summed into one update; a step function divides
            its mean loss by it.
    """

    strategy: Any
    replicas: int = 1

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.strategy.scope()
        return scope

    @abstractmethod
    def compile(self, function: StepFunction) -> StepFunction:
        """The step function as `train` takes it; compiled once per shape of its arguments."""

    @abstractmethod
    def train(self, function: StepFunction, *arrays: Any) -> None:
        """Run one step on this worker's batch, or hand it to a worker."""

    def drain(self) -> None:
        """Return once every step that was handed out has been applied."""
        return

    def save(self, folder: Path, variables: Iterable[Any]) -> None:
        """Write the values of variables into a checkpoint's folder."""
        import numpy as np

        self.drain()
        values = {
            f"{number:05d}:{variable.name}": tf.convert_to_tensor(variable).numpy()
            for number, variable in enumerate(variables)
        }
        np.savez(folder / STATE, **values)

    def load(self, folder: Path, variables: Iterable[Any]) -> None:
        """Set variables to what `save` wrote, in the same order.

        Raises:
            CheckpointError: they are not those that were saved.
        """
        import numpy as np

        variables = list(variables)
        with np.load(folder / STATE, allow_pickle=False) as stored:
            values = [stored[name] for name in sorted(stored.files)]
        if [value.shape for value in values] != [tuple(v.shape) for v in variables]:
            raise CheckpointError(
                f"{folder} holds {len(values)} variables that do not fit the "
                f"{len(variables)} of this script",
                hint="the model or the optimiser changed since it was saved: "
                "name another checkpoint folder to start afresh",
            )
        with self.scope():
            for value, variable in zip(values, variables):
                variable.assign(value)


class Alone(TensorFlowRoles):
    """One process; all its GPUs where there are several."""

    def __init__(self) -> None:
        several = len(tf.config.list_logical_devices("GPU")) > 1
        self.strategy = (
            tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
        )
        self.replicas = self.strategy.num_replicas_in_sync

    def compile(self, function: StepFunction) -> StepFunction:
        return _on_replicas(self.strategy, function)

    def train(self, function: StepFunction, *arrays: Any) -> None:
        function(*_local_shares(self.strategy, self.replicas, arrays))


class AllReduce(TensorFlowRoles):
    """Synchronous: every worker's gradients are summed before each update."""

    def __init__(self, workers: int) -> None:
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.AUTO
            if tf.config.list_physical_devices("GPU")
            else tf.distribute.experimental.CommunicationImplementation.RING
        )
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        self.replicas = self.strategy.num_replicas_in_sync
        self._local = self.replicas // workers
        self._workers = workers

    def compile(self, function: StepFunction) -> StepFunction:
        return _on_replicas(self.strategy, function)

    def train(self, function: StepFunction, *arrays: Any) -> None:
        function(*_local_shares(self.strategy, self._local, arrays))

    def lowest(self, step: int) -> int:
        """The lowest of all workers' steps."""
        gathered = self._gather(step)
        return int(min(gathered))

    def leave_together(self) -> None:
        """A worker that left early would fail the collectives of the others."""
        try:
            self._gather(0)
        except tf.errors.OpError as error:
            _log.warning("sbtrain: another worker left early: %s", error.message)

    def _gather(self, value: int) -> list[int]:
        def gathered() -> Any:
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.constant([value], tf.int64), axis=0)

        results = _on_replicas(self.strategy, gathered)()
        result = self.strategy.experimental_local_results(results)[0]
        return [int(number) for number in result.numpy()]


class ParameterServers(TensorFlowRoles):
    """Asynchronous: this process hands each step to a free worker; a bounded number is out.

    The batch travels with the step. A step counts once it is handed out; `drain` waits
    until all that were handed out are applied.
    """

    def __init__(self, workers: int) -> None:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._most_out = 2 * workers
        self._out: deque[Any] = deque()

    def compile(self, function: StepFunction) -> StepFunction:
        return _on_replicas(self.strategy, function)

    def train(self, function: StepFunction, *arrays: Any) -> None:
        # Tensors, not arrays: with arrays TensorFlow takes a lost worker for a wrong call.
        tensors = tuple(tf.convert_to_tensor(array) for array in arrays)
        self._out.append(self._coordinator.schedule(function, args=tensors))
        if len(self._out) >= self._most_out:
            self._wait_for(self._out.popleft())

    def drain(self) -> None:
        self._coordinator.join()
        self._out.clear()

    def _wait_for(self, loss: Any) -> None:
        """Return once a step is applied. Its loss may be lost with its worker; a step that
        failed is raised by the coordinator at the next train or drain."""
        try:
            loss.fetch()
        except (tf.errors.UnavailableError, tf.errors.CancelledError, tf.errors.AbortedError):
            _log.info("a step's loss was lost with its worker")


def connect(run: JoinedRun) -> TensorFlowRoles:
    """The cluster of the run's layout, as this process takes part in it."""
    _end_for_certain(run)
    if run.layout == "ps" and not run.alone:
        return ParameterServers(run.world_size)
    if run.world_size > 1:
        return AllReduce(run.world_size)
    return Alone()


def park(role: RoleName, index: int, *, workers: int, cores: int) -> NoReturn:
    """Serve the chief until the node agent says so or is gone, then end this process.

    At a preemption Slurm signals every process of a step; a server that obeyed would take
    the parameters away before the chief has saved them. So a signal counts only when it
    comes from our own parent, the agent.
    """
    numbers = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # for threads that were there before
    parent = os.getppid()
    threads = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=cores,
        # With fewer, steps that wait for variables leave no thread to serve them.
        inter_op_parallelism_threads=workers + 1,
    )
    server = tf.distribute.Server(
        tf.train.ClusterSpec(_tf_cluster()),
        job_name=role,
        task_index=index,
        protocol="grpc",
        config=threads,
    )
    while os.getppid() == parent:
        received = signal.sigtimedwait(numbers, 1.0)
        if (
            received is not None
            and received.si_signo == signal.SIGTERM
            and received.si_pid == parent
        ):
            break
    del server
    _flush()
    os._exit(0)


def _tf_cluster() -> dict[str, list[str]]:
    """host:port of every process, by role."""
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        return {role: list(addresses) for role, addresses in cluster.items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        raise PlanError(
            "TF_CONFIG does not say where the servers and workers are",
            hint="the node agent sets it; start the script with sbtrain",
        ) from None


def _on_replicas(strategy: Any, function: StepFunction) -> StepFunction:
    compiled: StepFunction = tf.function(lambda *tensors: strategy.run(function, args=tensors))
    return compiled


def _local_shares(strategy: Any, replicas: int, arrays: Sequence[Any]) -> Sequence[Any]:
    """A batch split over the replicas of this process."""
    if replicas == 1:
        return arrays
    return [
        strategy.experimental_distribute_values_from_function(
            lambda context, array=array: tf.constant(
                array[context.replica_id_in_sync_group % replicas :: replicas]
            )
        )
        for array in arrays
    ]


def _end_for_certain(run: JoinedRun) -> None:
    """End the process with its exit code even when TensorFlow's threads hang at exit, as a
    coordinator's can after a failed step."""

    def watch() -> None:
        threading.main_thread().join()
        time.sleep(EXIT_WITHIN_S)
        _flush()
        failed = hasattr(sys, "last_value")  # an exception ended the main thread
        os._exit(1 if failed or run.exit_code is None else run.exit_code)

    threading.Thread(target=watch, name="sbtrain-exit", daemon=True).start()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
