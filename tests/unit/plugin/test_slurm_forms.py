"""Slurm's JSON and text of three versions become the same values; what does not fit is
refused with the command and the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm import json_forms, text_forms
from sbtrain.slurm.client import Gres, JobInfo, SlurmVersion
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.states import JobState

SAMPLES = Path(__file__).resolve().parents[4] / "shared/samples/slurm-json"
VERSIONS = ("22.05", "24.11", "26.05")

with_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="needs the samples of real versions in the shared data"
)


def sample(version: str, name: str) -> str:
    return (SAMPLES / version / name).read_text()


def jobs_of(version: str, name: str) -> tuple[JobInfo, ...]:
    return json_forms.read_jobs(sample(version, name), command="squeue --json")


@with_samples
@pytest.mark.parametrize("version", VERSIONS)
class TestSamples:
    def test_version(self, version: str) -> None:
        read = text_forms.read_version(sample(version, "version.txt"))
        assert (read.year, read.month) == tuple(map(int, version.split(".")))
        assert read.patch > 0

    def test_a_running_job(self, version: str) -> None:
        running = jobs_of(version, "squeue.json")[0]
        assert running.state == JobState.RUNNING
        assert running.job_id == running.submission_id == str(running.number)
        assert (running.partition, running.nodes, running.node_count) == ("low", "n[1-2]", 2)
        assert running.comment == '{"a":1}'
        assert (running.user, running.user_id) == ("root", 0)
        assert (running.restarts, running.requeue, running.time_limit_s) == (0, True, 300)
        assert running.array_job_id is None
        assert running.het_job_id is None
        assert running.preempt_time_s is None
        assert running.start_time_s is not None
        assert running.end_time_s == pytest.approx(running.start_time_s + 300, abs=1)
        assert not running.over

    def test_a_waiting_job(self, version: str) -> None:
        waiting = jobs_of(version, "squeue.json")[1]
        assert waiting.state == JobState.PENDING
        assert waiting.reason in {"Priority", "Resources"}
        assert (waiting.nodes, waiting.node_count, waiting.time_limit_s) == ("", 4, 600)

    def test_a_job_that_was_put_back(self, version: str) -> None:
        back = jobs_of(version, "squeue_preempted.json")[0]
        assert back.state == JobState.PENDING
        assert back.restarts >= 1
        assert back.eligible_time_s is not None
        assert not back.over
        again = jobs_of(version, "squeue_after_preempt.json")[0]
        assert again.state == JobState.RUNNING
        assert again.restarts == back.restarts
        assert again.job_id == back.job_id

    def test_nodes(self, version: str) -> None:
        name = "sinfo.json" if version == "22.05" else "scontrol_nodes.json"
        nodes = json_forms.read_nodes(sample(version, name), command="sinfo --json")
        assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
        first = nodes[0]
        assert (first.cpus, first.cpus_allocated, first.memory_mib) == (4, 1, 4000)
        assert first.gres == (Gres(name="gpu", kind="k80", count=2),)
        assert "MIXED" in first.states
        assert set(first.partitions) == {"low", "high"}
        assert first.usable


@with_samples
@pytest.mark.parametrize("version", VERSIONS[1:])  # scontrol of 22.05 writes no JSON
def test_scontrol_says_what_squeue_says(version: str) -> None:
    by_scontrol = jobs_of(version, "scontrol_job.json")[0]
    by_squeue = {job.number: job for job in jobs_of(version, "squeue.json")}
    assert by_squeue[by_scontrol.number] == by_scontrol


def number(value: float | None) -> object:
    known = value is not None
    return {"set": known, "infinite": False, "number": value if known else 0}


OLD_JOB: dict[str, object] = {
    "job_id": 7,
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "het_job_id": 0,
    "het_job_offset": 0,
    "name": "train",
    "comment": None,
    "user_name": "ada",
    "user_id": 1000,
    "partition": "gpu",
    "job_state": "RUNNING",
    "state_reason": "None",
    "nodes": "n[1-2]",
    "node_count": 2,
    "restart_cnt": 1,
    "requeue": True,
    "submit_time": 1795995757,
    "eligible_time": 1795995757,
    "start_time": 1795995758,
    "end_time": 1795996058,
    "preempt_time": 0,
    "time_limit": 5,
    "exit_code": 0,
}
NEW_JOB: dict[str, object] = OLD_JOB | {
    "array_job_id": number(0),
    "array_task_id": number(None),
    "het_job_id": number(0),
    "het_job_offset": number(0),
    "comment": "",
    "job_state": ["RUNNING"],
    "node_count": number(2),
    "submit_time": number(1795995757),
    "eligible_time": number(1795995757),
    "start_time": number(1795995758),
    "end_time": number(1795996058),
    "preempt_time": number(0),
    "time_limit": number(5),
    "exit_code": {"return_code": number(0), "signal": {"id": number(None), "name": ""}},
}


def read_job(row: dict[str, object], **changes: object) -> JobInfo:
    text = json.dumps({"jobs": [row | changes]})
    (job,) = json_forms.read_jobs(text, command="squeue --json")
    return job


class TestJson:
    def test_plain_and_wrapped_numbers_are_the_same_job(self) -> None:
        old, new = read_job(OLD_JOB), read_job(NEW_JOB)
        assert old == new
        assert (old.job_id, old.restarts, old.time_limit_s) == ("7", 1, 300)

    @pytest.mark.parametrize(
        "limit", [None, 4294967295, number(None), {"set": True, "infinite": True, "number": 0}]
    )
    def test_no_limit_in_every_shape(self, limit: object) -> None:
        assert read_job(OLD_JOB, time_limit=limit).time_limit_s is None

    @pytest.mark.parametrize(
        ("words", "state", "below"),
        [
            ("COMPLETING", JobState.COMPLETING, None),
            (["CANCELLED", "COMPLETING"], JobState.COMPLETING, JobState.CANCELLED),
            (["PENDING", "COMPLETING"], JobState.COMPLETING, JobState.PENDING),
            (["RUNNING", "CONFIGURING"], JobState.CONFIGURING, None),
            (["PENDING", "REQUEUE_HOLD"], JobState.REQUEUE_HOLD, None),
            (["PENDING", "SPECIAL_EXIT"], JobState.SPECIAL_EXIT, None),
            (["RUNNING", "BRAND_NEW_FLAG"], JobState.RUNNING, None),
            ("TELEPORTED", JobState.UNKNOWN, None),
            ([], JobState.UNKNOWN, None),
        ],
    )
    def test_states(self, words: object, state: JobState, below: JobState | None) -> None:
        job = read_job(OLD_JOB, job_state=words)
        assert (job.state, job.underlying) == (state, below)

    @pytest.mark.parametrize(
        ("code", "ended"),
        [
            (768, (3, 0)),
            (9, (0, 9)),
            ({"return_code": number(3), "signal": {"id": number(None)}}, (3, 0)),
            ({"return_code": number(None), "signal": {"id": number(15)}}, (0, 15)),
            ({"return_code": number(0), "signal": {"signal_id": 9}}, (0, 9)),
        ],
    )
    def test_exit_codes(self, code: object, ended: tuple[int, int]) -> None:
        job = read_job(OLD_JOB, exit_code=code)
        assert (job.exit_code, job.exit_signal) == ended

    def test_array_and_het_ids(self) -> None:
        task = read_job(OLD_JOB, job_id=9, array_job_id=7, array_task_id=0)
        assert (task.job_id, task.number, task.submission_id) == ("7_0", 9, "7")
        rest = read_job(NEW_JOB, array_job_id=number(7), array_task_string="1-3%1")
        assert rest.job_id == "7_[1-3%1]"
        part = read_job(NEW_JOB, job_id=8, het_job_id=number(7), het_job_offset=number(1))
        assert (part.job_id, part.submission_id) == ("7+1", "7")

    def test_nodes_of_both_shapes(self) -> None:
        row: dict[str, object] = {
            "name": "n1",
            "state": "idle",
            "state_flags": ["DRAIN"],
            "reason": "disk",
            "partitions": ["low"],
            "features": "a,b",
            "cpus": 4,
            "alloc_cpus": 0,
            "real_memory": 4000,
            "gres": "gpu:k80:2(S:0)",
        }
        new = {**row, "state": ["IDLE", "DRAIN"], "features": ["a", "b"]}
        del new["state_flags"]
        text = json.dumps({"nodes": [row, new]})
        old_node, new_node = json_forms.read_nodes(text, command="sinfo --json")
        assert old_node == new_node
        assert not old_node.usable
        assert not old_node.lost

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("JOBID PARTITION", "no JSON but 'JOBID PARTITION'"),
            ("", "no JSON"),
            ("[]", "without a list 'jobs'"),
            ('{"jobs": {}}', "without a list 'jobs'"),
            ('{"jobs": [7]}', "without a list 'jobs'"),
            (json.dumps({"jobs": [OLD_JOB | {"start_time": "soon"}]}), r'"soon" at jobs\[0\]'),
            (json.dumps({"jobs": [OLD_JOB | {"requeue": None}]}), r"jobs\[0\]\.requeue"),
            (json.dumps({"jobs": [OLD_JOB | {"name": 5}]}), r"jobs\[0\]\.name, expected a str"),
            (json.dumps({"jobs": [OLD_JOB | {"job_id": 0}]}), "expected a job id"),
            (json.dumps({"jobs": [OLD_JOB | {"job_state": [1]}]}), "expected words"),
            (json.dumps({"jobs": [OLD_JOB | {"node_count": 4294967295}]}), "finite number"),
        ],
    )
    def test_what_does_not_fit_is_named(self, text: str, told: str) -> None:
        with pytest.raises(SlurmUnparsableError, match=told) as caught:
            json_forms.read_jobs(text, command="squeue --json")
        assert caught.value.message.startswith("squeue --json wrote")


JOB_BLOCK = """\
JobId=6 ArrayJobId=2 ArrayTaskId=0 ArrayTaskThrottle=1 JobName=a b=c JobState=FAILED
   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
   Priority=1001 Nice=0 Account=root QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15
   RunTime=00:00:02 TimeLimit=1-00:05:00 TimeMin=N/A
   SubmitTime=1796002357 EligibleTime=1796002357
   AccrueTime=Unknown
   StartTime=1796002358 EndTime=1796002657 Deadline=N/A
   PreemptEligibleTime=1796002357 PreemptTime=1796002400
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=1796002357 Scheduler=Backfill
   Partition=preempt AllocNode:Sid=localhost:3691
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=k[1-2]
   BatchHost=k1
   NumNodes=2K NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Command=/home/ada/j.sh JobState=BOGUS
   WorkDir=/home/ada
   Comment=it is=so  UserId=3 "q"
   StdErr=/dev/null
   Power=
"""


class TestText:
    def test_a_job_block_with_a_name_and_comment_that_look_like_pairs(self) -> None:
        job = text_forms.read_job_block(JOB_BLOCK)
        assert (job.job_id, job.number, job.array_job_id) == ("2_0", 6, 2)
        assert job.name == "a b=c JobState=FAILED"
        assert job.comment == 'it is=so  UserId=3 "q"'
        assert (job.user, job.user_id) == ("ada", 1000)
        assert (job.state, job.restarts, job.requeue) == (JobState.RUNNING, 2, True)
        assert (job.exit_code, job.exit_signal) == (0, 15)
        assert job.time_limit_s == 86_700
        assert job.node_count == 2048
        assert job.preempt_time_s == 1796002400

    def test_a_comment_of_several_lines_overwrites_nothing(self) -> None:
        block = JOB_BLOCK.replace('UserId=3 "q"', "\nJobState=FAILED Requeue=0\n   Restarts=9")
        job = text_forms.read_job_block(block)
        assert (job.state, job.requeue, job.restarts) == (JobState.RUNNING, True, 2)

    def test_a_waiting_het_job_block(self) -> None:
        block = JOB_BLOCK.replace(
            "ArrayJobId=2 ArrayTaskId=0 ArrayTaskThrottle=1", "HetJobId=6 HetJobOffset=1"
        )
        for old, new in (
            ("StartTime=1796002358", "StartTime=Unknown"),
            ("EndTime=1796002657", "EndTime=Unknown"),
            ("PreemptEligibleTime=1796002357 PreemptTime=1796002400", "SuspendTime=None"),
            ("NodeList=k[1-2]", "NodeList="),
            ("NumNodes=2K", "NumNodes=2-4"),
            ("TimeLimit=1-00:05:00", "TimeLimit=UNLIMITED"),
        ):
            block = block.replace(old, new)
        job = text_forms.read_job_block(block)
        assert (job.job_id, job.nodes, job.node_count) == ("6+1", "", 2)
        assert job.start_time_s is job.end_time_s is job.preempt_time_s is None
        assert job.time_limit_s is None

    @pytest.mark.parametrize(
        ("printed", "word"),
        [
            ("ReqNodeNotAvail,_UnavailableNodes:k4", "ReqNodeNotAvail"),
            ("RaisedSignal:9(Killed)", "RaisedSignal"),
            ("TimeLimit", "TimeLimit"),
        ],
    )
    def test_the_reason_is_one_word(self, printed: str, word: str) -> None:
        block = JOB_BLOCK.replace("Reason=None", f"Reason={printed}")
        assert text_forms.read_job_block(block).reason == word

    def test_a_block_without_what_is_needed_is_named(self) -> None:
        with pytest.raises(
            SlurmUnparsableError, match=r"scontrol show job .* 6: no 'Restarts'"
        ):
            text_forms.read_job_block(JOB_BLOCK.replace("Restarts", "Restarted"))
        with pytest.raises(SlurmUnparsableError, match="'later' is not a time"):
            text_forms.read_job_block(JOB_BLOCK.replace("1-00:05:00", "later"))

    def test_squeue_rows_whose_cells_hold_anything(self) -> None:
        values = {
            "JobID": "12",
            "JobArrayID": "12",
            "UserName": "ada",
            "UserID": "1000",
            "Partition": "p",
            "State": "PENDING",
            "Reason": "BeginTime",
            "NodeList": "",
            "NumNodes": "1-1",
            "RestartCnt": "1",
            "Requeue": "1",
            "SubmitTime": "1796002357",
            "EligibleTime": "1796002367",
            "StartTime": "N/A",
            "EndTime": "N/A",
            "PreemptTime": "N/A",
            "TimeLimit": "5:00",
            "exit_code": "768",
            "Name": "x\ny",
            "Comment": "a|b,\n13",
        }
        assert tuple(values) == text_forms.SQUEUE_FIELDS
        row = "~".join(values.values()) + "~\n"
        first, second = text_forms.read_squeue(row + row.replace("768", "3:0"), separator="~")
        assert first == second
        assert (first.name, first.comment) == ("x\ny", "a|b,\n13")
        assert (first.exit_code, first.time_limit_s, first.start_time_s) == (3, 300, None)
        assert text_forms.read_squeue("", separator="~") == ()
        with pytest.raises(SlurmUnparsableError, match="squeue"):
            text_forms.read_squeue("12~13~\n", separator="~")
        with pytest.raises(SlurmUnparsableError, match="squeue"):
            text_forms.read_squeue(
                row.replace("~12~", "~?~").replace("12~", "?~"), separator="~"
            )

    def test_partitions(self) -> None:
        line = (
            "PartitionName=gpu AllowGroups=ALL Default=YES QoS=N/A DefaultTime=NONE "
            "GraceTime=10 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 "
            "Nodes=k[1-4],v[1-4] PriorityTier=3 PreemptMode=GANG,SUSPEND State=DOWN "
            "TotalCPUs=32 TotalNodes=8\n"
        )
        limited = line.replace("MaxNodes=UNLIMITED", "MaxNodes=4").replace("NONE", "00:10:00")
        first, second = text_forms.read_partitions(line + "\n" + limited)
        assert (first.default, first.up, first.grace_s, first.priority_tier) == (1, 0, 10, 3)
        assert (first.max_nodes, first.max_time_s, first.default_time_s) == (None, None, None)
        assert first.preempt_mode == "GANG,SUSPEND"
        assert (second.max_nodes, second.default_time_s) == (4, 600)

    def test_nodes(self) -> None:
        block = (
            "NodeName=k1 Arch=x86_64 CoresPerSocket=1\n"
            "   CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=0.27\n"
            "   AvailableFeatures=(null)\n"
            "   Gres=gpu:k80:2(S:0-1),shard:8\n"
            "   OS=Linux 6.1 State=ODD\n"
            "   RealMemory=16000 AllocMem=0 FreeMem=N/A Sockets=4 Boards=1\n"
            "   State=DOWN*+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=10\n"
            "   Partitions=low,high \n"
            "   Reason=disk = full, State=IDLE [root@1796003431]\n"
        )
        (node,) = text_forms.read_node_blocks(block)
        assert node.states == {"DOWN", "DRAIN"}
        assert node.lost
        assert node.reason == "disk = full, State=IDLE"
        assert (node.partitions, node.features) == (("low", "high"), ())
        assert (node.cpus, node.cpus_allocated, node.memory_mib) == (4, 1, 16000)
        assert node.gres[1] == Gres(name="shard", kind="", count=8)

    def test_history_rows(self) -> None:
        values = {
            "JobID": "2_0",
            "JobIDRaw": "6",
            "User": "ada",
            "Partition": "p",
            "State": "CANCELLED by 1000",
            "Reason": "None",
            "NodeList": "None assigned",
            "NNodes": "2",
            "Submit": "1796002357",
            "Start": "1796002357",
            "End": "Unknown",
            "Elapsed": "1-00:00:01",
            "Timelimit": "Partition_Limit",
            "ExitCode": "0:15",
            "JobName": "x",
            "Comment": "",
        }
        assert tuple(values) == text_forms.SACCT_FIELDS
        (row,) = text_forms.read_sacct("~".join(values.values()) + "~\n", separator="~")
        assert (row.job_id, row.number, row.state) == ("2_0", 6, JobState.CANCELLED)
        assert (row.state_text, row.nodes, row.exit_signal) == ("CANCELLED by 1000", "", 15)
        assert (row.elapsed_s, row.time_limit_s, row.end_time_s) == (86_401, None, None)

    def test_versions(self) -> None:
        assert text_forms.read_version("slurm-wlm 22.05.8\n") == SlurmVersion(
            year=22, month=5, patch=8
        )
        assert str(text_forms.read_version("slurm 24.11.0-0rc1")) == "24.11.0"
        with pytest.raises(SlurmUnparsableError):
            text_forms.read_version("PBS Professional")

    @pytest.mark.parametrize(
        ("stdout", "job_id", "cluster"),
        [
            ("12\n", "12", None),
            ("12;north\n", "12", "north"),
            ("auks: renewed 99\n  12;north \n", "12", "north"),
        ],
    )
    def test_parsable_answers(self, stdout: str, job_id: str, cluster: str | None) -> None:
        submitted = text_forms.read_submitted(stdout, "a word of the site\n")
        assert submitted is not None
        assert (submitted.job_id, submitted.cluster) == (job_id, cluster)
        assert submitted.messages == "a word of the site\n"

    @pytest.mark.parametrize(
        "stdout", ["", "\n", "Submitted batch job 12\n", "12 13\n", "12;\n"]
    )
    def test_answers_without_an_id(self, stdout: str) -> None:
        assert text_forms.read_submitted(stdout, "") is None

    @pytest.mark.parametrize("word", ["", " a"])
    def test_start_estimates(self, word: str) -> None:
        estimate = text_forms.read_start_estimate(
            "sbatch: a word of the site\n"
            f"sbatch: Job 47 to start at 1796002359{word} using 3 processors on nodes k[1-3] "
            "in partition preempt\n"
            "sbatch:   Preempts: 44,45\n"
        )
        assert (estimate.start_time_s, estimate.cpus) == (1796002359, 3)
        assert (estimate.nodes, estimate.partition) == ("k[1-3]", "preempt")
        assert estimate.preempts == ("44", "45")
        with pytest.raises(SlurmUnparsableError, match="sbatch --test-only"):
            text_forms.read_start_estimate("sbatch: Job 47 may start")


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
        ("gpu:2", (("gpu", "", 2),)),
        ("gpu", (("gpu", "", 1),)),
        ("gpu:k80:2(S:0-1),gpu:v100:4", (("gpu", "k80", 2), ("gpu", "v100", 4))),
        ("gres:gpu:k80:1", (("gpu", "k80", 1),)),
        ("gres/gpu:k80:1", (("gpu", "k80", 1),)),
        ("gpu:a100_1g.5gb:7", (("gpu", "a100_1g.5gb", 7),)),
        ("bandwidth:lustre:4K", (("bandwidth", "lustre", 4096),)),
        ("bandwidth:lustre:no_consume:4k", (("bandwidth", "lustre", 4096),)),
        ("gpu:(null):2(IDX:0-1)", (("gpu", "", 2),)),
        ("gpu(IDX:0,2-3),shard:0(0/8)", (("gpu", "", 3), ("shard", "", 0))),
        ("cpu=8,mem=4G,gres/gpu=2,gres/gpu:k80=2", (("gpu", "k80", 2),)),
        (
            "gres/gpu=3,gres/gpu:k80=2,gres/nvme=1",
            (
                ("gpu", "k80", 2),
                ("gpu", "", 1),
                ("nvme", "", 1),
            ),
        ),
    ],
)
def test_gres(text: str, gres: tuple[tuple[str, str, int], ...]) -> None:
    assert tuple((g.name, g.kind, g.count) for g in read_gres(text)) == gres
