"""Unit tests of the bus."""
