"""Tests, a folder a tier: what each stands on and how they run is in `tools/tiers.py` and docs/decisions/0003."""
