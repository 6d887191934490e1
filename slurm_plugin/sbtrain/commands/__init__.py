"""The command lines: one file a command."""

from sbtrain_staging.import_order import own_packages_first

own_packages_first()
