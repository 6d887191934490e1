"""Estimators: from measurements to coefficients and intervals."""
