"""Builds the four wings and the site files as one distribution: sbtrain."""

from setuptools import setup

WINGS = {
    "sbtrain": "slurm_plugin/sbtrain",
    "sbtrain_jobs": "jobs/sbtrain_jobs",
    "sbtrain_perf": "perf/sbtrain_perf",
    "sbtrain_staging": "io_staging/sbtrain_staging",
}
SUBPACKAGES = {
    "sbtrain": ["cluster", "commands", "slurm"],
    "sbtrain_perf": ["fitting", "models", "regret", "score"],
}
DATA = {"sbtrain_sites": "site-configs"}

setup(
    packages=[
        *WINGS,
        *DATA,
        *(f"{wing}.{sub}" for wing, subs in SUBPACKAGES.items() for sub in subs),
    ],
    package_dir={
        **WINGS,
        **DATA,
        **{
            f"{wing}.{sub}": f"{WINGS[wing]}/{sub}"
            for wing, subs in SUBPACKAGES.items()
            for sub in subs
        },
    },
    package_data={
        "sbtrain_sites": ["*.toml", "*.json"],
        "sbtrain_perf": ["py.typed", "*.json"],
        **{name: ["py.typed"] for name in WINGS if name != "sbtrain_perf"},
    },
)
