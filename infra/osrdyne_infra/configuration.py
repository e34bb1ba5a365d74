"""The stack's configuration, parsed once into one strict model.

Pure: takes the raw values (texts, structured ones as JSON, as Pulumi hands them to a program) and the names of those
that are secret. An unknown, missing or ill-typed value is a ConfigurationError with its path, what is allowed and an
example. Durations are seconds as a number or ISO 8601 text. A stack is one of two kinds: pools on a broker that is
there, or, with `broker_deployment`, a broker and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from osrdyne_infra import checks
from osrdyne_infra.broker import settings as broker_settings
from osrdyne_infra.broker.settings import BrokerDeployment
from osrdyne_infra.checks import AmqpAddress, Check, Filled, HttpAddress, InvalidValue
from osrdyne_infra.cluster.settings import Cluster, PoolCluster, WorkerSettings
from osrdyne_infra.errors import ConfigurationError
from osrdyne_infra.jobs import settings as jobs_settings
from osrdyne_infra.jobs.settings import JobsPlace
from osrdyne_infra.pipeline.settings import PipelinePlace
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Users
from osrdyne_protocol import foreign_json
from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings.model import StrictModel

if TYPE_CHECKING:
    import pulumi

    from osrdyne_infra.relay.settings import RelayPlace

NAMESPACE = "osrdyne"
#: The settings that are secrets, and have to be.
HIDDEN = (
    "admin_password",
    "jobs_admin_password",
    "kubeconfig",
    "pipeline_s3_access_key",
    "pipeline_s3_secret_key",
    "relay_key",
    "relay_s3_access_key",
    "relay_s3_secret_key",
)
ROLES = (*(role.name for role in fields(Users)), *jobs_settings.ROLES)

#: Every setting, with what a person could write for it.
EXAMPLES: Mapping[str, str] = {
    "broker": "osrdyne:broker: {management: 'http://127.0.0.1:15672', amqp: 'amqp://127.0.0.1:5672', admin: admin}",
    "admin_password": "pulumi config set --secret admin_password",
    "vhost": "osrdyne:vhost: osrdyne",
    "instance": "osrdyne:instance: dev",
    "pools": "osrdyne:pools: [{name: core, unbind_delay: PT10M, delivery_limit: 5}]",
    "lose_messages_of": "osrdyne:lose_messages_of: [core]",
    "mend_lost_queues": "osrdyne:mend_lost_queues: true",
    "rotate": "osrdyne:rotate: {core: {worker: 2}}",
    "adopt": "osrdyne:adopt: true",
    "kubernetes": "osrdyne:kubernetes: {namespace: osrdyne, daemon: {image: 'registry.example/osrdyne:0.1.0'}}",
    "workers": "osrdyne:workers: {core: {image: 'registry.example/core-worker:1.4', env: {MODEL: /srv/model}}}",
    "jobs": "osrdyne:jobs: {database: 'postgresql://db.example:5432', admin: postgres}",
    "jobs_admin_password": "pulumi config set --secret jobs_admin_password",
    "relay": "osrdyne:relay: {redis: {image: 'redis:7.4'}, settings: {serve: {plain_http: true}}, pools: [core]}",
    "pipeline": "osrdyne:pipeline: {image: 'registry.example/osrdyne-pipeline:0.1.0', pools: [core], storage: 10Gi}",
    "pipeline_s3_access_key": "pulumi config set --secret pipeline_s3_access_key",
    "pipeline_s3_secret_key": "pulumi config set --secret pipeline_s3_secret_key",
    "relay_key": "pulumi config set --secret relay_key < FILE",
    "relay_s3_access_key": "pulumi config set --secret relay_s3_access_key",
    "relay_s3_secret_key": "pulumi config set --secret relay_s3_secret_key",
    "kubeconfig": "pulumi config set --secret kubeconfig < FILE",
    "broker_deployment": "osrdyne:broker_deployment: "
    "{kind: statefulset, admin: osrdyne-admin, image: 'rabbitmq:4.3-management', storage: 10Gi}",
}
#: The settings of a stack that deploys a broker.
OF_BROKER = ("broker_deployment", "admin_password", "adopt", "kubernetes", "kubeconfig")


class BrokerAddress(StrictModel):
    """Where the broker is, and the user that declares things there."""

    #: Management API, as this machine reaches it; no user, no path, no query.
    management: HttpAddress
    #: AMQP, as the pool's programs reach it; no user, no vhost. Options of TLS in its query.
    amqp: AmqpAddress
    #: Name of a user with the tag `administrator`.
    admin: Filled
    #: Management API as the pool's programs reach it, where that is another address.
    inside_management: HttpAddress = ""
    #: PEM file of the CA that vouches for the management API, where this machine does not know it.
    cacertfile: Filled = ""
    #: Seconds by which the broker's counts of messages may be late (RabbitMQ's default interval is 5 s).
    statistics_interval: Annotated[float, BeforeValidator(parse_seconds)] = 7.5


@dataclass(frozen=True)
class StackSettings:
    """All that a stack of pools declares."""

    broker: BrokerAddress
    #: A component's may be an output.
    admin_password: str | pulumi.Output[str] = field(repr=False)
    vhost: str
    #: Name of this deployment; part of the users' names.
    instance: str
    pools: tuple[PoolSettings, ...]
    #: Pools whose queues may be deleted with the messages that they hold.
    lose_messages_of: tuple[str, ...] = ()
    #: Static queues that the broker lost when it was killed, which hold nothing, are deleted and declared again.
    mend_lost_queues: bool = False
    #: Pool -> role -> any text: another text is another password.
    rotate: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: The vhost and users that are on the broker already become the stack's, and so do objects on the cluster.
    adopt: bool = False
    #: Where daemons and workers run, and what each pool's workers are; None where the stack does not start them.
    cluster: PoolCluster | None = None
    workers: Mapping[str, WorkerSettings] = field(default_factory=dict)
    #: Where the jobs are kept of pools that have some, and the administrator's password there.
    jobs: JobsPlace | None = None
    jobs_admin_password: str | pulumi.Output[str] = field(default="", repr=False)
    #: The relay's Redis and nodes; None where the stack has none.
    relay: RelayPlace | None = None
    #: The pipelines that run by themselves on the cluster; None where the stack has none.
    pipeline: PipelinePlace | None = None

    def pool(self, name: str) -> PoolSettings:
        """Return the settings of a pool. Raises ConfigurationError."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in self.pools)
        problem = f"{name!r} is not a pool of these settings; their pools are {known}"
        raise ConfigurationError(f"{NAMESPACE}:pools", problem, EXAMPLES["pools"])

    def polls(self, pool: str) -> bool:
        """Return whether the workers of a pool poll at the relay."""
        return self.relay is not None and pool in self.relay.pools


@dataclass(frozen=True)
class BrokerStack:
    """All that a stack declares which is a broker."""

    deployment: BrokerDeployment
    admin_password: str = field(repr=False)
    cluster: Cluster
    #: The objects that are on the cluster already become the stack's.
    adopt: bool = False


def parse(raw: Mapping[str, str], secret: Set[str]) -> StackSettings | BrokerStack:
    """Return the settings. `raw` and `secret` have full names, such as `osrdyne:vhost`. Raises ConfigurationError."""
    values = _known(raw)
    _check_secrets(values, secret)
    return _broker_stack(values) if "broker_deployment" in values else _pool_stack(values)


def _pool_stack(values: Mapping[str, str]) -> StackSettings:
    broker = _checked(values, "broker", partial(checks.read, BrokerAddress))
    instance = _text(values, "instance")
    pools: tuple[PoolSettings, ...] = _checked(values, "pools", partial(_pools, instance))
    names = tuple(pool.name for pool in pools)
    cluster = _cluster(values, names)
    relay = _relay(values, names)
    return StackSettings(
        broker=broker,
        admin_password=_text(values, "admin_password"),
        vhost=_text(values, "vhost"),
        instance=instance,
        pools=pools,
        lose_messages_of=_checked(values, "lose_messages_of", partial(_names, names), default=()),
        mend_lost_queues=_checked(values, "mend_lost_queues", checks.flag, default=False),
        rotate=_checked(values, "rotate", partial(_rotations, names), default={}),
        adopt=_checked(values, "adopt", checks.flag, default=False),
        cluster=cluster,
        workers=_workers(values, names, cluster, relay.pools if relay else ()),
        jobs=_jobs(values, pools, cluster),
        jobs_admin_password=_text(values, "jobs_admin_password") if "jobs" in values else "",
        relay=relay,
        pipeline=_pipeline(values, names),
    )


def _broker_stack(values: Mapping[str, str]) -> BrokerStack:
    for name in values:
        if name not in OF_BROKER:
            problem = f"is not for a stack that deploys a broker, which has {', '.join(OF_BROKER)} and nothing else"
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES["broker_deployment"])
    password = _text(values, "admin_password")
    try:
        broker_settings.plain(password)
    except InvalidValue as error:
        raise ConfigurationError(f"{NAMESPACE}:admin_password", str(error), EXAMPLES["admin_password"]) from None
    cluster: Cluster = _checked(values, "kubernetes", partial(checks.read, Cluster))
    return BrokerStack(
        deployment=_checked(values, "broker_deployment", partial(checks.read, BrokerDeployment)),
        admin_password=password,
        cluster=cluster.model_copy(update={"kubeconfig": values.get("kubeconfig", "")}),
        adopt=_checked(values, "adopt", checks.flag, default=False),
    )


def _cluster(values: Mapping[str, str], pools: tuple[str, ...]) -> PoolCluster | None:
    if "kubernetes" not in values:
        _check_none(values, ("workers", "kubeconfig", "relay", "pipeline"), without="kubernetes")
        return None
    found: PoolCluster = _checked(values, "kubernetes", partial(checks.read, PoolCluster))
    for pool in pools:
        made = found.pool_namespace(pool)
        if len(made) > 63:
            problem = f"makes the namespace {made}, which is longer than 63 characters; choose a shorter one"
            raise ConfigurationError(f"{NAMESPACE}:kubernetes.namespace", problem, EXAMPLES["kubernetes"])
        if len(service := f"{pool}-daemon") > 63:
            problem = f"has pool {pool}, whose Service {service} is longer than 63 characters; choose a shorter name"
            raise ConfigurationError(f"{NAMESPACE}:pools", problem, EXAMPLES["pools"])
    return found.model_copy(update={"kubeconfig": values.get("kubeconfig", "")})


def _workers(
    values: Mapping[str, str], pools: tuple[str, ...], cluster: PoolCluster | None, polling: tuple[str, ...]
) -> dict[str, WorkerSettings]:
    if cluster is None:
        return {}
    started = [pool for pool in pools if pool not in polling]

    def check(value: object) -> dict[str, WorkerSettings]:
        given = checks.table(value, pools)
        for pool in pools:
            if (pool in given) != (pool in started):
                missing = "is missing; each pool needs its workers"
                raise InvalidValue(missing if pool in started else "polls at the relay; leave it out", f".{pool}")
        return {pool: checks.at(f".{pool}", partial(checks.read, WorkerSettings), given[pool]) for pool in started}

    found: dict[str, WorkerSettings] = _checked(values, "workers", check, default=None if started else {})
    return found


def _relay(values: Mapping[str, str], pools: tuple[str, ...]) -> RelayPlace | None:
    keys = ("relay_key", "relay_s3_access_key", "relay_s3_secret_key")
    if "relay" not in values:
        _check_none(values, keys, without="relay")
        return None
    # The models of its nodes are for stacks that have some.
    from osrdyne_infra.relay import settings as relay_settings

    found: relay_settings.RelayPlace = _checked(values, "relay", partial(_of_pools, relay_settings.RelayPlace, pools))
    if relay_settings.NAMESPACE in pools:
        problem = (
            f"{relay_settings.NAMESPACE!r} is a pool, whose namespace the relay would have; name the pool otherwise"
        )
        raise ConfigurationError(f"{NAMESPACE}:pools", problem, EXAMPLES["pools"])
    if bool(found.certificate) != ("relay_key" in values):
        problem = "and osrdyne:relay_key, which is a secret, go together: give both or none"
        raise ConfigurationError(f"{NAMESPACE}:relay.certificate", problem, EXAMPLES["relay_key"])
    for name in keys[1:]:
        if bool(found.bucket) != (name in values):
            problem = "and osrdyne:relay.settings.streams.s3 go together: give both or none"
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[name])
    given = {name.removeprefix("relay_"): values.get(name, "") for name in keys}
    return found.model_copy(update=given)


def _pipeline(values: Mapping[str, str], pools: tuple[str, ...]) -> PipelinePlace | None:
    keys = ("pipeline_s3_access_key", "pipeline_s3_secret_key")
    if "pipeline" not in values:
        _check_none(values, keys, without="pipeline")
        return None
    found: PipelinePlace = _checked(values, "pipeline", partial(_of_pools, PipelinePlace, pools))
    for name, other in (keys, keys[::-1]):
        if name in values and not found.lake:
            problem = "is for a lake in an object store: give osrdyne:pipeline.lake, too"
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, "osrdyne:pipeline: {lake: 's3://BUCKET/PREFIX'}")
        if name in values and other not in values:
            raise ConfigurationError(f"{NAMESPACE}:{other}", "is missing; a key has two parts", EXAMPLES[other])
    given = {name.removeprefix("pipeline_"): values.get(name, "") for name in keys}
    return found.model_copy(update=given)


def _jobs(values: Mapping[str, str], pools: tuple[PoolSettings, ...], cluster: PoolCluster | None) -> JobsPlace | None:
    having = [pool.name for pool in pools if pool.jobs is not None]
    if "jobs" not in values:
        if having:
            problem = f"is missing; pool {having[0]} has jobs, which need a database"
            raise ConfigurationError(f"{NAMESPACE}:jobs", problem, EXAMPLES["jobs"])
        _check_none(values, ("jobs_admin_password",), without="jobs")
        return None
    if having and cluster is not None and cluster.network_policy is not None and not cluster.network_policy.database:
        path = f"{NAMESPACE}:kubernetes.network_policy.database"
        problem = f"is missing; pool {having[0]} has jobs, and its pods must reach their database"
        raise ConfigurationError(path, problem, "database: [10.1.0.0/16]")
    found: JobsPlace = _checked(values, "jobs", partial(checks.read, JobsPlace))
    return found


def _check_none(values: Mapping[str, str], names: tuple[str, ...], *, without: str) -> None:
    """Refuse settings that mean something together with another one only."""
    for name in names:
        if name in values:
            problem = f"is for a stack with {NAMESPACE}:{without}, which is missing"
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[without])


def _known(raw: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, value in raw.items():
        namespace, _, name = path.partition(":")
        if namespace != NAMESPACE:  # of Pulumi itself, or of another provider, such as `aws:region`
            continue
        if name not in EXAMPLES:
            known = ", ".join(f"{NAMESPACE}:{example}" for example in EXAMPLES)
            raise ConfigurationError(path, f"is not a setting; known are {known}", EXAMPLES["pools"])
        found[name] = value
    return found


def _check_secrets(values: Mapping[str, str], secret: Set[str]) -> None:
    """Refuse a password in the clear, and a secret that would come out in names, plans and outputs."""
    for name in values:
        if (f"{NAMESPACE}:{name}" in secret) != (name in HIDDEN):
            clear = "is a password in the clear" if name.endswith("password") else "holds credentials in the clear"
            problem = f"{clear}; set it as a secret" if name in HIDDEN else "is not a secret, but set as one"
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[name])


def _text(values: Mapping[str, str], name: str) -> str:
    value = values.get(name)
    if not value or len(value.encode()) > 255:
        problem = "is missing" if value is None else "is not text of 1 to 255 bytes"
        raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[name])
    return value


def _structure(values: Mapping[str, str], name: str) -> Any:
    if name not in values:
        raise InvalidValue("is missing")
    try:
        return foreign_json.read(values[name])
    except foreign_json.UnreadableJson:
        return values[name]


def _checked(values: Mapping[str, str], name: str, check: Check, default: object = None) -> Any:
    """Return a structured setting as a check makes it."""
    if name not in values and default is not None:
        return default
    try:
        return check(_structure(values, name))
    except ValueError as error:
        path = f"{NAMESPACE}:{name}{getattr(error, 'path', '')}"
        raise ConfigurationError(path, str(error), EXAMPLES[name]) from None


def _pools(instance: str, given: object) -> tuple[PoolSettings, ...]:
    if not isinstance(given, list) or not given:
        raise InvalidValue(f"{given!r} is not a list of one pool or more")
    known = tuple(field.name for field in fields(PoolSettings) if field.name != "instance")
    pools: list[PoolSettings] = []
    for number, entry in enumerate(given):
        here = f"[{number}]"
        table = checks.at(here, partial(checks.table, known=known), entry)
        try:
            pool = PoolSettings.from_mapping(table, path=here)
        except SettingsError as error:
            # The name is judged by the model itself, which does not know where it stands.
            raise InvalidValue(error.problem, error.path.replace("pool.", f"{here}.", 1)) from None
        if pool.name in [other.name for other in pools]:
            raise InvalidValue(f"{pool.name!r} is the name of two pools; choose another", f"{here}.name")
        pools.append(replace(pool, instance=instance))
    return tuple(pools)


def _names(pools: tuple[str, ...], given: object) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise InvalidValue(f"{given!r} is not a list of pools")
    for number, entry in enumerate(given):
        if entry not in pools:
            raise InvalidValue(
                f"{entry!r} is not a pool of this stack; its pools are {', '.join(pools)}", f"[{number}]"
            )
    return tuple(given)


def _of_pools(kind: type[Any], pools: tuple[str, ...], given: object) -> Any:
    """Return a table of a kind, of pools of this stack."""
    found = checks.read(kind, given)
    checks.at(".pools", partial(_names, pools), [*found.pools])
    return found


def _rotations(pools: tuple[str, ...], given: object) -> dict[str, dict[str, str]]:
    of_roles = partial(checks.table, known=ROLES)
    turns = {pool: checks.at(f".{pool}", of_roles, roles) for pool, roles in checks.table(given, pools).items()}
    return {
        pool: {role: checks.at(f".{pool}.{role}", _turn, turn) for role, turn in roles.items()}
        for pool, roles in turns.items()
    }


def _turn(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidValue(f"{value!r} is not text or an integer")
    return str(value)
