"""No convention that is known: what a script may read of any that need no launcher of their
own."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import Convention
from sbtrain_jobs.layouts.conventions import jax, tensorflow, torch

CONVENTION = Convention(
    variables=(torch.variables, jax.variables, tensorflow.variables),
)
