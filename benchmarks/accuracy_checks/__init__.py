"""The accuracy bars, one module a data source; each has checks(data, scratch)."""
