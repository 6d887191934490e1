"""Options that would put sbtrain itself into a container."""

from __future__ import annotations

import pytest

from sbtrain.options.argv import Setting
from sbtrain.submission.containers import refuse_containers
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Launch

PYXIS = ("container-image", "container-mounts", "no-container-mount-home")


@pytest.mark.parametrize(
    ("launch", "names"),
    [("ranks", (*PYXIS, "container", "container-id")), ("script", PYXIS)],
)
def test_they_are_refused_with_what_to_write_instead(
    launch: Launch, names: tuple[str, ...]
) -> None:
    for name in names:
        settings = (Setting(name="nodes", value="2"), Setting(name=name, value="x"))
        with pytest.raises(RequestError, match=f"--{name}=x puts the job script") as refused:
            refuse_containers(settings, launch)
        assert f"srun --{name}=x python" in (refused.value.hint or "")


def test_a_script_that_runs_once_has_slurms_own() -> None:
    refuse_containers((Setting(name="container", value="x"),), "script")
    refuse_containers((Setting(name="contiguous"), Setting(name="constraint")), "ranks")
