"""What the parts of one cluster agree upon: addresses, ports, and where its files are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

NODE = "node1"
#: The cluster's own networks: they exist within its network namespace only.
PODS = "10.244.0.0/22"
SERVICES = "10.96.0.0/16"
#: The API server's own Service.
API_SERVICE = "10.96.0.1"
API_PORT = 6443
DOMAIN = "cluster.local"
#: Pods that the node takes.
MAX_PODS = 500


@dataclass(frozen=True)
class Layout:
    """One cluster. The files of `directory` are seen from inside and outside of its namespaces alike."""

    directory: Path
    #: Hexadecimal, unique on this machine.
    name: str
    #: Of this machine, as the cluster sees it.
    gateway: str
    #: Of the cluster's only node, as this machine sees it.
    address: str
    #: Of who may import images and ask for add-ons.
    user: int
    group: int
    #: Folders of programs, by module.
    kubernetes: Path
    etcd: Path
    coredns: Path

    @property
    def server(self) -> str:
        """Address of the API server."""
        return f"https://{self.address}:{API_PORT}"

    @property
    def cgroup(self) -> str:
        """Everything in pods is below this."""
        return f"osrdyne-{self.name}"

    @property
    def link(self) -> str:
        """This machine's end of the only wire to the cluster; 15 characters at most."""
        return f"osrk{self.name}"

    @property
    def certificates(self) -> Path:
        return self.directory / "pki"

    @property
    def log(self) -> Path:
        """Folder of what each process said."""
        return self.directory / "log"

    @property
    def state(self) -> Path:
        """Data of all parts."""
        return self.directory / "state"

    @property
    def containerd(self) -> Path:
        """The container engine's socket."""
        return self.directory / "containerd.sock"

    @property
    def requests(self) -> Path:
        """The socket at which the node takes orders."""
        return self.directory / "requests.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.directory / "kubeconfig"

    def config(self, name: str) -> Path:
        return self.directory / "config" / name

    def save(self) -> None:
        facts = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        # A process that waits for the cluster reads it as soon as it is there.
        part = self.directory / "layout.json.part"
        part.write_text(json.dumps(facts))
        part.rename(self.directory / "layout.json")

    @classmethod
    def read(cls, directory: Path) -> Layout:
        """Raises FileNotFoundError where no cluster is."""
        facts = json.loads((directory / "layout.json").read_text())
        facts |= {name: Path(facts[name]) for name in ("directory", "kubernetes", "etcd", "coredns")}
        return cls(**facts)
