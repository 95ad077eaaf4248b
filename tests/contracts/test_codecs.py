"""What every registered codec promises: shapes kept, errors bounded, rows coded alone, rubbish refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.config import choose
from fedkge.errors import ConfigError, DataError
from fedkge.exchange import codec as codecs
from fedkge.exchange.codec import CODECS, Codec
from fedkge.exchange.wire import DTYPES

EXACT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  #: relative error of a number, at most
MOST = {"int8": 127, "int4": 7}  #: the largest whole number of a code
LARGEST = {"float16": 65504.0, "bfloat16": torch.finfo(torch.bfloat16).max}


@pytest.fixture(params=list(CODECS))
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]()


def rows(n: int = 40, width: int = 7, scale: float = 1.0, seed: int = 0) -> Tensor:
    """Rows of very different sizes, with a row of zeros, a single number, and zeros of both signs."""
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(n, width, generator=random) * torch.logspace(-4, 2, n)[:, None] * scale
    values[0], values[1], values[2, 1:], values[3, 0] = 0, -values[1].abs(), 0, -0.0
    return values


def bound(codec: Codec, values: Tensor) -> Tensor:
    """How far a decoded number may be from the one that was sent."""
    name = CODECS.name_of(codec)
    if name in MOST:
        return (values.abs().amax(1, keepdim=True) / (2 * MOST[name]) * (1 + 1e-4)).expand_as(values)
    if name == "svd":
        return values.norm(dim=1, keepdim=True).expand_as(values) * (1 + 1e-4)  # see its own test
    if name == "ternary":
        return (
            values.abs() + 1.224 * values.square().mean(1, keepdim=True).sqrt()
        )  # clipped: see its own test
    return values.abs() * EXACT[name] + (2.0**-25 if name == "float16" else 0)  # half its smallest number


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(("n", "width"), [(0, 3), (1, 1), (5, 1), (40, 7), (9, 8)])
def test_shape_and_error(codec: Codec, n: int, width: int, device: torch.device) -> None:
    values = (rows(width=width)[:n] if n > 4 else torch.full((n, width), -0.3)).to(device)
    code = codec.encode(values)
    decoded = codec.decode(code, width)
    assert decoded.shape == values.shape
    assert decoded.dtype == torch.float32
    assert {part.device for part in [decoded, *code.values()]} == {values.device}
    assert bool(((decoded - values).abs() <= bound(codec, values)).all())
    assert {len(part) for part in code.values()} == {n}  # each part is one per row


def test_loses_something_unless_exact(codec: Codec) -> None:
    """The bound is no vacuous one, and `feedback` is an option exactly where something is lost."""
    values = rows()
    lost = bool((codec.decode(codec.encode(values), 7) != values).any())
    assert lost == (CODECS.name_of(codec) != "float32")
    assert lost == ("feedback" in {field.name for field in fields(codec)})  # type: ignore[arg-type]
    assert codec.feedback == (CODECS.name_of(codec) in {*MOST, "ternary"})


def test_coding_twice_changes_nothing_more(codec: Codec) -> None:
    if CODECS.name_of(codec) == "ternary":
        pytest.skip("its scale is that of the numbers around, not of the largest")
    once = codec.decode(codec.encode(rows()))
    again = codec.decode(codec.encode(once))
    torch.testing.assert_close(again, once, rtol=1e-6, atol=0)


def test_rows_are_coded_alone(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    values = rows()
    whole = codec.encode(values)
    halves = [codec.encode(values[:13]), codec.encode(values[13:])]
    assert same(whole, {part: torch.cat([half[part] for half in halves]) for part in whole})
    decoded = codec.decode(whole)
    monkeypatch.setattr(codecs, "BLOCK", 3 * 7)  # three rows at a time
    assert same(codec.encode(values), whole)
    assert torch.equal(codec.decode(whole), decoded)


def test_zeros_stay_zeros(codec: Codec) -> None:
    assert not codec.decode(codec.encode(torch.zeros(3, 4)), 4).any()


@pytest.mark.parametrize("size", [1e-45, 2.5e-43, 1e-40, 1e-38, 1e-30, 6e4, 7e4, 1e30, 3.3e38])
def test_any_magnitude_stays_finite(codec: Codec, size: float) -> None:
    """Numbers beyond the range of 16 bits become the largest; tiny ones no worse than zero."""
    if CODECS.name_of(codec) == "svd" and not 1e-20 < size < 1e38:
        pytest.skip("the norm of a row of such numbers is no float32")
    values = torch.tensor([[1.0, -1.0, 0.5, 0.3]]) * size
    decoded = codec.decode(codec.encode(values), 4)
    expected = values.clamp(-(top := LARGEST.get(CODECS.name_of(codec), torch.inf)), top)
    coarse = 2.0**-25 if CODECS.name_of(codec) == "float16" else 1.2e-38
    assert bool(decoded.isfinite().all())
    assert bool((decoded.sign() * values.sign() >= 0).all())  # no integer wraps around
    assert bool(((decoded - expected).abs() <= bound(codec, expected) + coarse).all())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_so(codec: Codec, bad: float, device: torch.device) -> None:
    values = rows().to(device)
    values[5, 2] = bad
    decoded = codec.decode(codec.encode(values))
    assert not bool(decoded[5].isfinite().all())
    assert bool(decoded[:5].isfinite().all())
    assert bool(decoded[6:].isfinite().all())


def test_the_rows_given_do_not_change(codec: Codec) -> None:
    values = rows()
    before = values.clone()
    codec.decode(codec.encode(values))
    assert torch.equal(values, before)


def test_refuses_rubbish(codec: Codec) -> None:
    code = codec.encode(rows())
    assert codec.decode(code, 7).shape == (40, 7)
    wrong: list[dict[str, Tensor]] = [{}, code | {"extra": torch.zeros(40)}]
    for name, part in code.items():
        wrong += [{other: code[other] for other in code if other != name}]
        wrong += [code | {name: part.double()}, code | {name: part[None]}, code | {name: part[0]}]
        wrong += [code | {name: part[1:]}] if len(code) > 1 else []
    for bad in wrong:
        with pytest.raises(DataError, match="expected"):
            codec.decode(bad)


def test_whatever_comes_is_rows_or_a_data_error(codec: Codec) -> None:
    """Parts of no width, of no rows, of other dimensions and types: nothing else is raised."""
    code = codec.encode(rows())
    for name, part in code.items():
        spoilt = [part[:0], part[..., :0], part.flatten(), part[None], part[0], part.flatten()[0]]
        spoilt += [part.to(dtype) for dtype in DTYPES.values()]
        spoilt += [torch.zeros(40, 0, dtype=part.dtype), torch.zeros(0, 0, dtype=part.dtype)]
        for bad, width in product(spoilt, (7, None)):
            with suppress(DataError):
                found = codec.decode(code | {name: bad}, width)
                assert (found.dtype, found.ndim) == (torch.float32, 2)


def test_int8_against_numpy() -> None:
    values = rows()
    values[7] = torch.arange(7) - 3.5  # scale 3.5 / 127: no ties
    values[8] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5])  # scale 1: ties go to even
    code = CODECS["int8"]().encode(values)
    x = values.numpy()
    scale = np.abs(x).max(1) / np.float32(127)
    assert np.array_equal(code["scale"].numpy()[1:], scale[1:])
    assert np.array_equal(code["values"].numpy()[1:], np.rint(x[1:] / scale[1:, None]).astype(np.int8))
    assert code["values"][8].tolist() == [127, 0, 2, 2, 0, -2, -2]
    assert code["values"].dtype == torch.int8


def test_float32_is_the_rows_themselves() -> None:
    codec, values = CODECS["float32"](), rows()
    assert codec.decode(codec.encode(values)) is values


def test_built_from_options() -> None:
    for name, feedback in product(["float16", "bfloat16", "int8"], [False, True]):
        assert choose(CODECS, {"name": name, "feedback": feedback}, "codec").feedback is feedback
    with pytest.raises(ConfigError, match=r"codec\.feedback: no such option"):
        choose(CODECS, {"name": "float32", "feedback": True}, "codec")
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        choose(CODECS, {"name": "int"}, "codec")


@pytest.mark.gpu
def test_never_waits_for_the_gpu(codec: Codec) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if isinstance(codec, CODECS["svd"]):
        pytest.skip("torch's eigendecomposition waits for the GPU, once for all rows")
    values = rows().cuda()
    codec.decode(codec.encode(values))  # compiles and allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        codec.decode(codec.encode(values))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_svd_is_the_best_of_its_rank() -> None:
    values = torch.randn(6, 256, generator=torch.Generator().manual_seed(1))
    svd = CODECS["svd"]()
    decoded = svd.decode(svd.encode(values), 256)
    for row, found in zip(values.numpy(), decoded, strict=True):
        u, s, v = np.linalg.svd(row.reshape(32, 8), full_matrices=False)
        best = (u[:, :5] * s[:5]) @ v[:5]
        np.testing.assert_allclose(found.reshape(32, 8), best, atol=1e-4)
    assert svd.numbers(256) == sum(part[0].numel() for part in svd.encode(values).values()) == 205
    assert svd.numbers(512) == 365
    whole = choose(CODECS, {"name": "svd", "rank": 8}, "codec")
    torch.testing.assert_close(whole.decode(whole.encode(values), 256), values, atol=1e-4, rtol=1e-4)
    with pytest.raises(ConfigError, match="rank <= columns"):
        choose(CODECS, {"name": "svd", "rank": 9}, "codec")


def test_ternary_is_best_for_normal_numbers() -> None:
    values = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(1))
    ternary = CODECS["ternary"]()
    error = float((ternary.decode(ternary.encode(values), 100_000) - values).square().mean())
    assert error == pytest.approx(0.19, abs=0.005)  # Lloyd and Max: 0.1902 of the variance
