"""Tests of the drivers: one suite for all of them, and what is special of each."""
