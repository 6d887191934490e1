"""What a staging run did: the report that rank 0 writes and other programs read."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

from sbtrain_perf.values import dataclass
from sbtrain_staging.errors import StagingError
from sbtrain_staging.publish import publish_bytes

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """One source of a run.

    Attributes:
        content: the content id, 32 hex digits.
        size_bytes: sum of the lengths of all files.
        entries: files, folders and links.
    """

    source: str
    name: str
    content: str
    size_bytes: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What happened on one node.

    Attributes:
        bytes_received: data that came to this node's scratch in this run.
        linked_bytes: data that a neighbour on the same filesystem brought, and this node
            links to.
        source_bytes_read: data that this node read from the shared source.
        checked_bytes: data that was there already, and was hashed anew.
        seconds: from the start of the run until all sources were published here.
        peak_memory_bytes: the largest resident size of the rank.
        paths: of the published sources, in the order of the command line.
    """

    node: str
    bytes_received: int
    source_bytes_read: int
    seconds: float
    peak_memory_bytes: int
    paths: tuple[str, ...]
    linked_bytes: int = 0
    checked_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingReport:
    """What happened on all nodes.

    Attributes:
        dataset_bytes: size of all sources.
        source_bytes_read: counted where the shared source was read, over all nodes.
        seconds: until the last node had everything.
    """

    key: str
    mode: str
    dataset_bytes: int
    source_bytes_read: int
    seconds: float
    sources: tuple[StagedSource, ...]
    nodes: tuple[NodeReport, ...]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    def write(self, path: Path) -> None:
        try:
            publish_bytes(path, self.to_json().encode())
        except OSError as error:
            raise StagingError(
                f"cannot write the report {path}: {error.strerror}",
                hint="name a file in a folder that you may write with --report",
            ) from None


def read_report(path: Path) -> StagingReport:
    """Raises StagingError where the file is no report of this version."""
    try:
        found = json.loads(path.read_bytes())
        if found.pop("format") != FORMAT:
            raise ValueError("another format")
        sources = tuple(StagedSource(**source) for source in found.pop("sources"))
        nodes = tuple(
            NodeReport(**{**node, "paths": tuple(node["paths"])}) for node in found.pop("nodes")
        )
        return StagingReport(sources=sources, nodes=nodes, **found)
    except OSError as error:
        raise StagingError(f"cannot read the report {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StagingError(f"{path} is not a staging report: {error}") from None


def failure_path(report: Path) -> Path:
    """Where a run that fails says so, beside the report that it does not write."""
    return report.with_name(f"{report.stem}-error.json")


def write_failure(report: Path, error: StagingError) -> None:
    """Note why a run failed: a launcher that ends all ranks with the first to fail has an
    exit status of its own. Where it cannot be written, stderr alone has it."""
    said = {"format": FORMAT, "exit_code": error.exit_code, "message": error.message}
    with contextlib.suppress(OSError):
        publish_bytes(failure_path(report), json.dumps(said).encode() + b"\n")


def read_failed_code(report: Path) -> int | None:
    """The exit code of a run that failed; None where it did not come to say so."""
    try:
        code = json.loads(failure_path(report).read_bytes())["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) and 0 < code < 256 else None


def node_to_bytes(node: NodeReport) -> bytes:
    return json.dumps(asdict(node)).encode()


def node_from_bytes(line: bytes) -> NodeReport:
    found = json.loads(line)
    return NodeReport(**{**found, "paths": tuple(found["paths"])})
