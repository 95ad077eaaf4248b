"""NVIDIA FLARE, imported here and nowhere else: it carries packets between the hub's machine and a site's.

The hub has one job per site, so that a site that was killed and comes back needs nobody else to begin again.
A job's two ends connect to the sockets of `fedkge hub` and `fedkge site`, and pass on what they read. Neither
knows what it carries.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.context import get_call_context, set_call_context
from nvflare.fuel.flare_api.flare_api import new_secure_session

from fedkge.runtimes.engine import ADMIN, SOCKET, end_tree
from fedkge.runtimes.stream import Link

WAIT = 5.0  #: seconds that an end waits for something to give before it says that there is nothing
PAUSE = 0.2  #: seconds between two questions to an end that has not begun
TRIES = 20  #: questions, a second apart, until the hub's end takes any
CALL = 30.0  #: seconds without progress after which a call is given up
LOGIN = 10.0  #: seconds that an administrator's login may take
NO_TENSORS = "nvflare.app_opt.pt.decomposers"  #: loads torch, which bytes do not need
MAINS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "client": "nvflare.private.fed.app.client.client_train",
}


class End:
    """One end of a stream, in a process of FLARE's. Each end asks the other for packets, and passes them on.

    Packets travel in answers, because FLARE formats every large question for a log that nobody reads.
    """

    def __init__(self) -> None:
        sys.modules.setdefault(NO_TENSORS, None)  # type: ignore[arg-type]
        self._link: Link | None = None

    @collab.publish
    def give(self, wait: float) -> bytes:
        """The next packet for the other end; nothing, if there is none in so many seconds."""
        if self._link is None:  # it has not begun yet
            time.sleep(PAUSE)
            return b""
        packet = self._link.receive(wait)
        if packet is None:
            raise ConnectionError("this end is gone")
        return packet

    def take(self, other: Any, link: Link) -> None:
        """Pass on what the other end gives, until either is gone."""
        with suppress(Exception):  # whatever it is, the stream is over
            while True:
                if packet := other(timeout=WAIT + CALL).give(wait=WAIT):
                    link.send(packet)
        link.close()


class HubEnd(End):
    """The end at the hub."""

    @collab.main
    def run(self) -> None:
        """FLARE calls it when both ends are ready."""
        (site,) = collab.clients
        link = Link.to(os.environ[SOCKET])
        link.send(str(site.name).encode())
        self._link = link
        self.take(site, link)


class SiteEnd(End):
    """The end at the site."""

    @collab.init
    def start(self) -> None:
        context, hub = get_call_context(), collab.server
        self._link = link = Link.to(os.environ[SOCKET])

        def run() -> None:
            set_call_context(context)
            for _ in range(TRIES):  # FLARE sets up sites first
                with suppress(Exception):
                    if packet := hub(timeout=CALL).give(wait=0.0):
                        link.send(packet)
                    break
                time.sleep(1.0)
            self.take(hub, link)

        threading.Thread(target=run, daemon=True).start()

    @collab.final
    def stop(self) -> None:
        if self._link is not None:
            self._link.close()


def administer(workspace: str) -> None:
    """Answer a question per line with a line: who is online, submit a job, abort a job.

    What FLARE prints goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session: Any = None
    for line in sys.stdin:
        try:
            session = session or new_secure_session(ADMIN, workspace, timeout=LOGIN, auto_login_max_tries=1)
            found: dict[str, Any] = {"found": _done(session, json.loads(line))}
        except Exception as error:  # whatever it is: the hub logs in again
            found, session = {"error": f"{type(error).__name__}: {error}"}, None
        answers.write(json.dumps(found) + "\n")
        answers.flush()
    os._exit(0)  # FLARE's threads would go on


def _done(session: Any, asked: dict[str, str]) -> Any:
    if "submit" in asked:
        return session.submit_job(asked["submit"])
    if "abort" in asked:
        return session.abort_job(asked["abort"])
    return {one.name: float(one.last_connect_time or 0) for one in session.get_system_info().client_info}


def main() -> None:
    """FLARE's server or client until standard input ends, or its administrator."""
    role, *given = sys.argv[1:]
    if role == "admin":
        administer(*given)
        return

    def end_with_parent() -> None:
        while os.read(0, 1):
            pass
        end_tree(os.getpid())

    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.argv[1:] = given
    runpy.run_module(MAINS[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
