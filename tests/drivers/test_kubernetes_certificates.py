"""A client certificate that has run out: what the kubeconfig names by then is taken, without a restart.

The API server here only checks certificates: to a client that it trusts it lists no Deployment.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp.web
import pytest

from osrdyne.drivers.kubernetes.api import DEPLOYMENTS, Api
from osrdyne.drivers.kubernetes.refusals import ApiRefused
from osrdyne.errors import DriverError
from testbed.authority import Authority
from testbed.kubernetes.certificates import kubeconfig
from testbed.pem import Certificate


class Server:
    """Trusts the certificates of these names."""

    def __init__(self, authority: Authority) -> None:
        self.trusted = {"first"}
        own = authority.issue("server", addresses=["127.0.0.1"])
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.cacertfile)
        self._tls.load_cert_chain(own.certfile, own.keyfile)
        # As the real one asks for a certificate, and judges it itself.
        self._tls.verify_mode = ssl.CERT_OPTIONAL

    async def _answer(self, request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        names = {value for part in certificate.get("subject", ()) for _, value in part}
        if not names & self.trusted:
            return aiohttp.web.json_response({"reason": "Unauthorized", "message": "Unauthorized"}, status=401)
        return aiohttp.web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields its address."""
        runner = aiohttp.web.ServerRunner(aiohttp.web.Server(self._answer))
        await runner.setup()
        try:
            site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
            await site.start()
            yield f"https://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def write(file: Path, address: str, authority: Authority, user: Certificate) -> None:
    file.touch(mode=0o600)
    file.write_text(kubeconfig(address, authority.cacertfile, user))


async def test_a_certificate_that_ran_out_is_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server, file = Server(authority), tmp_path / "kubeconfig"
    first, second = (authority.issue(name) for name in ("first", "second"))
    async with server.serving() as address:
        write(file, address, authority, first)
        api = Api(kubeconfig=file, namespace="default", timeout=60)
        try:
            assert await api.list(DEPLOYMENTS, "") == ([], "1")
            # When the first is trusted no more, and the second takes its place in the file
            server.trusted = {"second"}
            write(file, address, authority, second)
            with pytest.raises(ApiRefused, match="the API server does not know us"):
                await api.list(DEPLOYMENTS, "")
            # Then the next request is made with it
            assert await api.list(DEPLOYMENTS, "") == ([], "1")
        finally:
            await api.close()


async def test_a_server_of_another_authority_is_refused_with_what_to_do(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    file = tmp_path / "kubeconfig"
    async with Server(authority).serving() as address:
        write(file, address, other, other.issue("first"))
        api = Api(kubeconfig=file, namespace="default", timeout=60)
        try:
            with pytest.raises(DriverError, match="the CA that signed the server's certificate is not known here"):
                await api.list(DEPLOYMENTS, "")
        finally:
            await api.close()
