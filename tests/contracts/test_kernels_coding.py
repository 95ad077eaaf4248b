"""Whole numbers, several to a byte: equal to plain torch and to arithmetic on every backend."""

from __future__ import annotations

import pytest
import torch

from fedkge.kernels import backend, reference

KINDS = [(7, 2), (1, 5)]  #: the largest number, how many to a byte


@pytest.mark.parametrize(("most", "per_byte"), KINDS)
@pytest.mark.parametrize("width", [1, 4, 5, 6, 16, 257])
def test_bytes_are_those_of_the_reference_and_of_arithmetic(
    device: torch.device, width: int, most: int, per_byte: int
) -> None:
    random = torch.Generator().manual_seed(width)
    values = 2 * most * torch.randn(9, width, generator=random)
    values[3, 0] = 0.5  # a tie goes to even
    scale = torch.linspace(0.5, 2, 9)
    kernels = backend(device)
    packed = kernels.quantise(values.to(device), scale.to(device), most, per_byte)
    assert torch.equal(packed.cpu(), reference.quantise(values, scale, most, per_byte))
    whole = (values / scale[:, None]).round().clamp(-most, most)
    base = 2 * most + 1
    for row, found in zip(whole.long().tolist(), packed.tolist(), strict=True):
        groups = [row[start : start + per_byte] for start in range(0, width, per_byte)]
        digits = [sum((q + most) * base**place for place, q in enumerate(group)) for group in groups]
        assert found == digits
    back = kernels.restored(packed, scale.to(device), most, per_byte, width)
    assert torch.equal(back.cpu(), whole * scale[:, None])


@pytest.mark.parametrize(("most", "per_byte"), KINDS)
def test_bytes_that_nobody_writes_are_nan(device: torch.device, most: int, per_byte: int) -> None:
    """Bytes come from others: all others are numbers within range."""
    packed = torch.arange(256, dtype=torch.uint8)[:, None]
    scale = torch.ones(256)
    found = backend(device).restored(packed.to(device), scale.to(device), most, per_byte, per_byte)
    expected = reference.restored(packed, scale, most, per_byte, per_byte)
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    legal = (2 * most + 1) ** per_byte
    assert float(found[:legal].abs().max()) == most
    assert bool(found[legal:].isnan().all())
    assert (2 * most + 1) ** per_byte <= 256 < (2 * most + 1) ** (per_byte + 1)


def test_rows_that_are_not_finite_are_bytes_all_the_same(device: torch.device) -> None:
    values = torch.tensor([[torch.nan, torch.inf, -torch.inf, 0.0, 1.0]])
    packed = backend(device).quantise(values.to(device), torch.ones(1, device=device), 1, 5)
    assert torch.equal(packed.cpu(), reference.quantise(values, torch.ones(1), 1, 5))
