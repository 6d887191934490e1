"""The commands of sbtrain: what runs on a login node."""
