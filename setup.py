"""Builds the four wings and the site files as one distribution: sbtrain."""

from pathlib import Path

from setuptools import setup

WINGS = {
    "sbtrain": "slurm_plugin/sbtrain",
    "sbtrain_jobs": "jobs/sbtrain_jobs",
    "sbtrain_perf": "perf/sbtrain_perf",
    "sbtrain_staging": "io_staging/sbtrain_staging",
}
DATA = {"sbtrain_sites": "site-configs"}

ROOT = Path(__file__).parent
PACKAGES = {
    ".".join((wing, *init.parent.relative_to(ROOT / folder).parts)): str(
        init.parent.relative_to(ROOT)
    )
    for wing, folder in WINGS.items()
    for init in sorted((ROOT / folder).rglob("__init__.py"))
}

setup(
    packages=[*PACKAGES, *DATA],
    package_dir={**PACKAGES, **DATA},
    package_data={
        "sbtrain_sites": ["*.toml", "*.json"],
        "sbtrain_perf": ["py.typed", "*.json"],
        **{name: ["py.typed"] for name in WINGS if name != "sbtrain_perf"},
        "sbtrain_jobs.hooks": ["path/*.py"],
    },
)
