"""Work that others need not wait for: on a CUDA device it runs in a stream beside the one in use.

What is read beside must be kept until `join`, so that its memory is not used for something else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch

NOTHING = nullcontext()  #: can be entered again and again


class Beside:
    """A second stream of a device; of a CPU there is none, and work is done where it stands.

    It is small work: it goes first where both are ready, or it would wait for the last program of the large.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self._busy = False

    def work(self, after: Beside | None = None) -> AbstractContextManager[None]:
        """What is launched here starts after all that was launched before, and is waited for by `join`.

        Of what is launched in another stream beside, only that which it comes `after` is waited for.
        """
        return NOTHING if self._stream is None else self._launched(self._stream, after)

    @contextmanager
    def _launched(self, stream: torch.cuda.Stream, after: Beside | None) -> Iterator[None]:
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        if after is not None and after._stream is not None:
            stream.wait_stream(after._stream)
        with torch.cuda.stream(stream):
            yield
        self._busy = True

    def join(self) -> None:
        """What is launched from now on starts after the work beside."""
        if self._busy and self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._busy = False


@cache
def beside(device: torch.device, what: str = "") -> Beside:
    """The stream of a device for a kind of work; kinds do not wait for each other."""
    return Beside(device)
