"""Reads the text that Slurm's commands print: the forms that are the same in Slurm 22.05,
24.11 and 26.05 when SLURM_TIME_FORMAT=%s makes every time a number.

Rows of squeue and sacct are printed with a separator of the caller's choice, because names
and comments may hold any character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Never, TypeVar

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm.client import (
    HistoryRow,
    JobInfo,
    NodeInfo,
    PartitionAccess,
    PartitionInfo,
    SlurmVersion,
    StartEstimate,
    Submitted,
)
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.states import read_state
from sbtrain.slurm.times import read_elapsed

T = TypeVar("T")

SQUEUE_FIELDS = (
    *("JobID", "JobArrayID", "UserName", "UserID", "Partition", "State", "Reason"),
    *("NodeList", "NumNodes", "RestartCnt", "Requeue", "SubmitTime", "EligibleTime"),
    *("StartTime", "EndTime", "PreemptTime", "TimeLimit", "exit_code", "Name", "Comment"),
)
SACCT_FIELDS = (
    *("JobID", "JobIDRaw", "User", "Partition", "State", "Reason", "NodeList", "NNodes"),
    *("Submit", "Start", "End", "Elapsed", "Timelimit", "ExitCode", "JobName", "Comment"),
)

_NOTHING = {"", "(null)", "N/A", "None", "Unknown", "None assigned", "NONE"}
_FREE_TEXT = {"Comment", "Command", "WorkDir", "StdErr", "StdIn", "StdOut", "Reason", "OS"}
_TASK = re.compile(r"(\d+)_(?:\[([^\]]*)\]|(\d+))")
_START = re.compile(
    r"Job (?P<job>\d+) to start at (?P<time>\d+)\b.*? using (?P<cpus>\d+) processors"
    r" on nodes (?P<nodes>\S+) in partition (?P<partition>\S+)"
)


def read_version(text: str) -> SlurmVersion:
    """The answer of any command to --version, such as ``slurm-wlm 22.05.8``."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        _refuse("--version", text, "a version")
    return SlurmVersion(year=int(found[1]), month=int(found[2]), patch=int(found[3] or 0))


def read_submitted(stdout: str, stderr: str) -> Submitted | None:
    """The id that sbatch --parsable printed: the last line, ``id`` or ``id;cluster``. None
    where there is none; what a site's wrapper wrote before it does not matter."""
    lines = stdout.strip().splitlines()
    found = re.fullmatch(r"(\d+)(?:;(\S+))?", lines[-1].strip()) if lines else None
    if found is None:
        return None
    return Submitted(job_id=found[1], cluster=found[2], messages=stderr)


def read_start_estimate(stderr: str) -> StartEstimate:
    """What sbatch --test-only wrote to stderr; 26.05 puts a word behind the time."""
    found = _START.search(stderr)
    if found is None:
        _refuse("sbatch --test-only", stderr, "'Job N to start at ...'")
    preempts = re.search(r"Preempts: (\S+)", stderr)
    return StartEstimate(
        start_time_s=float(found["time"]),
        partition=found["partition"],
        nodes=found["nodes"],
        cpus=int(found["cpus"]),
        preempts=tuple(preempts[1].split(",")) if preempts else (),
    )


def read_squeue(text: str, *, separator: str) -> tuple[JobInfo, ...]:
    """Rows of ``squeue -O`` with SQUEUE_FIELDS, each followed by the separator."""
    rows = _table(text, SQUEUE_FIELDS, separator)
    return tuple(_guard("squeue", _squeue_job, row) for row in rows)


def read_sacct(text: str, *, separator: str) -> tuple[HistoryRow, ...]:
    """Rows of ``sacct --parsable`` with SACCT_FIELDS."""
    rows = _table(text, SACCT_FIELDS, separator)
    return tuple(_guard("sacct", _history_row, row) for row in rows)


def read_job_block(text: str) -> JobInfo:
    """The first job of ``scontrol show job`` (several lines, not -o)."""
    return _guard("scontrol show job", _block_job, _pairs(text.strip().split("\n\n")[0]))


def read_node_blocks(text: str) -> tuple[NodeInfo, ...]:
    """Nodes of ``scontrol show nodes`` (several lines each)."""
    blocks = [block for block in text.split("\n\n") if "NodeName=" in block]
    return nodes_of(map(_pairs, blocks))


def nodes_of(rows: Iterable[Mapping[str, str]]) -> tuple[NodeInfo, ...]:
    """Nodes by the keys and words of ``scontrol show nodes``."""
    return tuple(_guard("scontrol show nodes", _block_node, row) for row in rows)


def read_partitions(text: str) -> tuple[PartitionInfo, ...]:
    """Partitions of ``scontrol -o show partition``, one a line."""
    lines = [line for line in text.splitlines() if line.startswith("PartitionName=")]
    return partitions_of(map(_pairs, lines))


def partitions_of(rows: Iterable[Mapping[str, str]]) -> tuple[PartitionInfo, ...]:
    """Partitions by the keys and words of ``scontrol show partition``."""
    return tuple(_guard("scontrol show partition", _partition, row) for row in rows)


def _table(text: str, fields: tuple[str, ...], separator: str) -> list[dict[str, str]]:
    """Cells by field. A cell may hold line breaks, so rows are counted off by cells; each
    cell, the last of a row too, is followed by the separator."""
    cells = text.split(separator)
    if cells.pop().strip() or len(cells) % len(fields):
        _refuse("squeue or sacct", text, f"rows of {len(fields)} cells")
    rows = zip(*[iter(cells)] * len(fields), strict=True)
    return [dict(zip(fields, (row[0].lstrip("\n"), *row[1:]), strict=True)) for row in rows]


def _squeue_job(row: Mapping[str, str]) -> JobInfo:
    written, number = row["JobArrayID"], int(row["JobID"])
    task = _TASK.fullmatch(written)
    het = re.fullmatch(r"(\d+)\+(\d+)", written)
    exit_code, exit_signal = _exit(row["exit_code"])
    return JobInfo(
        job_id=written,
        number=number,
        array_job_id=int(task[1]) if task else None,
        array_tasks=(task[2] or task[3]) if task else "",
        het_job_id=int(het[1]) if het else None,
        het_offset=int(het[2]) if het else None,
        name=row["Name"],
        comment="" if row["Comment"] == "(null)" else row["Comment"],
        user=row["UserName"],
        user_id=int(row["UserID"]),
        partition=row["Partition"],
        state=read_state(row["State"]),
        state_text=row["State"],
        reason=_reason(row["Reason"]),
        nodes=_known(row["NodeList"]),
        node_count=_node_count(row["NumNodes"]),
        restarts=int(row["RestartCnt"]),
        requeue=row["Requeue"] == "1",
        submit_time_s=_moment(row["SubmitTime"]),
        eligible_time_s=_moment(row["EligibleTime"]),
        start_time_s=_moment(row["StartTime"]),
        end_time_s=_moment(row["EndTime"]),
        preempt_time_s=_moment(row["PreemptTime"]),
        time_limit_s=read_elapsed(row["TimeLimit"]),
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


def _block_job(pairs: Mapping[str, str]) -> JobInfo:
    number = int(pairs["JobId"])
    array_id, task = pairs.get("ArrayJobId"), pairs.get("ArrayTaskId", "")
    het_id, offset = pairs.get("HetJobId"), pairs.get("HetJobOffset", "")
    user = re.fullmatch(r"(.*)\((\d+)\)", pairs["UserId"])
    written = str(number)
    if array_id:
        written = f"{array_id}_{task}" if task.isdecimal() else f"{array_id}_[{task}]"
    elif het_id:
        written = f"{het_id}+{offset}"
    exit_code, exit_signal = _exit(pairs["ExitCode"])
    return JobInfo(
        job_id=written,
        number=number,
        array_job_id=int(array_id) if array_id else None,
        array_tasks=task,
        het_job_id=int(het_id) if het_id else None,
        het_offset=int(offset) if het_id else None,
        name=pairs["JobName"],
        comment=pairs.get("Comment", "").removesuffix(" "),
        user=user[1] if user else "",
        user_id=int(user[2]) if user else -1,
        partition=pairs["Partition"],
        state=read_state(pairs["JobState"]),
        state_text=pairs["JobState"],
        reason=_reason(pairs["Reason"]),
        nodes=_known(pairs.get("NodeList", "")),
        node_count=_node_count(pairs["NumNodes"]),
        restarts=int(pairs["Restarts"]),
        requeue=pairs["Requeue"] == "1",
        submit_time_s=_moment(pairs["SubmitTime"]),
        eligible_time_s=_moment(pairs["EligibleTime"]),
        start_time_s=_moment(pairs["StartTime"]),
        end_time_s=_moment(pairs["EndTime"]),
        preempt_time_s=_moment(pairs.get("PreemptTime", "")),
        time_limit_s=read_elapsed(pairs["TimeLimit"]),
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


def _history_row(row: Mapping[str, str]) -> HistoryRow:
    exit_code, exit_signal = _exit(row["ExitCode"])
    return HistoryRow(
        job_id=row["JobID"],
        number=int(row["JobIDRaw"]),
        name=row["JobName"],
        comment=row["Comment"],
        user=row["User"],
        partition=row["Partition"],
        state=read_state(row["State"]),
        state_text=row["State"],
        reason=_reason(row["Reason"]),
        nodes=_known(row["NodeList"]),
        node_count=_node_count(row["NNodes"]),
        submit_time_s=_moment(row["Submit"]),
        start_time_s=_moment(row["Start"]),
        end_time_s=_moment(row["End"]),
        elapsed_s=read_elapsed(row["Elapsed"]) or 0,
        time_limit_s=read_elapsed(row["Timelimit"]),
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


def _block_node(pairs: Mapping[str, str]) -> NodeInfo:
    reason = re.sub(r" \[[^\[\]]*@[^\[\]]*\]$", "", pairs.get("Reason", ""))
    return NodeInfo(
        name=pairs["NodeName"],
        states=frozenset(pairs["State"].upper().replace("*", "").split("+")),
        reason=reason,
        partitions=_list(pairs.get("Partitions", "")),
        features=_list(pairs["AvailableFeatures"]),
        cpus=int(pairs["CPUTot"]),
        cpus_allocated=int(pairs["CPUAlloc"]),
        memory_mib=int(pairs["RealMemory"]),
        gres=read_gres(pairs.get("Gres", "")),
        cores=int(pairs.get("Sockets", "0")) * int(pairs.get("CoresPerSocket", "0")),
        tmp_disk_mib=int(pairs.get("TmpDisk", "0")),
    )


def _partition(pairs: Mapping[str, str]) -> PartitionInfo:
    max_nodes = pairs["MaxNodes"]
    return PartitionInfo(
        name=pairs["PartitionName"],
        nodes=_known(pairs["Nodes"]),
        node_count=int(pairs["TotalNodes"]),
        cpu_count=int(pairs["TotalCPUs"]),
        default=pairs["Default"] == "YES",
        up=pairs["State"] == "UP",
        priority_tier=int(pairs["PriorityTier"]),
        preempt_mode=pairs["PreemptMode"].upper(),
        grace_s=int(pairs["GraceTime"]),
        max_time_s=read_elapsed(pairs["MaxTime"]),
        default_time_s=read_elapsed(pairs["DefaultTime"]),
        max_nodes=None if max_nodes == "UNLIMITED" else int(max_nodes),
        min_nodes=int(pairs.get("MinNodes", "0")),
        qos=_known(pairs.get("QoS", "")),
        max_cpus_per_node=_some_number(pairs.get("MaxCPUsPerNode", "")),
        max_memory_mib=_some_number(pairs.get("MaxMemPerNode", "")),
        default_memory=any(
            _some_number(pairs.get(f"DefMemPer{what}", "")) for what in ("Node", "CPU")
        ),
        access=PartitionAccess(
            groups=_some(pairs, "AllowGroups"),
            accounts=_some(pairs, "AllowAccounts"),
            denied_accounts=_some(pairs, "DenyAccounts"),
            qos=_some(pairs, "AllowQos"),
            denied_qos=_some(pairs, "DenyQos"),
            root_only=pairs.get("RootOnly") == "YES",
            reservation_only=pairs.get("ReqResv") == "YES",
        ),
    )


def _some_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _some(pairs: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(word for word in _list(pairs.get(key, "")) if word != "ALL")


def _pairs(block: str) -> dict[str, str]:
    """Key=Value pairs of scontrol. Of two equal keys the first counts, and free text takes
    the rest of its line: a job's name or comment may itself look like a pair."""
    pairs: dict[str, str] = {}
    for line in block.splitlines():
        rest = line.strip()
        while rest:
            key, found, value = rest.partition("=")
            if not found or not re.fullmatch(r"[\w:/.]+", key):
                break
            rest = ""
            if key != "JobName" and not (key in _FREE_TEXT and line.strip().startswith(key)):
                value, _, rest = value.partition(" ")
                rest = rest.lstrip()
            pairs.setdefault(key, value)
    return pairs


def _guard(command: str, read: Callable[[Mapping[str, str]], T], pairs: Mapping[str, str]) -> T:
    """Turn a missing key or a number that is none into an error with the command."""
    try:
        return read(pairs)
    except (KeyError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        subject = next(iter(pairs.values()), "nothing")
        raise SlurmUnparsableError(
            f"cannot read what {command} printed about {subject}: {what}"
        ) from None


def _refuse(command: str, text: str, expected: str) -> Never:
    shown = " ".join(text.split())[:80]
    raise SlurmUnparsableError(f"{command} printed {shown!r}, expected {expected}", stdout=text)


def _known(text: str) -> str:
    return "" if text in _NOTHING else text


def _reason(text: str) -> str:
    """Slurm's word alone, written as by scontrol: not ``ReqNodeNotAvail, UnavailableNodes:c4``,
    nor with the blanks of ``Nodes required for job are DOWN, DRAINED or ...``."""
    return re.split(r"[,:(]", text.strip().replace(" ", "_"), maxsplit=1)[0]


def _moment(text: str) -> float | None:
    return float(text) if _known(text) and float(text) > 0 else None


def _node_count(text: str) -> int:
    """``4``, a range such as ``2-4`` for a job that waits, ``2K`` for exactly 2048."""
    low = text.partition("-")[0]
    return int(low[:-1]) * 1024 if low.endswith("K") else int(low)


def _list(text: str) -> tuple[str, ...]:
    return tuple(word for word in _known(text.strip()).split(",") if word)


def _exit(text: str) -> tuple[int, int]:
    """``code:signal``, or the raw wait status of squeue before 23.02."""
    code, found, signal = text.partition(":")
    return (int(code), int(signal)) if found else (int(code) >> 8 & 0xFF, int(code) & 0x7F)
