"""Examples: pools on real data, and what a worker looks like without our library."""
