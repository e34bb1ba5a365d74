"""Unit tests of the relay."""
