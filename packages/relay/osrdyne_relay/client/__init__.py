"""Call endpoints from any program, over a node.

    with RelayClient(["https://a:8044", "https://b:8044"], token_file=Path("/etc/osrdyne/relay.token")) as client:
        print(client.call("maps/LAX", b"question", timeout=60).body)

`asynchronous` has `AsyncRelayClient`, and `sockets` sees that none of its sockets stays open. `threads` has
`RelayClient`, the same for any number of threads. `addresses` does no HTTP: nodes, token, certificates, and how
an answer is read. A program that holds the address of Redis can do without a node: `osrdyne_relay.Relay`. Docs:
docs/howto/relay.md.
"""

from osrdyne_runtime.console.imports import extra

with extra("osrdyne-relay[client]"):
    from osrdyne_relay.client.asynchronous import AsyncRelayClient
    from osrdyne_relay.client.threads import BlockingResponse, BlockingStream, RelayClient

__all__ = ["AsyncRelayClient", "BlockingResponse", "BlockingStream", "RelayClient"]
