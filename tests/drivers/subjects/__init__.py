"""The drivers under test, each with its engine, as the conformance suite sees them.

A driver joins the suite by a subclass of `Subject` (of `Owning`, when it owns its workers) in `SUBJECTS`.
Nothing in the suite itself knows an engine.
"""

from __future__ import annotations

from tests.drivers.subjects.base import Subject
from tests.drivers.subjects.docker import DockerSubject
from tests.drivers.subjects.kubernetes import KubernetesSubject
from tests.drivers.subjects.noop import NoopSubject
from tests.drivers.subjects.subprocess import SubprocessSubject
from tests.drivers.subjects.systemd import SystemdSubject

SUBJECTS: tuple[type[Subject], ...] = (NoopSubject, SubprocessSubject, DockerSubject, SystemdSubject, KubernetesSubject)
