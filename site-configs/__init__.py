"""Site files: one TOML a site."""
