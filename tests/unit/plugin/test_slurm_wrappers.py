"""Files named as Slurm's commands that run sbtrain, as clusters put them first on PATH: Slurm's
own command is called once, whatever the wrapper looks like."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from commands import clean_environ
from sbtrain_jobs.process import CommandResult, run_command, start_process
from sbtrain_jobs.slurm_calls import FOLDER, NOTE, call_under_way

SBTRAIN = Path(sys.executable).with_name("sbtrain")
CALL = ("--parsable", "-N1", "-p", "standard", "--train-steps=5", "job.sh")
MOST_STARTS = 12  # a wrapper ends here, so that a fault of ours does not fill the machine


class Site:
    """A PATH with wrappers before the command that stands for Slurm's own."""

    def __init__(self, folder: Path, *, named: bool = True) -> None:
        self.folder = folder
        self.named = named
        self.slurm = self.made("slurm")
        self.path = [str(self.made("wrap")), str(self.slurm), str(SBTRAIN.parent)]
        self.path += [str(self.made("hidden")), "/bin"]
        self.environ = clean_environ(SBTRAIN_HOME=str(folder / "home"), SBTRAIN_SITE="private")
        (folder / "job.sh").write_text("#!/bin/sh\n")
        for name in ("sbatch", "squeue", "scontrol"):
            self.put(
                self.slurm / name, f'#!/bin/sh\necho "$@" >> {self.calls(name)}\necho 12\n'
            )

    def made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir()
        return path

    def put(self, path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def wrap(self, text: str, *, name: str = "sbatch", folder: str = "wrap") -> Path:
        """A wrapper that counts its starts. COUNT stands for the line that does."""
        if not self.named:
            for program in ("sbtrain", "sbtrainctl"):
                self.put(self.folder / "hidden" / f"do-{program[2:]}", self._through(program))
                text = re.sub(rf"(?<![/\w]){program}(?=[ '])", f"do-{program[2:]}", text)
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        starts = self.folder / "starts"
        count = f"echo x >> {starts}; [ $(wc -l < {starts}) -le {MOST_STARTS} ] || exit 99"
        return self.put(place / name, text.replace("COUNT", count))

    def _through(self, program: str) -> str:
        return f'#!/bin/sh\nexec {program} "$@"\n'

    def calls(self, name: str) -> Path:
        return self.folder / f"calls-{name}"

    def called(self, name: str = "sbatch") -> list[str]:
        path = self.calls(name)
        return path.read_text().splitlines() if path.exists() else []

    @property
    def starts(self) -> int:
        path = self.folder / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def run(self, *words: str, **changes: str) -> CommandResult:
        environ = {**self.environ, "PATH": os.pathsep.join(self.path), **changes}
        return run_command(words, cwd=self.folder, env=environ, timeout_s=60, check="keep")


@pytest.fixture(params=["named", "hidden"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """Its wrappers name sbtrain, or run it by way of another script."""
    return Site(tmp_path, named=request.param == "named")


def shell(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain "$@"\n')


def shell_by_its_path(site: Site) -> None:
    site.wrap(f'#!/bin/bash\nCOUNT\n{SBTRAIN} "$@"\n')


def shell_that_adds_words(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain --train-steps=7 --account=lab "$@"\n')


def shell_that_speaks(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\necho welcome >&2\nsbtrain "$@"; rc=$?\nexit $rc\n')


def shell_function(site: Site) -> None:
    site.wrap('sbatch() {\n  COUNT\n  sbtrain "$@"\n}\nsbatch "$@"\n')


def shell_that_goes_on_by_itself(site: Site) -> None:
    site.wrap(f'#!/bin/sh\nCOUNT\nsbtrain "$@" || exec {site.slurm}/sbatch "$@"\n')


def python_that_starts_it(site: Site) -> None:
    site.wrap(
        f"#!{sys.executable}\nimport os, subprocess, sys\nos.system('''COUNT''')\n"
        "sys.exit(subprocess.run(['sbtrain', *sys.argv[1:]]).returncode)\n"
    )


def python_that_is_it(site: Site) -> None:
    site.wrap(
        f"#!{sys.executable}\nimport os, sys\nfrom sbtrain.commands.submit import main\n"
        "os.system('''COUNT''')\nsys.exit(main())\n"
    )


def a_link(site: Site) -> None:
    (site.folder / "wrap/sbatch").symlink_to(SBTRAIN)


def a_copy(site: Site) -> None:
    shutil.copy(SBTRAIN, site.folder / "wrap/sbatch")


def two_in_a_chain(site: Site) -> None:
    second = site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain "$@"\n', folder="second")
    site.wrap(f'#!/bin/sh\nCOUNT\nexec {second} "$@"\n')
    site.path.insert(1, str(second.parent))


def one_that_looks_for_the_next(site: Site) -> None:
    """It takes its own folder off PATH, as good wrappers do; the next one runs sbtrain."""
    site.wrap('#!/bin/sh\nCOUNT\nPATH=${PATH#*:}\nexec sbatch "$@"\n')
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain "$@"\n', folder="second")
    site.path.insert(1, str(site.folder / "second"))


def its_folder_twice(site: Site) -> None:
    shell(site)
    (site.folder / "other").symlink_to("wrap")
    site.path[1:1] = [str(site.folder / "other"), site.path[0]]


def a_relative_folder(site: Site) -> None:
    shell(site)
    site.path[0] = "wrap"


def the_current_folder(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain "$@"\n', folder=".")
    site.path[0] = ""


def an_empty_environment(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nexec env -i PATH="$PATH" HOME="$HOME" sbtrain "$@"\n')


KINDS = (
    *(shell, shell_by_its_path, shell_that_adds_words, shell_that_speaks, shell_function),
    *(shell_that_goes_on_by_itself, python_that_starts_it, python_that_is_it, a_link, a_copy),
    *(two_in_a_chain, one_that_looks_for_the_next, its_folder_twice, a_relative_folder),
    the_current_folder,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_slurms_own_sbatch_is_called_once(site: Site, kind: Callable[[Site], None]) -> None:
    kind(site)
    assert_one_job(site, "sbtrain", *CALL)


@pytest.mark.parametrize(
    "kind",
    [shell, shell_that_adds_words, shell_function, python_that_starts_it, a_link],
    ids=lambda kind: kind.__name__,
)
def test_so_it_is_when_the_user_calls_the_wrapper(
    site: Site, kind: Callable[[Site], None]
) -> None:
    kind(site)
    assert_one_job(site, "env", "sbatch", *CALL)  # env looks it up as a shell does


def assert_one_job(site: Site, *words: str) -> None:
    said = site.run(*words)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "12\n"
    (call,) = site.called()
    assert call.endswith("/job.sh")
    assert "--train-steps" not in call
    assert site.starts <= 3
    assert len((site.folder / "home/runs.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("shows", ["--train-explain", "--train-dry-run", "--test-only"])
def test_a_wrapper_that_has_the_plan_shown_first_submits_once(site: Site, shows: str) -> None:
    """What is shown is sbtrain's, but for the question to Slurm: that goes to the next file."""
    site.wrap(f'#!/bin/sh\nCOUNT\nsbtrain {shows} "$@" >&2\nexec {site.slurm}/sbatch "$@"\n')
    said = site.run("sbtrain", *CALL)
    assert (said.returncode, said.stdout) == (0, "12\n")
    assert len([call for call in site.called() if "--test-only" not in call]) == 1
    assert site.starts == (0 if site.named else 1)


def test_wrappers_that_lead_to_each_other_end(site: Site) -> None:
    part = "PartitionName=standard Default=YES MaxNodes=UNLIMITED Nodes=c[1-4] TotalNodes=4 "
    part += "TotalCPUs=16 State=UP PriorityTier=1 PreemptMode=OFF GraceTime=0 "
    part += "MaxTime=UNLIMITED DefaultTime=NONE"
    for name, said in (("sbatch", "12"), ("scontrol", part)):
        site.put(site.slurm / name, f"#!/bin/sh\necho '{said}'\n")
        site.wrap(
            "#!/bin/sh\nCOUNT\n"
            "sbtrain --train-explain --train-launch=ranks -N1-2 -p standard job.sh >&2\n"
            f'exec {site.slurm}/{name} "$@"\n',
            name=name,
        )
    called = site.run("sbtrain", *CALL)
    assert (called.returncode, called.stdout) == (0, "12\n")
    assert site.named or site.starts > 1
    assert site.starts < MOST_STARTS


@pytest.mark.parametrize("program", ["sbtrain", "sbtrainctl"])
def test_a_file_for_every_command(site: Site, program: str) -> None:
    """All of them links to one wrapper: what they are asked reaches Slurm as it was said."""
    wrapper = site.wrap(f'#!/bin/sh\nCOUNT\nexec {program} "$@"\n', name="all")
    for name in ("sbatch", "squeue", "scontrol"):
        (wrapper.parent / name).symlink_to(wrapper)
    code = "from sbtrain_jobs.process import run_command\nimport sys\n"
    code += "sys.stdout.write(run_command(sys.argv[1:], timeout_s=30).stdout)\n"
    for call in (("scontrol", "--version"), ("squeue", "--me", "-h"), ("sbatch", "--help")):
        assert site.run(sys.executable, "-c", code, *call).stdout == "12\n"
        assert site.called(call[0]) == [" ".join(call[1:])]
    assert site.starts == (0 if site.named else 3)


def test_a_question_to_slurm_is_asked_once(site: Site) -> None:
    """The wrapper's words are not Slurm's: those of the call are handed on."""
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrainctl status "$@"\n', name="squeue")
    assert site.run("sbtrain", *CALL).returncode == 0
    assert site.run("sbtrainctl", "status").returncode == 0
    assert site.starts == (0 if site.named else 1)
    (question,) = site.called("squeue")
    assert "--jobs=12" in question
    assert "status" not in question


def test_a_file_for_srun(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nexec sbtrain --wait --wrap "$*"\n', name="srun")
    site.put(site.slurm / "srun", f'#!/bin/sh\necho "$@" >> {site.calls("srun")}\n')
    code = (
        "from sbtrain_jobs.process import run_command\n"
        "run_command(['srun', '-N2', 'a b'], timeout_s=30)"
    )
    assert site.run(sys.executable, "-c", code).returncode == 0
    assert site.called("srun") == ["-N2 a b"]
    assert site.starts == (0 if site.named else 1)


@pytest.mark.parametrize(
    "kind",
    [shell, shell_that_goes_on_by_itself, python_that_is_it, a_link, two_in_a_chain],
    ids=lambda kind: kind.__name__,
)
def test_where_nothing_but_wrappers_is_on_path_it_ends_at_once(
    site: Site, kind: Callable[[Site], None]
) -> None:
    kind(site)
    site.path.remove(str(site.slurm))
    site.path[-1:] = [str(site.made("bin"))]
    for tool in ("sh", "bash", "wc", "env"):
        (site.folder / "bin" / tool).symlink_to(f"/bin/{tool}")
    said = site.run("sbtrain", *CALL)
    if kind is shell_that_goes_on_by_itself:
        assert (said.returncode, said.stdout) == (0, "12\n")
        return
    assert said.returncode != 0
    assert said.stdout == ""
    assert "there is no sbatch of Slurm here: every sbatch on PATH runs sbtrain" in said.stderr
    assert f"name it in {FOLDER}" in said.stderr
    assert said.stderr.count("hint: ") == 1
    assert site.starts <= 4
    assert site.called() == []
    assert list((site.folder / ".sbtrain/runs").iterdir()) == []


def an_ancestor_that_clears_all(site: Site) -> None:
    """Neither environment nor open files reach what it starts."""
    program = "sbtrain" if site.named else "do-train"
    site.wrap(
        f"#!{sys.executable}\nimport os, subprocess, sys\nos.system('''COUNT''')\n"
        "environ = {name: os.environ[name] for name in ('PATH', 'HOME')}\n"
        f"sys.exit(subprocess.run(['{program}', *sys.argv[1:]], env=environ).returncode)\n"
    )
    if not site.named:
        site.put(site.folder / "hidden/do-train", '#!/bin/sh\nexec sbtrain "$@"\n')


@pytest.mark.parametrize("kind", [an_empty_environment, an_ancestor_that_clears_all])
@pytest.mark.parametrize("asks", [("--train-steps=5",), ()])
@pytest.mark.parametrize("first", [("sbtrain",), ("env", "sbatch")])
def test_a_wrapper_that_clears_the_environment_is_seen_all_the_same(
    site: Site, first: Sequence[str], asks: Sequence[str], kind: Callable[[Site], None]
) -> None:
    kind(site)
    said = site.run(*first, "--parsable", "-N1", *asks, "job.sh", SBTRAIN_SITE="generic")
    assert (said.returncode, said.stdout) == (0, "12\n"), said.stderr
    assert len(site.called()) == 1
    assert site.starts <= 2


def test_a_wrapper_that_runs_it_twice_gets_two_jobs(site: Site) -> None:
    site.wrap('#!/bin/sh\nCOUNT\nsbtrain "$@" & sbtrain "$@"; wait\n')
    said = site.run("env", "sbatch", *CALL)
    assert said.stdout == "12\n12\n"
    assert len(site.called()) == 2


def test_slurms_folder_can_be_named(site: Site) -> None:
    shell(site)
    said = site.run("sbtrain", *CALL, **{FOLDER: str(site.slurm)})
    assert (said.returncode, site.starts, len(site.called())) == (0, 0, 1)
    said = site.run("sbtrain", *CALL, **{FOLDER: str(site.folder / "no")})
    assert said.returncode == 12
    assert f"cannot run {site.folder}/no/sbatch: No such file or directory" in said.stderr


def test_a_written_job_script_is_not_planned_again(site: Site) -> None:
    """However a wrapper gets here, by ssh or in a container: it has that to submit."""
    assert site.run("sbtrain", *CALL).returncode == 0
    (script,) = (site.folder / ".sbtrain/runs").glob("*/job.sh")
    said = site.run("sbtrain", "-N1", str(script))
    assert said.returncode == 0
    assert len(site.called()) == 2  # sbatch's alone
    said = site.run("sbtrain", "-N1", "--train-steps=5", str(script))
    assert said.returncode == 1
    assert "is a job script that sbtrain has written" in said.stderr
    assert len(site.called()) == 2


def test_a_caller_that_is_killed_leaves_nothing_that_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path, named=False)
    site.wrap('#!/bin/sh\nCOUNT\nsleep 1\nsbtrain "$@"\n')
    environ = {**site.environ, "PATH": os.pathsep.join(site.path)}
    caller = start_process([str(SBTRAIN), *CALL], cwd=site.folder, env=environ)
    while not site.starts:
        assert caller.poll() is None
        time.sleep(0.05)
    caller.kill()
    caller.wait()
    time.sleep(4)  # for a second level to start, and whatever it would
    assert site.starts == 1
    assert len(site.called()) <= 1


def environment_of(site: Site, program: Path) -> Mapping[str, str]:
    """What a command of Slurm's finds in its environment when sbtrain starts it."""
    said = site.folder / "environ.json"
    site.put(
        program,
        f"#!{sys.executable}\nimport json, os\n"
        f"open({str(said)!r}, 'w').write(json.dumps(dict(os.environ)))\nprint(12)\n",
    )
    assert site.run("sbtrain", *CALL).returncode == 0
    found: dict[str, str] = json.loads(said.read_text())
    return found


def test_the_note_goes_no_further_than_it_must(site: Site) -> None:
    shell(site)
    note = json.loads(environment_of(site, site.slurm / "sbatch")[NOTE])
    names_us = [str(site.folder / "wrap/sbatch")] if site.named else []
    assert note["left"] == {"sbatch": ["/bin/sbatch", *names_us]}  # it is a script here
    code = (
        "import os, sys; from sbtrain_jobs.process import run_command as r\n"
        f"os.environ[{NOTE!r}] = 'of an outer call'\n"
        "sys.stdout.write(r(['env'], timeout_s=30).stdout)\n"
        "sys.stdout.write(r(['env'], timeout_s=30, env=dict(os.environ)).stdout)\n"
    )
    said = site.run(sys.executable, "-c", code)
    assert "PATH=" in said.stdout
    assert NOTE not in said.stdout


def test_a_note_that_came_into_a_job_is_of_no_call_there(site: Site) -> None:
    """A script of the site's that runs Slurm's sbatch hands its environment on to the job."""
    shell(site)
    note = environment_of(site, site.slurm / "sbatch")[NOTE]
    assert call_under_way({NOTE: note})[0] == "sbatch"
    assert call_under_way({NOTE: note, "SLURM_JOB_ID": "7"}) == ()
