"""Starts, for tests, the real things that they need: a broker, a Docker engine, clean machines.

Everything started here ends with the test run, also when the run is killed. Nothing here is skipped when it
cannot start: that is an error, with its reason. Results of downloads and builds are cached outside the
checkout.
"""
