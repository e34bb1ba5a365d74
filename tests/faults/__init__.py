"""The fault runner judged: its parts, and one short run (docs/explain/faults.md)."""
