"""The fault runner judged: its parts, and one short run (docs/faults.md)."""
