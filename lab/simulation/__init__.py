"""Deterministic simulation: the daemon's own tasks under virtual time on a model broker; one seed is one run."""
