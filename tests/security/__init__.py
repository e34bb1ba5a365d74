"""Tests of what strangers, mistakes and leaks can do: permissions, secrets, TLS, passwords that change, bad input."""
