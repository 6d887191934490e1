"""The text of slurm.conf, gres.conf and cgroup.conf: pure functions of the cluster's record,
in which Slurm's version is, for Slurm 22.05 and later."""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain.cluster.folder import ClusterRecord
from sbtrain.cluster.processes import CLUSTER_NAME
from sbtrain.cluster.programs import release_of

LOOPBACK = "127.0.0.1"
NODES_PER_KIND = 4
CPUS_PER_NODE = 4
MEMORY_MIB_PER_NODE = 16000
GRACE_S = 15
CREDENTIAL_S = 6

# slurmd of 23.11 and later sets up cgroups even where no plugin uses them, unless told not to;
# 22.05 does not know the word "disabled" and refuses to start with it.
_FIRST_WITH_CGROUP_SWITCH = (23, 11)


def node_names(nodes_per_kind: int) -> tuple[str, ...]:
    """c1.. without GPU, g1.. with two fake ones."""
    return tuple(f"{kind}{i}" for kind in "cg" for i in range(1, nodes_per_kind + 1))


def munge_socket(root: str) -> str:
    return f"{root}/run/munge.sock"


def communication(host_address: str) -> tuple[str, str]:
    """CommunicationParameters that keep as much as possible on the loopback address, and the
    address at which slurmctld is then found.

    Slurm's daemons and srun listen either on every address or, told so, on the one that
    gethostname() stands for; NodeAddr has no part in it. That one serves all of them only
    where it is 127.0.0.1: srun is called back at the address its own connections come from,
    which is 127.0.0.1 for any 127.x. slurmctld calls nobody back, so any 127.x will do.
    """
    if host_address == LOOPBACK:
        return "NoInAddrAny,NoCtldInAddrAny", LOOPBACK
    if host_address.startswith("127."):
        return "NoCtldInAddrAny", host_address
    return "", LOOPBACK


def configuration(cluster: ClusterRecord) -> dict[str, str]:
    """Every configuration file but local.conf, by its name."""
    return {
        "slurm.conf": slurm_conf(cluster),
        "gres.conf": gres_conf(cluster.nodes),
        "cgroup.conf": cgroup_conf(release_of(cluster.slurm_version)),
        "plugstack.conf": "",
    }


def slurm_conf(cluster: ClusterRecord) -> str:
    root = cluster.root
    parameters, controller = communication(cluster.host_address)
    lines = [
        f"ClusterName={CLUSTER_NAME}",
        f"SlurmctldHost={cluster.host}({controller})",
        f"SlurmctldPort={cluster.ports.slurmctld}",
        f"SlurmUser={cluster.user}",
        f"SlurmdUser={cluster.user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={munge_socket(root)},cred_expire={CREDENTIAL_S}",
        *([f"CommunicationParameters={parameters}"] if parameters else []),
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"TmpFS={root}/tmp/%n",  # noqa: S108 - below the folder
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd.%n.log",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "DebugFlags=NO_CONF_HASH",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=1,bf_interval=1,bf_yield_interval=50000,bf_max_job_test=500,"
        "sched_min_interval=100000,batch_sched_delay=0,requeue_delay=1,"
        "nohold_on_prolog_fail",
        "ReturnToService=2",
        "TreeWidth=65533",  # all asked directly: else one that crashed takes its branch along
        "SlurmdTimeout=10",
        "SlurmctldTimeout=10",
        "MessageTimeout=10",
        "BatchStartTimeout=10",
        "KillWait=5",
        "CompleteWait=0",
        "InactiveLimit=0",
        "MinJobAge=600",
        "JobRequeue=1",
        "RequeueExit=85",
        "RequeueExitHold=86",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "SlurmctldParameters=preempt_send_user_signal",
        "GresTypes=gpu",
        *_accounting_lines(cluster),
        *_node_lines(cluster),
        *_partition_lines(cluster.nodes),
        f"Include {root}/etc/local.conf",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(nodes: Sequence[str]) -> str:
    """Two GPUs a node; each needs a device file, and these two exist everywhere."""
    return "".join(
        f"NodeName={node} Name=gpu Type=k80 File={device}\n"
        for node in nodes
        if _has_gpus(node)
        for device in ("/dev/null", "/dev/zero")
    )


def cgroup_conf(release: tuple[int, int]) -> str:
    if release >= _FIRST_WITH_CGROUP_SWITCH:
        return "CgroupPlugin=disabled\n"
    return "CgroupPlugin=cgroup/v1\n"


def _has_gpus(node: str) -> bool:
    return node.startswith("g")


def _accounting_lines(cluster: ClusterRecord) -> list[str]:
    if not cluster.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={LOOPBACK}",
        f"AccountingStoragePort={cluster.ports.slurmdbd}",
        # AuthInfo does not reach the connection to slurmdbd; this does.
        f"AccountingStoragePass=socket={munge_socket(cluster.root)}",
        "AccountingStoreFlags=job_comment",
        "AccountingStorageTRES=gres/gpu,gres/gpu:k80",
    ]


def _node_lines(cluster: ClusterRecord) -> list[str]:
    return [
        f"NodeName={node} NodeHostname={cluster.host} NodeAddr={LOOPBACK} Port={port} "
        f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_MIB_PER_NODE}"
        + (" Gres=gpu:k80:2 Feature=k80 Weight=20" if _has_gpus(node) else " Weight=10")
        for node, port in cluster.ports.nodes.items()
    ]


def _partition_lines(nodes: Sequence[str]) -> list[str]:
    plain = ",".join(node for node in nodes if not _has_gpus(node))
    every = ",".join(nodes)
    limits = "MaxTime=7-0 DefaultTime=30 State=UP"
    return [
        f"PartitionName=standard Nodes={plain} Default=YES PriorityTier=1 "
        f"PreemptMode=OFF {limits}",
        f"PartitionName=spot Nodes={every} PriorityTier=1 PreemptMode=REQUEUE "
        f"GraceTime={GRACE_S} {limits}",
        f"PartitionName=urgent Nodes={every} PriorityTier=10 PreemptMode=OFF {limits}",
    ]
