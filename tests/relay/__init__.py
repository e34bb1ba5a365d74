"""Tests of the relay on a real Redis."""
