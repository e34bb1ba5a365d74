"""The fixtures of tests with a real broker, for this tier too."""

from tests.broker.conftest import make_client, make_daemon, make_pool

__all__ = ["make_client", "make_daemon", "make_pool"]
