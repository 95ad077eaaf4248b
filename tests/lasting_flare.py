"""NVIDIA FLARE's processes for several runs in a row: it is starting them that takes time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedkge.errors import FedkgeError
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.engine import Administrator, Engine
from fedkge.runtimes.flare_files import write_admin, write_server, write_site
from fedkge.runtimes.kits import Kit
from network_of_sites import HUB, kits


class LastingFlare:
    """FLARE's server, administrator and clients, which hubs and sites of this process take over in turn.

    A job's ends connect to the path that their processes were started with. It is a link to the socket of
    whoever is the hub, or that site, now. Who is not there now is not online.
    """

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        made, self.links = kits(tuple(sites)), folder / "links"
        self.links.mkdir()
        authority = Authority(made / "authority")
        write_server(folder / "server", authority, len(sites))
        write_admin(folder / "admin", authority)
        self.engines = {HUB: Engine("server", folder / "server", HUB, self.links / HUB)}
        for site in sites:
            kit, key = Kit.read(made / f"{site}.kit"), (made / "keys" / f"{site}.key").read_bytes()
            write_site(folder / site, kit, key)
            self.engines[site] = Engine("client", folder / site, site, self.links / site)
        self.administrator = Administrator(folder / "admin")
        for engine in self.engines.values():
            engine.start()

    def stop(self) -> None:
        self.administrator.stop()
        for engine in self.engines.values():
            engine.stop()

    def here(self, name: str) -> bool:
        return (self.links / name).is_symlink()

    def lend(self, patch: Any) -> None:
        """Hubs and sites that are started now use these processes."""
        flare = self

        class Lent:
            def __init__(self, role: str, workspace: Path, name: str, path: Path) -> None:
                self.name, self.path, self.workspace = name, path, workspace

            @property
            def runs(self) -> bool:
                return flare.here(self.name)

            def start(self) -> None:
                link = flare.links / self.name
                link.unlink(missing_ok=True)
                link.symlink_to(self.path)

            def stop(self) -> None:
                (flare.links / self.name).unlink(missing_ok=True)

            def listens(self, port: int) -> bool:
                return flare.engines[HUB].listens(port)

            def said(self) -> str:
                return flare.engines[self.name].said()

        class Spokesman:
            def __init__(self, workspace: Path) -> None:
                self.workspace = workspace

            def online(self) -> dict[str, float]:
                found = flare.administrator.online()
                return {site: when for site, when in found.items() if flare.here(site)}

            def submit(self, job: Path) -> str:
                if not flare.here(job.name.removeprefix("to-")):  # the job would begin in the next run
                    raise FedkgeError(f"{job.name}: the site has left")
                return flare.administrator.submit(job)

            def abort(self, job: str) -> None:
                flare.administrator.abort(job)

            def stop(self) -> None:
                """Others are yet to be served."""

        for module in ("network_hub", "network_site"):
            patch.setattr(f"fedkge.runtimes.{module}.Engine", Lent)
        patch.setattr("fedkge.runtimes.network_hub.Administrator", Spokesman)
