"""The simulation judged: its seeds, the model broker, and mistakes that it must find (docs/explain/simulation.md)."""
