"""One direction between two nodes, both ends: rows without ids, and what coding lost carried over.

Both ends know the ids that were announced. A body holds the code of all announced rows in announced order
(`entity.values`), or of some, with a bit per announced row that says which (`entity.where`). Where changes
are coded, rows that the ends do not hold yet are beside them, whole (`entity.new.values`): which rows these
are both ends know.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from reprlib import repr as brief

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.codec import Codec, Float16, blocks
from fedkge.exchange.held import Held
from fedkge.exchange.rows import Announced, Memory, Rows, Update, carried, under
from fedkge.graphs.graph import Axis

WHERE, SUPPORT, NEW = "where", "support", "new"
WHOLE = Float16()  #: how rows are written that the ends do not hold yet
COUNTS = (torch.uint8, torch.int16, torch.int32)  #: types of numbers of sites, the smallest that holds them
RESIDUAL, PENDING, AT = "residual", "pending", "at"  #: names in a sender's memory


class Sender:
    """Writes updates. With `codec.feedback`, what coding lost of a row is added when the row is next sent."""

    def __init__(self, codec: Codec, announced: Announced) -> None:
        self.codec, self.announced = codec, checked(announced)
        self._residual: dict[Axis, Tensor] = {}  # [announced rows, width], of messages that arrived
        self._pending: dict[Axis, tuple[Tensor | None, Tensor]] = {}  # rows and residual of the last message

    def encode(self, update: Update, since: Held | None = None) -> dict[str, Tensor]:
        """The body for `update`; float32 rows are not copied: send it before they change.

        `since`: rows of which changes are coded instead of rows. Until `settle`, encoding again starts from
        the same residual, so that a repeated message is equal.
        """
        self._pending.clear()
        body: dict[str, Tensor] = {}
        for axis, rows in update.items():
            if len(rows) == 0:
                continue
            at = self._positions(axis, rows.ids)
            if at is not None:
                body[f"{axis}.{WHERE}"] = pack(at, len(self.announced[axis]))
            if rows.support is not None:
                body[f"{axis}.{SUPPORT}"] = rows.support.to(_holding(int(rows.support.max())))
            values = rows.values.detach()
            if values.dtype != torch.float32:
                raise ValueError(f"{axis} rows: {values.dtype}, expected torch.float32")
            code = self._code(axis, values, at) if since is None else self._changes(axis, values, at, since)
            body |= {f"{axis}.{part}": tensor for part, tensor in code.items()}
        return body

    def settle(self, accepted: bool) -> None:
        """Whether the last message was used; only then does its residual replace the one before."""
        for axis, (at, lost) in self._pending.items() if accepted else ():
            if at is None:
                self._residual[axis] = lost
            else:
                self._residual[axis] = self._carried(axis, lost).index_copy_(0, at.to(lost.device), lost)
        self._pending.clear()

    def moved(self, announced: Announced, to: Mapping[Axis, Tensor]) -> Sender:
        """A sender of other rows, which goes on with what coding lost of those that stay."""
        new = Sender(self.codec, announced)
        for axis, residual in self._residual.items():
            new._residual[axis] = carried(residual, to[axis], len(announced[axis]))
        for axis, (at, lost) in self._pending.items():
            places = (to[axis] if at is None else to[axis][at]).to(lost.device)
            new._pending[axis] = places[places >= 0], lost[places >= 0]
        return new

    def memory(self) -> Memory:
        """Copies of what lasts, by name: the settled residuals, and those of a message not settled yet."""
        memory = {f"{axis}.{RESIDUAL}": residual.clone() for axis, residual in self._residual.items()}
        for axis, (at, lost) in self._pending.items():
            memory[f"{axis}.{PENDING}"] = lost.clone()
            if at is not None:
                memory[f"{axis}.{AT}"] = at.clone()
        return memory

    def load(self, memory: Mapping[str, Tensor]) -> None:
        """Go on from what `memory()` returned."""
        parts = (RESIDUAL, PENDING, AT) if self.codec.feedback else ()
        names = {f"{axis}.{part}" for axis in self.announced for part in parts}
        for name, tensor in memory.items():
            if name not in names:
                raise DataError(f"{name}: no memory of this channel, expected {sorted(names) or 'none'}")
            axis, _, part = name.partition(".")
            at = memory.get(f"{axis}.{AT}") if part == PENDING else None
            rows = len(self.announced[Axis(axis)]) if at is None else len(at)
            kind = (torch.int64, 1) if part == AT else (torch.float32, 2)
            if (tensor.dtype, tensor.ndim) != kind or (part != AT and len(tensor) != rows):
                found = f"{tensor.dtype} {list(tensor.shape)}"
                shape = "[rows]" if part == AT else f"[{rows}, width]"
                raise DataError(f"{name}: {found}, expected {kind[0]} {shape}")
        own = {name: tensor.clone() for name, tensor in memory.items()}
        axes = list(self.announced)
        self._residual = {a: own[f"{a}.{RESIDUAL}"] for a in axes if f"{a}.{RESIDUAL}" in own}
        self._pending = {
            a: (own.get(f"{a}.{AT}"), own[f"{a}.{PENDING}"]) for a in axes if f"{a}.{PENDING}" in own
        }

    def _positions(self, axis: Axis, ids: Tensor) -> Tensor | None:
        """Where `ids` are among the announced; nothing when they are all of them."""
        if axis not in self.announced:
            raise ValueError(f"{axis} rows for a party that announced none")
        announced = self.announced[axis]
        if ids is announced or torch.equal(ids.to(announced.device), announced):
            return None
        ids = ids.to(announced.device)
        at = torch.searchsorted(announced, ids)
        known = at < len(announced)
        if not known.all() or not (announced[at] == ids).all() or not (at.diff() > 0).all():
            raise ValueError(f"{axis} rows: ids that were not announced, or not in increasing order")
        return at

    def _changes(self, axis: Axis, values: Tensor, at: Tensor | None, since: Held) -> dict[str, Tensor]:
        """Of rows that both ends hold the change, the others whole."""
        known, held = since.has(axis, at), since.values[axis]
        if bool(known.all()):
            return self._code(axis, values, at, held)
        old, new = (which.nonzero()[:, 0].to(values.device) for which in (known, ~known))
        code = {f"{NEW}.{part}": t for part, t in WHOLE.encode(values.index_select(0, new)).items()}
        if len(old):
            code |= self._code(axis, values.index_select(0, old), old if at is None else at[old], held)
        return code

    def _code(
        self, axis: Axis, values: Tensor, at: Tensor | None, since: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Some rows at a time, so that what is computed of them stays in the cache."""
        if since is None and not self.codec.feedback:
            return self.codec.encode(values)
        carried = self._carried(axis, values) if self.codec.feedback else None
        codes, lost = [], torch.empty_like(values) if self.codec.feedback else values[:0]
        room = torch.empty_like(values[blocks(values)[0]])  # one for all blocks: new memory costs as much
        for block in blocks(values):
            where = block if at is None else at[block].to(values.device)
            total = values[block]
            if since is not None:
                total = torch.sub(total, since[where], out=room[: len(total)])
            if carried is not None:
                total = torch.add(total, carried[where], out=room[: len(total)])
            codes.append(self.codec.encode(total))
            if carried is not None:
                torch.sub(total, self.codec.decode(codes[-1], values.shape[1]), out=lost[block])
        if carried is not None:
            self._pending[axis] = at, lost
        return {part: torch.cat([code[part] for code in codes]) for part in codes[0]}

    def _carried(self, axis: Axis, like: Tensor) -> Tensor:
        """The residual of all announced rows of this width, on this device; zero before the first message."""
        if axis not in self._residual:
            return like.new_zeros(len(self.announced[axis]), like.shape[1])
        residual = self._residual[axis].to(like.device)
        if residual.shape[1] != like.shape[1]:
            raise DataError(
                f"{axis}.{RESIDUAL}: {residual.shape[1]} wide, expected {like.shape[1]} as the rows"
            )
        return residual


class Receiver:
    """Reads updates that may come from anyone: whatever does not fit what was announced is a `DataError`.

    `supported`: whether rows may come as means over so many others, as a hub sends them. `longest`: how large
    a number of a row may be, after the change was added where it was one.
    """

    def __init__(
        self,
        codec: Codec,
        announced: Announced,
        widths: Mapping[Axis, int],
        supported: bool = False,
        longest: float = torch.finfo(torch.float32).max,
    ) -> None:
        self.codec, self.announced, self.supported = codec, checked(announced), supported
        self.widths, self.longest = {axis: widths[axis] for axis in announced}, longest

    def decode(self, body: Mapping[str, Tensor], since: Held | None = None) -> Update:
        """The rows in `body`, all finite; of float32 they are the body's own memory.

        `since`: the rows that they are changes of.
        """
        codes: dict[Axis, dict[str, Tensor]] = {}
        for name, tensor in body.items():
            axis, _, part = name.partition(".")
            if axis not in self.announced:
                expected = ", ".join(f"{axis}.values" for axis in self.announced) or "no rows"
                raise DataError(f"{brief(name)}: no rows of that kind were announced, expected {expected}")
            codes.setdefault(Axis(axis), {})[part] = tensor
        return {axis: self._rows(axis, code, since) for axis, code in codes.items()}

    def _rows(self, axis: Axis, code: dict[str, Tensor], since: Held | None) -> Rows:
        ids, at = self.announced[axis], None
        if WHERE in code:
            at = unpack(code.pop(WHERE), len(ids), axis).to(ids.device)
            ids = ids[at]
        if len(ids) == 0:
            raise DataError(f"{axis} rows: none, expected at least one row")
        support = code.pop(SUPPORT, None) if self.supported else None
        if support is not None and not (
            support.dtype in COUNTS and support.shape == ids.shape and (support > 0).all()
        ):
            found = f"{support.dtype} {list(support.shape)}"
            raise DataError(f"{axis}.{SUPPORT}: {found}, expected [{len(ids)}] numbers of sites, at least 1")
        if since is None:
            values = self._decoded(axis, self.codec, code, len(ids))
        else:
            values = self._changed(axis, code, at, since)
        self._check_size(axis, values)
        return Rows(ids, values, None if support is None else support.to(torch.int64))

    def _changed(self, axis: Axis, code: dict[str, Tensor], at: Tensor | None, since: Held) -> Tensor:
        """Changes added to the rows that are held; those that are not come whole, and no others."""
        known, held = since.has(axis, at), since.values[axis]
        if bool(known.all()):
            values = self._decoded(axis, self.codec, code, len(known))
            for block in blocks(values):  # codecs that code changes decode into memory of their own
                values[block] += held[block if at is None else at[block]]
            return values
        old, new = known.nonzero()[:, 0], (~known).nonzero()[:, 0]
        whole = under(NEW, code)
        if not whole:
            raise DataError(
                f"{axis} rows: changes of rows that were never told, expected {len(new)} whole ones"
            )
        rest = {part: tensor for part, tensor in code.items() if not part.startswith(f"{NEW}.")}
        values = held.new_empty(len(known), held.shape[1])
        values[new] = self._decoded(axis, WHOLE, whole, len(new))
        if len(old) or rest:
            changes = self._decoded(axis, self.codec, rest, len(old))
            values[old] = changes + held[old if at is None else at[old]]
        return values

    def _decoded(self, axis: Axis, codec: Codec, code: Mapping[str, Tensor], rows: int) -> Tensor:
        try:
            values = codec.decode(code, self.widths[axis])
        except DataError as error:
            raise DataError(f"{axis} rows: {error}") from None
        if values.shape != (rows, self.widths[axis]):
            raise DataError(f"{axis} rows: {list(values.shape)}, expected {[rows, self.widths[axis]]}")
        return values

    def _check_size(self, axis: Axis, values: Tensor) -> None:
        least, most = torch.aminmax(values)  # both are NaN where anything is
        size = float(torch.maximum(most, -least))
        if not isfinite(size):
            raise DataError(f"{axis} rows: numbers that are infinite or NaN, expected finite ones")
        if size > self.longest:
            raise DataError(f"{axis} rows: a number of {size:.3g}, expected numbers within {self.longest:g}")


def _holding(largest: int) -> torch.dtype:
    return next(dtype for dtype in COUNTS if largest <= torch.iinfo(dtype).max)


def pack(at: Tensor, n: int) -> Tensor:
    """Bits of n rows, set at the positions `at`: uint8 [⌈n/8⌉], the first row in the lowest bit."""
    bits = torch.zeros(-(-n // 8) * 8, dtype=torch.uint8, device=at.device)
    bits[at] = 1
    return (bits.view(-1, 8) << _eight(at.device)).sum(1, dtype=torch.uint8)


def unpack(where: Tensor, n: int, axis: Axis) -> Tensor:
    """The positions of the set bits among n rows."""
    if where.dtype != torch.uint8 or where.shape != (-(-n // 8),):
        found = f"{where.dtype} {list(where.shape)}"
        raise DataError(
            f"{axis}.{WHERE}: {found}, expected torch.uint8 [{-(-n // 8)}], a bit for each of {n} rows"
        )
    bits = where[:, None] >> _eight(where.device) & 1
    at = bits.view(-1).nonzero().view(-1)
    if len(at) and at[-1] >= n:
        raise DataError(f"{axis}.{WHERE}: row {int(at[-1])} is set, expected only rows below {n}")
    return at


def _eight(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


def checked(announced: Announced) -> dict[Axis, Tensor]:
    """The ids, if they are such as a party may announce."""
    for axis, ids in announced.items():
        if ids.dtype != torch.int64 or ids.ndim != 1 or not (ids.diff() > 0).all():
            found = f"{ids.dtype} {list(ids.shape)}"
            raise DataError(f"{axis} ids: {found}, expected torch.int64 [n] in strictly increasing order")
    return dict(announced)
