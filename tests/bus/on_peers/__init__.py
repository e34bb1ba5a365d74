"""Tests with proton, on peers that speak AMQP 1.0."""
