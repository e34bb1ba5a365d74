"""Tests against real brokers of every supported version."""
