"""Accounting for a private cluster: MariaDB behind a socket of its own, and slurmdbd.

Nobody needs a password: the database knows its owner by the user id at the other end of the
socket, and the socket lies in the cluster's folder, which only the owner can enter.
"""

from __future__ import annotations

from sbtrain.cluster.config import LOOPBACK, munge_socket
from sbtrain.cluster.errors import ClusterStartError
from sbtrain.cluster.folder import ClusterFolder, ClusterRecord
from sbtrain.cluster.programs import Programs
from sbtrain_jobs.errors import CommandError
from sbtrain_jobs.process import run_command

_INSTALL_S = 120.0
_DATABASE = "slurm_acct_db"


def database_socket(record: ClusterRecord) -> str:
    return f"{record.root}/run/mysql.sock"


def database_is_installed(folder: ClusterFolder) -> bool:
    return (folder.path / "mysql" / "installed").exists()


def install_database(folder: ClusterFolder, record: ClusterRecord, programs: Programs) -> None:
    """Lay out MariaDB's files; takes seconds, once a folder.

    Raises:
        ClusterStartError: the installer failed.
    """
    try:
        run_command(
            [
                programs.paths["mariadb-install-db"],
                "--no-defaults",
                f"--datadir={record.root}/mysql",
                f"--user={record.user}",
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={record.user}",
                "--skip-test-db",
            ],
            timeout_s=_INSTALL_S,
            env={"PATH": programs.search_path},
        )
    except CommandError as error:
        raise ClusterStartError(
            f"cannot set up the accounting database: {error.message}",
            hint="try without --accounting, or see whether the disk is full",
        ) from error
    (folder.path / "mysql" / "installed").touch()


def database_sql() -> str:
    """What MariaDB does when it starts. slurmdbd would make its database itself, but that of
    24.11 ends right after it did."""
    return f"CREATE DATABASE IF NOT EXISTS {_DATABASE};\n"


def mariadbd_argv(record: ClusterRecord, programs: Programs) -> list[str]:
    return [
        programs.paths["mariadbd"],
        "--no-defaults",
        f"--user={record.user}",
        f"--datadir={record.root}/mysql",
        f"--socket={database_socket(record)}",
        f"--init-file={record.root}/etc/database.sql",
        f"--pid-file={record.root}/run/mariadbd.pid",
        "--skip-networking",
        "--skip-name-resolve",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=32M",
        "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0",
    ]


def slurmdbd_argv(programs: Programs) -> list[str]:
    return [programs.paths["slurmdbd"], "-D"]


def slurmdbd_conf(record: ClusterRecord) -> str:
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={munge_socket(record.root)}",
        "DbdHost=localhost",
        f"DbdPort={record.ports.slurmdbd}",
        *(["CommunicationParameters=NoInAddrAny"] if record.host_address == LOOPBACK else []),
        f"SlurmUser={record.user}",
        f"PidFile={record.root}/run/slurmdbd.pid",
        f"LogFile={record.root}/log/slurmdbd.log",
        "DebugLevel=info",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        f"StorageUser={record.user}",
        f"StorageLoc={_DATABASE}",
    ]
    return "\n".join(lines) + "\n"
