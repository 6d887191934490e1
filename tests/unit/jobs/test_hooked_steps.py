"""What hooks tell of the steps of frameworks' own loops, and that these train as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_hooks import OF_A_RANK, heard, of_a_rank, ran

from played_supervisor import PlayedSupervisor
from sbtrain_jobs.hooks.step_times import OTHERS_IN_A_ROW, Leader, StepTimes, Trained
from sbtrain_jobs.hooks.witness import Witness
from sbtrain_jobs.process import CommandResult
from sbtrain_jobs.wire.messages import PhaseDone, StepsDone

RunWithout = Callable[[str, Mapping[str, str], Path], CommandResult]


@pytest.fixture
def supervisor() -> Iterator[PlayedSupervisor]:
    played = PlayedSupervisor()
    yield played
    played.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    start: PhaseDone
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    input_s: float
    samples: set[int]


def told(
    supervisor: PlayedSupervisor, text: str, cwd: Path, *, run_without: RunWithout = ran
) -> Told:
    """By the hooks of a script, which prints the same without them."""
    environ = of_a_rank(supervisor, OMP_NUM_THREADS="1", TF_ENABLE_ONEDNN_OPTS="0")
    said = ran(text, environ, cwd)
    assert said.returncode == 0, said.stderr
    messages = heard(supervisor)
    (start,) = [m for m in messages if isinstance(m, PhaseDone)]
    done = [m for m in messages if isinstance(m, StepsDone)]
    without = run_without(text, {**environ, "SBTRAIN_ROLE": ""}, cwd)
    assert without.stdout == said.stdout
    return Told(
        start=start,
        steps=tuple(m.first + i for m in done for i in range(len(m.seconds))),
        seconds=tuple(one for m in done for one in m.seconds),
        input_s=sum(m.input_s for m in done),
        samples={m.samples_per_step for m in done},
    )


# -- counting ----------------------------------------------------------------------------


def test_of_several_that_step_the_first_leads_until_it_is_out_of_use() -> None:
    leader = Leader()
    assert [leader.leads(one) for one in "abab"] == [True, False, True, False]
    for _ in range(OTHERS_IN_A_ROW - 2):
        assert not leader.leads("b")
    assert leader.leads("b")
    assert not leader.leads("a")


def test_one_framework_counts_and_input_is_that_of_timed_steps(
    supervisor: PlayedSupervisor,
) -> None:
    own = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": supervisor.address})
    times = StepTimes(own)
    for input_s in (8.0, 0.25, 0.5):
        times.end("one", lambda _: Trained(3, 2, (1, 2)), None, input_s=input_s)
        times.end("other", lambda _: Trained(5, 5), None, input_s=1.0)
    own._end()
    _, start, steps = heard(supervisor)
    assert isinstance(start, PhaseDone)
    assert (start.parameters, start.tensors, start.variables) == (3, 2, (1, 2))
    assert isinstance(steps, StepsDone)
    assert (steps.first, len(steps.seconds), steps.input_s) == (2, 2, 0.75)


# -- JAX ---------------------------------------------------------------------------------


JAX = """
import copy, functools, inspect
import jax, jax.numpy as jnp
@jax.jit
def loss_of(w, x):
    return jnp.mean((x @ w) ** 2)
@functools.partial(jax.jit, static_argnames=("rate",), donate_argnums=0)
def update(w, x, rate=0.1):
    "One step."
    return w - rate * jax.grad(loss_of)(w, x)
class Model:
    @jax.jit
    def apply(x):
        return update(x, x)
w, x = jnp.ones((4, 4)), jnp.ones((2, 4))
for _ in range(9):
    w = update(w, x, rate=0.2)
    loss_of(w, x)
print(float(w.sum()), update.__doc__, update.__name__, inspect.signature(update))
print(jax.vmap(update, (0, None))(jnp.stack([w, w]), x).sum(), jax.jit(update)(w + 0, x).sum())
print(update.lower(w, x).compile()(w + 0, x).sum(), jax.eval_shape(update, w, x).shape)
print(jax.make_jaxpr(update)(w, x), Model.apply(w[:, :] + 0).sum(), hash(update) != 0)
print(callable(copy.copy(update)), update == update, str(update).split(" at ")[0])
"""


@pytest.mark.slow
def test_a_loop_of_jax(supervisor: PlayedSupervisor, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    found = told(supervisor, JAX, tmp_path)
    first = found.steps[0]  # what was handed over with the very first has no time
    assert 2 <= first <= 9
    assert found.steps == tuple(range(first, 10))
    assert found.start.parameters is None


HANDS_OVER = """
import jax, jax.numpy as jnp
@jax.jit
def update(w):
    work = jax.lax.fori_loop(0, 200, lambda _, x: jnp.tanh(x @ x), w)
    return w - 0.1 * jax.grad(lambda w: (w ** 2).sum())(w) + 0.0 * work
w = jnp.ones((200, 200)) / 200
update(w).block_until_ready()
for step in range(1, 25):
    w = update(w)
    if step % 4 == 0:
        w.block_until_ready()
print(float(w.sum()))
"""


@pytest.mark.slow
def test_steps_that_are_handed_over_last_as_long_as_they_run(
    supervisor: PlayedSupervisor, tmp_path: Path
) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    found = told(supervisor, HANDS_OVER, tmp_path)
    assert found.steps == tuple(range(2, 2 + len(found.steps)))
    assert 20 <= len(found.steps) < 24  # of the last nobody sees the end
    assert min(found.seconds) > 0.001


# -- PyTorch -----------------------------------------------------------------------------


EVALUATES = """
import time
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __init__(self, rows, seconds):
        self.rows, self.seconds = rows, seconds
    def __len__(self):
        return self.rows
    def __getitem__(self, row):
        time.sleep(self.seconds)
        return torch.full((4,), float(row))
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
class Wrapped(torch.optim.SGD):  # as Horovod's
    def step(self, closure=None):
        return super().step(closure)
torch.optim.SGD(model.parameters())  # its step tells too, from here on
optimizer = Wrapped(model.parameters(), lr=1e-4)
train, valid = DataLoader(Data(20, 0.01), batch_size=4), DataLoader(Data(4, 0.25))
for epoch in range(3):
    for number, x in enumerate(train):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        if number == 2:
            list(valid)
    list(valid)
print(float(model.weight.sum()))
"""


@pytest.mark.slow
def test_evaluation_belongs_to_no_step_of_pytorch(
    supervisor: PlayedSupervisor, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = told(supervisor, EVALUATES, tmp_path)
    assert found.steps == tuple(range(2, 16))
    assert found.samples == {4}
    assert sum(found.seconds) < 3.0  # an evaluation takes one, and there are six
    assert 14 * 0.04 <= found.input_s < sum(found.seconds)
