"""The plugin of the package: a process that Pulumi's engine starts, to declare components and to serve what is ours.

It runs in the Python that has this package, whatever is first on PATH: the script that starts it names that. The
engine remembers the package, not a class of Python, so that `destroy` finds the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import grpc
import grpc.aio
import pulumi
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi import dynamic
from pulumi.output import Unknown
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import ProviderServicer
from pulumi.runtime import proto, rpc
from pulumi.runtime.proto import provider_pb2_grpc

from osrdyne_infra import jobs_database, limits, mend, password  # noqa: F401 - each makes its resources known
from osrdyne_infra.components.arguments import broker_settings, pool_settings
from osrdyne_infra.errors import InfraError
from osrdyne_infra.package.pools import BrokerOnCluster, Pools
from osrdyne_infra.package.resource import PROVIDERS, Registration
from osrdyne_infra.package.schema import COMPONENTS, POOLS, schema
from osrdyne_runtime.console.streams import guarded

#: How the engine's protocol marks a table that stands for a value, and which: a secret, or what an output has.
MARK, SECRET, OUTPUT = (
    "4dabf18193072939515e22adb298388d",
    "1b47061264138c4ac30d75fd1eb44270",
    "d0e6a833031e9bbcd3f4e8bde6ca49a4",
)
#: Seconds after which the plugin looks whether its engine is still there.
LOOK_SECONDS = 1.0
_THREADS = ThreadPoolExecutor(max_workers=4)


class Package(Provider):
    """Declares components, as a program would."""

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Declare a component. Raises InfraError."""
        if (component := COMPONENTS.get(resource_type)) is None:
            raise InfraError(f"{resource_type} is not in this package; it has {', '.join(COMPONENTS)}")
        if unknown := sorted(inputs.keys() - component.settings.keys()):
            known = ", ".join(component.settings)
            raise InfraError(f"{', '.join(unknown)}: not in this package; {resource_type} takes {known}")
        given = {name: setting(value) for name, value in inputs.items()}
        made: Pools | BrokerOnCluster
        if resource_type == POOLS:
            made = Pools(name, pool_settings(**given), options)
        else:
            made = BrokerOnCluster(name, broker_settings(**given), options)
        return ConstructResult(made.urn, {name: getattr(made, name) for name in component.outputs})


def plainly(answer: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Have the engine get the text of a refusal alone."""

    async def answered(servicer: Servicer, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await answer(servicer, request, context)
        except InfraError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    return answered


class Servicer(ProviderServicer):
    """Answers the engine: about components as the library does, about our own resources by what serves each."""

    @plainly
    async def Construct(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        # The component waits for, and is deleted before, what its inputs are made of. Their values are known as they
        # are: settings are read before anything is declared.
        request.dependencies.extend(sorted({urn for found in request.inputDependencies.values() for urn in found.urns}))
        request.inputDependencies.clear()
        request.inputs.CopyFrom(bare(request.inputs))
        return await super().Construct(request, context)

    @plainly
    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        olds, news = read(request.olds), read(request.news)
        result = await asked(serving(request.urn).check, olds, news)
        failures = [proto.CheckFailure(property=failed.property, reason=failed.reason) for failed in result.failures]
        return proto.CheckResponse(inputs=await written(result.inputs, request.news), failures=failures)

    @plainly
    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        olds, news = read(request.olds), read(request.news)
        result = await asked(serving(request.urn).diff, request.id, olds, news)
        changes = proto.DiffResponse.DIFF_SOME if result.changes else proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(changes=changes, replaces=result.replaces)

    @plainly
    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        result = await asked(serving(request.urn).create, read(request.properties))
        properties = await written(result.outs or {}, request.properties)
        return proto.CreateResponse(id=result.id, properties=properties)

    @plainly
    async def Update(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        olds, news = read(request.olds), read(request.news)
        result = await asked(serving(request.urn).update, request.id, olds, news)
        return proto.UpdateResponse(properties=await written(result.outs or {}, request.news))

    @plainly
    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        await asked(serving(request.urn).delete, request.id, read(request.properties))
        return empty_pb2.Empty()

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: N802 - the engine's name
        """Return what the state has: these resources stand for no object that could be other than it says."""
        return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)


async def asked(answer: Callable[..., Any], *given: Any) -> Any:
    """Return what is answered in a thread of its own.

    Those of the loop may all wait for a resource to be declared, which waits for this answer.
    """
    return await asyncio.get_running_loop().run_in_executor(_THREADS, answer, *given)


def serving(urn: str) -> dynamic.ResourceProvider:
    """Return what serves a resource."""
    kind = urn.split("::")[2].rpartition(":")[2]
    return PROVIDERS[kind]()


def read(properties: struct_pb2.Struct) -> dict[str, Any]:
    """Return properties as dynamic resources get them: without the marks of secrets."""
    found: dict[str, Any] = rpc.deserialize_properties(bare(properties), keep_unknowns=True)
    return found


def bare(properties: struct_pb2.Struct) -> struct_pb2.Struct:
    """Return properties without marks of secrets, and of where they come from."""
    found: struct_pb2.Struct = json_format.ParseDict(_bare(json_format.MessageToDict(properties)), struct_pb2.Struct())
    return found


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.get(MARK) in (SECRET, OUTPUT):
        # The value of an output that is not known is left out.
        return _bare(value.get("value", rpc.UNKNOWN))
    return {name: _bare(part) for name, part in value.items()}


def setting(value: Any) -> Any:
    """Return an input as a program would give it: whole numbers, which come as floats, and an output if unknown.

    Tables come in another order each time, and files that are made of them must not differ.
    """
    if isinstance(value, dict):
        return {name: setting(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [setting(part) for part in value]
    if isinstance(value, Unknown):
        return pulumi.Output.from_input(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


async def written(values: dict[str, Any], given: struct_pb2.Struct) -> struct_pb2.Struct:
    """Return properties, in which is secret what was secret in those that were given."""
    hidden = {name for name, value in rpc.deserialize_properties(given).items() if rpc.is_rpc_secret(value)}
    marked = {name: rpc.wrap_rpc_secret(value) if name in hidden else value for name, value in values.items()}
    return await rpc.serialize_properties(marked, {})


async def serve(engine: str) -> None:
    """Answer the engine at an address until it ends: one that is killed ends no plugin."""
    process = os.getppid()
    Registration.version = version("osrdyne-infra")
    package = Package(Registration.version, json.dumps(schema(Registration.version)))
    server = grpc.aio.server()
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(package, [], engine), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    # By this line the engine finds the server.
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while os.getppid() == process:
        await server.wait_for_termination(LOOK_SECONDS)


def main() -> None:
    """Run the plugin, as Pulumi's engine starts it."""
    parser = argparse.ArgumentParser(prog="pulumi-resource-osrdyne", description="The plugin of a package of Pulumi.")
    parser.add_argument("engine", help="address of Pulumi's engine, which starts this program")
    known, _ = parser.parse_known_args()
    with guarded("pulumi-resource-osrdyne"), suppress(KeyboardInterrupt):
        asyncio.run(serve(known.engine))
