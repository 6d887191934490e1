"""What Slurm's commands print becomes values; what does not fit is refused with the command."""

from __future__ import annotations

import pytest

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm import text_forms
from sbtrain.slurm.client import Gres, SlurmVersion
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.states import JobState

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

SQUEUE_ROW = {
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
            ("Nodes required for job are DOWN, DRAINED", "Nodes_required_for_job_are_DOWN"),
            ("TimeLimit", "TimeLimit"),
        ],
    )
    def test_the_reason_is_one_word(self, printed: str, word: str) -> None:
        """scontrol has no blanks in it, squeue has."""
        row = "~".join((SQUEUE_ROW | {"Reason": printed}).values()) + "~\n"
        (job,) = text_forms.read_squeue(row, separator="~")
        block = JOB_BLOCK.replace("Reason=None", f"Reason={printed.replace(' ', '_')}")
        assert job.reason == text_forms.read_job_block(block).reason == word

    @pytest.mark.parametrize(
        ("printed", "state"),
        [
            ("COMPLETING", JobState.COMPLETING),
            ("CANCELLED+COMPLETING", JobState.COMPLETING),
            ("RUNNING+CONFIGURING", JobState.CONFIGURING),
            ("RUNNING+BRAND_NEW_FLAG", JobState.RUNNING),
            ("TELEPORTED", JobState.UNKNOWN),
            ("", JobState.UNKNOWN),
        ],
    )
    def test_states(self, printed: str, state: JobState) -> None:
        block = JOB_BLOCK.replace("JobState=RUNNING", f"JobState={printed}")
        job = text_forms.read_job_block(block)
        assert (job.state, job.state_text) == (state, printed)

    def test_a_block_without_what_is_needed_is_named(self) -> None:
        with pytest.raises(
            SlurmUnparsableError, match=r"scontrol show job .* 6: no 'Restarts'"
        ):
            text_forms.read_job_block(JOB_BLOCK.replace("Restarts", "Restarted"))
        with pytest.raises(SlurmUnparsableError, match="'later' is not a time"):
            text_forms.read_job_block(JOB_BLOCK.replace("1-00:05:00", "later"))

    def test_squeue_rows_whose_cells_hold_anything(self) -> None:
        assert tuple(SQUEUE_ROW) == text_forms.SQUEUE_FIELDS
        row = "~".join(SQUEUE_ROW.values()) + "~\n"
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
