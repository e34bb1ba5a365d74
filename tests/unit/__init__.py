"""Tests without I/O, in virtual time; and tests of the tree itself: its README, its lock, its cleanliness."""
