"""A change of a file that a person reviews: a pool's settings in `Pulumi.<stack>.yaml`, or in a file of variables for
Ansible. Reads the file; writes it only when asked to, in one step. `settings_file` changes that of a daemon.

Only lines of the pool's delays and overrides are exchanged: all others stay as they are, byte by byte. What is written
is read again and must be what a pool's settings accept. Where it is not clear what to change, NotChanged says why.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import YAMLError

from osrdyne_pipeline.recommendation.edit import lines
from osrdyne_pipeline.recommendation.edit.wanted import NotChanged, WantedSettings
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError

PULUMI_POOLS = "osrdyne:pools"
#: Variables that hold one pool's settings.
ANSIBLE_POOLS = ("osrdyne_pool", "daemon_pool", "topology_pool")
#: What a change may change.
CHANGED = ("unbind_delay", "stop_delay", "overrides")


@dataclass(frozen=True)
class FileChange:
    """A file as it is, and as it would be; and the pool's settings in it."""

    path: Path
    before: str
    after: str
    was: PoolSettings
    becomes: PoolSettings
    #: Keys whose overrides a person wrote, of those that were there.
    theirs: frozenset[str] = frozenset()
    #: The option of `recommend` that names it.
    option: str = ""

    def diff(self) -> str:
        """Return the unified diff; empty where nothing changes."""
        names = f"a/{self.path.name}", f"b/{self.path.name}"
        diff = difflib.unified_diff(lines.lines_of(self.before), lines.lines_of(self.after), *names)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)

    def write(self) -> None:
        """Replace the file in one step. Raises `NotChanged` where it is no longer what the change was made from."""
        # A link stays one.
        target = self.path.resolve()
        with _alone(target):
            self._replace(target)

    def _replace(self, target: Path) -> None:
        if read(self.path) != self.before:
            raise NotChanged(f"{self.path} has changed meanwhile; run again")
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.after.encode())
                file.flush()
                os.fsync(file.fileno())
            _own(Path(name), target)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let no other change of this file be between its comparison and its replacement. Waits for one that is.

    Who waited holds the lock of a file that was replaced, and then finds other content.
    """
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(file.open("rb")), fcntl.LOCK_EX)
        except OSError as error:
            raise NotChanged(f"{file} cannot be read and locked: {error}") from error
        yield


def _own(file: Path, like: Path) -> None:
    """Give a file the owner, the group and the permissions of another: who could read that shall read this."""
    wanted, has = like.stat(), file.stat()
    if (wanted.st_uid, wanted.st_gid) != (has.st_uid, has.st_gid):
        try:
            os.chown(file, wanted.st_uid, wanted.st_gid)
        except PermissionError:
            raise NotChanged(
                f"{like} belongs to another account, which would lose it; run as that one, or as root"
            ) from None
    file.chmod(wanted.st_mode & 0o7777)


def pulumi(wanted: WantedSettings, path: Path) -> FileChange:
    """Return the change of a stack's configuration. Raises `NotChanged`."""
    return _change(wanted, path, _pulumi_pools)


def ansible(wanted: WantedSettings, path: Path) -> FileChange:
    """Return the change of a file of variables. Raises `NotChanged`."""
    templates = [override.key for override in wanted.overrides if "{{" in override.key or "{%" in override.key]
    if templates:
        raise NotChanged(f"Ansible would take the key {templates[0]!r} for a template; leave it to Pulumi's file")
    return _change(wanted, path, _ansible_pools)


#: Finds the pools' tables in a document.
Finder = Callable[[Any], Iterator[Any]]


def _pulumi_pools(document: Any) -> Iterator[Any]:
    config = document.get("config")
    pools = config.get(PULUMI_POOLS) if isinstance(config, CommentedMap) else None
    yield from pools if isinstance(pools, CommentedSeq) else ()


def _ansible_pools(document: Any) -> Iterator[Any]:
    yield from (document[name] for name in ANSIBLE_POOLS if name in document)


def pulumi_pool(name: str, path: Path) -> PoolSettings:
    """Return a pool's settings as a stack's configuration has them. Raises `NotChanged`."""
    return _accepted(_pool(_load(read(path), path), path, _pulumi_pools, name), path)


def ansible_pool(name: str, path: Path) -> PoolSettings:
    """Return a pool's settings as a file of variables has them. Raises `NotChanged`."""
    return _accepted(_pool(_load(read(path), path), path, _ansible_pools, name), path)


def _change(wanted: WantedSettings, path: Path, finder: Finder) -> FileChange:
    before = read(path)
    document = _load(before, path)
    pool = _pool(document, path, finder, wanted.pool)
    was = _accepted(pool, path)
    theirs = lines.theirs(before, pool)
    wanted = wanted.beside({key: was.overrides[key] for key in theirs if key in was.overrides})
    after = lines.exchanged(before, pool, wanted)
    try:
        changed = _load(after, path)
        pool_changed = _pool(changed, path, finder, wanted.pool)
        rest_stays = _plain(document, pool) == _plain(changed, pool_changed)
    except NotChanged:
        rest_stays = False
    if not rest_stays:
        raise NotChanged(f"{path} is written in a way that cannot be changed line by line; change it by hand")
    return FileChange(path, before, after, was, _accepted(pool_changed, path), theirs)


def read(path: Path) -> str:
    """Return the text of a file. Raises `NotChanged`."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise NotChanged(f"{path} cannot be read: {error}") from error


def _load(text: str, path: Path) -> Any:
    try:
        if any(getattr(event, "anchor", None) for event in YAML().parse(text)):
            raise NotChanged(f"{path} uses anchors: a change in one place would be one in others; change it by hand")
        document = YAML().load(text)
    except YAMLError as error:
        raise NotChanged(f"{path} is not YAML that can be changed: {error}") from error
    if not isinstance(document, CommentedMap):
        raise NotChanged(f"{path} is not a table of settings")
    return document


def _pool(document: CommentedMap, path: Path, finder: Finder, name: str) -> CommentedMap:
    pools = [node for node in finder(document) if isinstance(node, CommentedMap)]
    found = [pool for pool in pools if pool.get("name") == name]
    if len(found) != 1:
        there = ", ".join(str(pool.get("name")) for pool in pools) or "none"
        raise NotChanged(f"{path} has {len(found)} pools {name!r}, not one; its pools: {there}")
    overrides = found[0].get("overrides")
    if found[0].fa.flow_style() or (isinstance(overrides, CommentedMap) and overrides.fa.flow_style()):
        raise NotChanged(f"{path} has pool {name!r} within braces; write each setting on a line of its own")
    return found[0]


def _accepted(pool: CommentedMap, path: Path) -> PoolSettings:
    try:
        return PoolSettings.from_mapping(_plain(pool))
    except SettingsError as error:
        raise NotChanged(f"{path} would not be accepted: {error}") from error


def _plain(value: Any, pool: CommentedMap | None = None) -> Any:
    """Return plain data, without what a change may change of `pool`, a table in it."""
    if isinstance(value, dict):
        return {key: _plain(item, pool) for key, item in value.items() if value is not pool or key not in CHANGED}
    if isinstance(value, list):
        return [_plain(item, pool) for item in value]
    return value.value if isinstance(value, TaggedScalar) else value
