"""The one way to the API server, and the one module that imports the Kubernetes client library.

Objects go in and out as plain JSON values, so that what a template holds passes through untouched. Every request has
a time limit. Every failure is a `DriverError` that says what was tried, why it failed and what to do.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osrdyne.drivers.kubernetes.manifests import MANAGER
from osrdyne.drivers.kubernetes.refusals import ApiRefused, clean, refusal
from osrdyne.drivers.kubernetes.template import Manifest
from osrdyne.errors import DriverError, EngineAway
from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.foreign_json import MOST_BYTES_OF_ENGINES
from osrdyne_runtime import certificate_faults
from osrdyne_runtime.console.imports import extra

with extra("osrdyne[kubernetes]"):
    import aiohttp
    from kubernetes.aio import config
    from kubernetes.aio.client import ApiClient, Configuration
    from kubernetes.aio.client.exceptions import ApiException

#: Where a pod finds the namespace of its own service account.
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

#: The server ends a watch after this time, and the next one continues from there: a connection that died silently is
#: noticed soon after.
_WATCH_SECONDS = 60

#: Objects in one page of a listing.
_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object."""

    api: str
    plural: str


DEPLOYMENTS = Resource("apis/apps/v1", "deployments")
PODS = Resource("api/v1", "pods")
#: Autoscaling -> what it makes beside a Deployment.
SCALERS = {
    "hpa": Resource("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "keda": Resource("apis/keda.sh/v1alpha1", "scaledobjects"),
}


class Api:
    """Requests about the objects of one namespace. Use it from one event loop."""

    def __init__(self, *, kubeconfig: Path | None, namespace: str | None, timeout: float) -> None:
        """`timeout` is the longest wait for an answer, in seconds. Raises `SettingsError` for a missing file."""
        if kubeconfig is not None and not kubeconfig.is_file():
            raise SettingsError("driver.kubeconfig", f"{kubeconfig} is not a file; inside a cluster leave it out")
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._timeout = timeout
        self._client: ApiClient | None = None
        self._loaded = False
        self._opening = asyncio.Lock()

    async def apply(self, resource: Resource, name: str, body: Manifest, *, what: str) -> Manifest:
        """Create an object or make it what `body` says (server-side apply), and return it as it is now.

        Never takes over a field of another owner: the server refuses that as a conflict.
        """
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        # With a parameter, so that the library takes the text as it is.
        kind = "application/apply-patch+yaml; charset=utf-8"
        return await self._ask("PATCH", resource, name, query, what=what, body=as_yaml(body), kind=kind)

    async def delete(self, resource: Resource, name: str, *, what: str, foreground: bool = False) -> Manifest | None:
        """Ask for the deletion of an object; return it while it is being deleted, None when it has gone.

        With `foreground` it stays until all that it owns has gone.
        """
        query = {"propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            answer = await self._ask("DELETE", resource, name, query, what=what)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise
        return answer if answer.get("kind") != "Status" else None

    async def list(self, resource: Resource, selector: str) -> tuple[list[Manifest], str]:
        """Return the objects with these labels, and the version from which to watch for changes."""
        what = f"list {resource.plural}"
        found: list[Manifest] = []
        page: dict[str, str] = {}
        while True:
            query = {"labelSelector": selector, "limit": str(_PAGE_SIZE), **page}
            answer = await self._ask("GET", resource, None, query, what=what)
            found += answer.get("items") or []
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            page = {"continue": metadata["continue"]}

    async def watch(self, resource: Resource, selector: str, version: str) -> AsyncGenerator[Manifest, None]:
        """Yield what changes after `version`, bookmarks included, until the server ends the watch after a while.

        Raises `ApiRefused` with status 410 when that version is too old.
        """
        what = f"watch {resource.plural}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        quiet = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=_WATCH_SECONDS + self._timeout)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._send("GET", resource, None, query, timeout=quiet)
                if answer.status != 200:
                    raise refusal(what, answer.status, (await answer.read()).decode(errors="replace"))
            try:
                async for line in answer.content:
                    event = foreign_json.read(line, most=MOST_BYTES_OF_ENGINES)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise refusal(what, int(status.get("code", 500)), json.dumps(status))
                    yield event
            finally:
                answer.close()
        except _FAILURES as error:
            raise self._unreachable(what, error) from error

    async def close(self) -> None:
        """Release the connections."""
        client: Any = self._client
        self._client, self._loaded = None, False
        if client is not None:
            await client.close()

    async def _ask(
        self,
        method: str,
        resource: Resource,
        name: str | None,
        query: dict[str, str],
        *,
        what: str,
        body: str | None = None,
        kind: str | None = None,
    ) -> Manifest:
        try:
            async with asyncio.timeout(self._timeout):
                timeout = aiohttp.ClientTimeout(total=self._timeout)
                answer = await self._send(method, resource, name, query, timeout=timeout, body=body, kind=kind)
                text = (await answer.read()).decode(errors="replace")
            if answer.status >= 300:
                # A kubeconfig, or what it names, may hold another token or certificate by now.
                self._loaded = self._loaded and answer.status != 401
                raise refusal(what, answer.status, text)
            parsed = foreign_json.read(text, most=MOST_BYTES_OF_ENGINES)
        except _FAILURES as error:
            raise self._unreachable(what, error) from error
        if not isinstance(parsed, dict):
            raise DriverError(f"cannot {what}: the API server's answer is not an object")
        return parsed

    async def _send(
        self,
        method: str,
        resource: Resource,
        name: str | None,
        query: dict[str, str],
        *,
        timeout: aiohttp.ClientTimeout,
        body: str | None = None,
        kind: str | None = None,
    ) -> aiohttp.ClientResponse:
        client = await self._open()
        path = f"/{resource.api}/namespaces/{self._namespace}/{resource.plural}" + (f"/{name}" if name else "")
        headers = {"Accept": "application/json", **({"Content-Type": kind} if kind else {})}
        _, url, headers, _, _ = await client.param_serialize(
            method, path, query_params=list(query.items()), header_params=headers, auth_settings=["BearerToken"]
        )
        # Half of the library has no types.
        transport: Any = client.rest_client
        answer = await transport.request(method, url, headers=headers, body=body, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _open(self) -> ApiClient:
        async with self._opening:
            if not self._loaded:
                configuration = Configuration()
                try:
                    await self._load(configuration)
                except Exception as error:  # the library checks little of what it reads
                    where = (
                        f"correct {self._kubeconfig}" if self._kubeconfig else "outside a cluster set driver.kubeconfig"
                    )
                    raise EngineAway(f"cannot reach the API server: {clean(str(error))}; {where}") from error
                # A new one: certificates are read when it is made, and its connections have shown the former ones.
                await self.close()
                self._client, self._loaded = ApiClient(configuration), True
            assert self._client is not None
            return self._client

    async def _load(self, configuration: Configuration) -> None:
        library: Any = config
        if self._kubeconfig is None:
            library.load_incluster_config(client_configuration=configuration)
            self._namespace = self._namespace or _own_namespace()
            return
        file = str(self._kubeconfig)
        loader = await library.load_kube_config(file, client_configuration=configuration, persist_config=False)
        self._namespace = self._namespace or loader.current_context["context"].get("namespace") or "default"

    def _unreachable(self, what: str, error: BaseException) -> EngineAway:
        if isinstance(error, TimeoutError):
            return EngineAway(f"cannot {what}: the API server did not answer within {self._timeout:g} s")
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            self._loaded = False
            setting = "certificate-authority in the kubeconfig"
            named = self._client is not None and self._client.configuration.ssl_ca_cert
            fault = certificate_faults.fault(error, authority=setting if named else None, setting=setting)
            return EngineAway(f"cannot {what}: {fault or clean(str(error))}")
        text = clean(str(error)) or type(error).__name__
        return EngineAway(f"cannot {what}: no answer of the API server: {text}; it is tried again")


def _own_namespace() -> str:
    return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()


#: What the library and the network may raise.
_FAILURES = (
    ApiException,
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
    KeyError,
)


def as_yaml(body: Any) -> str:
    """Return JSON that a YAML parser reads as the same.

    YAML takes no escaped surrogate pairs, and of some characters only the escape.
    """
    text = json.dumps(body, ensure_ascii=False)
    return _ESCAPED_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_ESCAPED_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
