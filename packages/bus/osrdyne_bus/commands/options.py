"""Where the commands connect to, and the options that they share."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from osrdyne_bus.addresses import DYNAMIC, ROOT
from osrdyne_bus.errors import ConnectFailed, InvalidTarget, LoginRefused, MessagingError
from osrdyne_bus.peers import peers_of
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Target
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime import certificates
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import CANNOT, NO, CannotAsk

if TYPE_CHECKING:
    from osrdyne_bus.aio import AsyncBus

#: For `failing_clearly`: what the exit status of each error is.
STATUSES: dict[type[Exception], int] = {
    CannotAsk: CANNOT,
    ConnectFailed: CANNOT,
    LoginRefused: CANNOT,
    SettingsError: CANNOT,
    InvalidTarget: CANNOT,
    MessagingError: NO,
}
_URI = "OSRDYNE_BUS_URI"

Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Topics whose servers are asked. Default: none."),
]
Exchange = Annotated[str, typer.Option(help="The exchange of the topics.")]
Server = Annotated[str | None, typer.Option(help="Ask the server of this name, and not any of the topic.")]
BrokerFile = Annotated[
    Path | None,
    typer.Option(envvar=f"{_URI}_FILE", metavar="FILE", help="File that holds the peer's address; best choice."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        envvar=_URI,
        metavar="URI",
        help="The peer's address, amqp://user:password@host:5672/vhost. On the command line its password can be seen "
        "in the list of processes: prefer --broker-file or the environment.",
    ),
]
Addressing = Annotated[str, typer.Option(help="Which addresses targets have; see docs/reference/bus.md.")]
Root = Annotated[str, typer.Option(help="How routable addresses begin.")]
Mechanisms = Annotated[
    str | None,
    typer.Option(
        help='SASL mechanisms to use, as in "SCRAM-SHA-256"; by default PLAIN only over TLS or on this machine.'
    ),
]
CaFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificates that are trusted, for amqps://.")]
CertificateFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Own certificate, for amqps://.")]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the own certificate.")]
Timeout = Annotated[float, typer.Option(min=0.001, help="Seconds for the connection and all answers.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON documents.")]


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """A peer, as the options name it."""

    broker: Callable[[], str]
    addressing: str = DYNAMIC
    root: str = ROOT
    mechanisms: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @asynccontextmanager
    async def opened(self, name: str, timeout: float) -> AsyncIterator[AsyncBus]:
        """Connect, within `timeout` seconds. Raises CannotAsk for what cannot be used, and as `AsyncBus.open`."""
        try:
            from osrdyne_bus.aio import AsyncBus
        except ImportError as error:
            raise CannotAsk(str(error)) from None
        self._tls()
        try:
            settings = BusSettings(addressing=self.addressing, root=self.root)
            made = AsyncBus(self.broker, settings=settings, tls=self._tls, mechanisms=self.mechanisms, name=name)
        except (MessagingError, ValueError) as error:
            raise CannotAsk(str(error)) from None
        try:
            async with asyncio.timeout(timeout) as bound:
                await made.open()
        except TimeoutError:
            if not bound.expired():
                raise
            tried = ", ".join(f"{peer.host}:{peer.port}" for peer in peers_of(self.broker))
            raise ConnectFailed(f"{tried} did not open an AMQP 1.0 connection within {timeout:g} s") from None
        try:
            yield made
        finally:
            await made.close()

    def _tls(self) -> ssl.SSLContext | None:
        if self.key_file is not None and self.certificate_file is None:
            raise CannotAsk(f"--key-file {self.key_file} is the key of which certificate? give --certificate-file")
        if self.ca_file is self.certificate_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                certificates.load(context, self.certificate_file, self.key_file)
        except OSError as error:  # SSLError is one
            files = ", ".join(str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file)
            raise CannotAsk(f"a certificate or key cannot be read ({files}): {error}") from None
        return context


def chosen(context: typer.Context, broker: str | None, file: Path | None) -> Callable[[], str]:
    """Return a function that returns the peer's address, which its file may change. Raises CannotAsk, as that does."""
    # A bus says itself what a person has to know of its connection.
    log_format.configure(as_json=False)
    logging.getLogger().setLevel(logging.CRITICAL)
    broker_address.chosen(context, broker, file, variable=_URI)
    return lambda: broker_address.chosen(context, broker, file, variable=_URI)


def targets(topics: list[str] | None, exchange: str, server: str | None) -> list[Target]:
    """Return the targets of topics. Raises CannotAsk and InvalidTarget."""
    if server is not None and not topics:
        raise CannotAsk(f"--server {server} is a server of which topic? give one")
    return [Target(topic, exchange, server) for topic in topics or ()]
