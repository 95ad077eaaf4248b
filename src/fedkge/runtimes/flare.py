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
from contextlib import suppress
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.context import get_call_context, set_call_context
from nvflare.fuel.flare_api.flare_api import new_secure_session

from fedkge.runtimes.engine import ADMIN, SOCKET, end_tree
from fedkge.runtimes.stream import Link

WAIT = 5.0  #: seconds that a site's end waits for something to send before it says that there is nothing
CALL = 30.0  #: seconds without progress after which a call is given up
LOGIN = 10.0  #: seconds that an administrator's login may take
NO_TENSORS = "nvflare.app_opt.pt.decomposers"  #: loads torch, which bytes do not need
MAINS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "client": "nvflare.private.fed.app.client.client_train",
}


class HubEnd:
    """The end of a site's stream at the hub, in a process of FLARE's."""

    def __init__(self) -> None:
        sys.modules.setdefault(NO_TENSORS, None)  # type: ignore[arg-type]

    @collab.main
    def run(self) -> None:
        """Until either end is gone."""
        (site,) = collab.clients
        link = Link.to(os.environ[SOCKET])
        link.send(str(site.name).encode())
        context = get_call_context()

        def push() -> None:
            set_call_context(context)
            with suppress(Exception):  # whatever it is, the stream is over
                while (packet := link.receive()) is not None:
                    site(timeout=CALL).push(data=packet)
            link.close()

        threading.Thread(target=push, daemon=True).start()
        with suppress(Exception):
            while True:
                if packet := site(timeout=WAIT + CALL).pull(wait=WAIT):
                    link.send(packet)
                elif link.socket.fileno() < 0:
                    break
        link.close()


class SiteEnd:
    """The end of the stream at the site, in a process of FLARE's."""

    def __init__(self) -> None:
        sys.modules.setdefault(NO_TENSORS, None)  # type: ignore[arg-type]
        self._link: Link | None = None

    @collab.init
    def connect(self) -> None:
        self._link = Link.to(os.environ[SOCKET])

    @collab.publish
    def push(self, data: bytes) -> None:
        """Take a packet for the site."""
        assert self._link is not None
        self._link.send(data)

    @collab.publish
    def pull(self, wait: float) -> bytes:
        """Give a packet of the site's; nothing, if there is none in so many seconds."""
        assert self._link is not None
        packet = self._link.receive(wait)
        if packet is None:
            raise ConnectionError("the site is gone")
        return packet

    @collab.final
    def disconnect(self) -> None:
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
