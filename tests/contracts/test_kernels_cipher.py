"""ChaCha20 is OpenSSL's, bit by bit; noise drawn from it is Gaussian, on a grid, and the same everywhere."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge import randomness
from fedkge.kernels import Backend, Draw, backend, cipher, reference
from fedkge.kernels.cipher import GRID, GROUP, RARE

KEY = bytes(range(32))
#: RFC 8439, 2.3.2 and A.1: key, number of the block and nonce, keystream
VECTORS = [
    (
        KEY,
        "01000000" + "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        bytes(32),
        "00000000" + "000000000000000000000000",
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
]


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


def key_of(content: bytes, device: torch.device | str = "cpu") -> Tensor:
    return torch.from_numpy(np.frombuffer(content, "<i8").astype(np.int64)).to(device)


def openssl(key: bytes, where: bytes, count: int) -> np.ndarray:
    """Words of OpenSSL's keystream; `where` is the number of the first block and the nonce."""
    if shutil.which("openssl") is not None:
        command = ["openssl", "enc", "-chacha20", "-K", key.hex(), "-iv", where.hex()]
        done = subprocess.run(command, input=bytes(4 * count), capture_output=True, check=True)
        return np.frombuffer(done.stdout, "<u4")
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, where), None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * count)), "<u4")


def flat(blocks: np.ndarray) -> np.ndarray:
    """Words of whole groups of 16 blocks, block by block, as they lie in a flat stream."""
    return blocks.reshape(-1, 16, 16).swapaxes(1, 2).reshape(-1)


@pytest.mark.parametrize(("key", "where", "expected"), VECTORS)
def test_the_slow_version_is_the_rfcs(key: bytes, where: str, expected: str) -> None:
    counter = np.frombuffer(bytes.fromhex(where), "<u4")
    assert randomness.chacha20(key, counter[None])[0].tobytes().hex() == expected
    words = cipher.chacha20(key_of(key), tuple(torch.from_numpy(counter.astype(np.int64))[:, None]))
    assert torch.cat(words).numpy().astype("<u4").tobytes().hex() == expected


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("count", [1, 15, 256, 70_000])
def test_a_stream_is_openssls(kernels: Backend, device: torch.device, count: int, stream: int) -> None:
    key = np.random.default_rng(count).bytes(32)
    found = kernels.keystream(key_of(key, device), count, stream).cpu().numpy()
    whole = -(-count // GROUP) * GROUP
    where = np.array([0, 0, 0, stream], "<u4").tobytes()
    assert found.tolist() == flat(openssl(key, where, whole))[:count].tolist()
    assert found.tolist() == reference.keystream(key_of(key), count, stream).tolist()


def test_a_stream_ends(kernels: Backend, device: torch.device) -> None:
    with pytest.raises(ValueError, match="one stream"):
        kernels.keystream(key_of(KEY, device), (1 << 36) + 1)


def drawn(kernels: Backend, device: torch.device, n: int, key: bytes = KEY, known: bool = False) -> Tensor:
    """Negatives of triples at places 0, 7, 14, ... among 50 entities; the third one knows four answers."""
    b = 12
    site, position = torch.zeros(b, dtype=torch.int64), 7 * torch.arange(b)
    lo, hi = torch.zeros(b, dtype=torch.int64), torch.zeros(b, dtype=torch.int64)
    hi[2] = 4 if known else 0
    answers = torch.tensor([3, 3, 9, 20])
    draw = (key_of(key)[None], torch.tensor([0]), torch.tensor([50]), answers, site, position, lo, hi)
    index = torch.full((b, 1 + n), -1, device=device)
    kernels.negatives_(index, Draw(*(x.to(device) for x in draw)), torch.tensor([5, 6], device=device))
    return index[:, 1:].cpu()


@pytest.mark.parametrize("n", [1, 16, 17, 300])
def test_secret_negatives_are_openssls_words(kernels: Backend, device: torch.device, n: int) -> None:
    found = drawn(kernels, device, n)
    for i, row in enumerate(found):
        where = np.array([0, 7 * i, 5, 6], "<u4").tobytes()
        words = openssl(KEY, where, n).astype(np.int64)
        assert row.tolist() == ((words * 50) >> 32).tolist()
    assert not torch.equal(found, drawn(kernels, device, n, bytes(32)))


def test_secret_negatives_leave_answers_out(kernels: Backend, device: torch.device) -> None:
    found = drawn(kernels, device, 300, known=True)
    assert set(found[2].tolist()) == set(range(50)) - {3, 4, 11, 23}
    assert torch.equal(found, drawn(reference, torch.device("cpu"), 300, known=True))


# Noise


def noisy(kernels: Backend, device: torch.device, sums: Tensor, scale: float, key: bytes = KEY) -> Tensor:
    found = sums.clone().to(device)
    kernels.add_noise_(found, key_of(key, device), torch.tensor([scale], dtype=sums.dtype, device=device))
    return found.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (40, 600), (3, 0)])
def test_noise_is_what_the_reference_says(
    kernels: Backend, device: torch.device, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    sums = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    expected, found = sums.clone(), noisy(kernels, device, sums, 0.3)
    reference.add_noise_(expected, key_of(KEY), torch.tensor([0.3], dtype=dtype))
    assert torch.allclose(found, expected, rtol=1e-6, atol=3 * 0.3 / GRID)
    assert torch.equal(noisy(kernels, device, sums, 0.0), sums), "no noise, and no rounding"


@pytest.mark.parametrize("scale", [1e-20, 0.37, 1e6])
def test_sums_and_noise_are_whole_steps_of_one_grid(
    kernels: Backend, device: torch.device, scale: float
) -> None:
    """So the result is a function of a whole number: an untouched row is rounded as a touched one."""
    sums = scale * 3 * torch.randn(60, 50, generator=torch.Generator().manual_seed(1))
    step = np.float32(scale / GRID)
    alone = noisy(kernels, device, torch.zeros(60, 50), scale).numpy() / step
    both = noisy(kernels, device, sums, scale).numpy() / step
    assert np.allclose(alone, alone.round(), atol=0.51)  # one division rounds
    whole = alone.round() + (sums.numpy() / step).round()
    assert np.array_equal(both.round(), whole) or np.abs(both - whole).max() <= 1
    assert (np.abs(whole) < 2**24).all(), "whole numbers that float32 has"


def test_the_tail_is_drawn_from_more_bits(kernels: Backend, device: torch.device) -> None:
    """Words below 2^16 take 32 bits more. Of three thousand keys this one has the least word, a 4."""
    key, count = (635).to_bytes(32, "little"), 1 << 20
    words = cipher.keystream(key_of(key), count).view(-1, 2, 128)[:, 0]
    rare = words < RARE
    assert int(words.min()) == 4
    z = noisy(kernels, device, torch.zeros(1, count), 1.0, key)[0].view(-1, 2, 128)
    radius = z.double().square().sum(1).sqrt()
    assert (radius[rare] > 4.7).all()
    assert (radius[~rare] < 4.72).all()
    exact = cipher.normals(key_of(key), count).view(-1, 2, 128).square().sum(1).sqrt()
    assert torch.allclose(radius, exact, atol=2e-5)
    plain = (words.double() + 0.5).mul(2.0**-32).log().mul(-2).sqrt()
    assert (radius - plain).abs()[words == 4] > 1e-3, "the bits count"


def test_noise_has_the_moments_of_a_normal_distribution(kernels: Backend, device: torch.device) -> None:
    z = noisy(kernels, device, torch.zeros(4000, 128), 1.0).double()
    count = z.numel()
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
        assert abs(z.pow(power).mean() - mean) < 5 * (variance / count) ** 0.5
    for low, high in ((-1.0, 0.0), (-0.01, 0.01), (1.0, 2.0), (2.0, 3.0), (3.0, 9.0)):
        share = torch.special.ndtr(torch.tensor(high)) - torch.special.ndtr(torch.tensor(low))
        found = ((z > low) & (z <= high)).double().mean()
        assert abs(found - share) < 5 * (share / count) ** 0.5


def test_noise_of_keys_and_neighbours_is_independent(kernels: Backend, device: torch.device) -> None:
    z, other = (noisy(kernels, device, torch.zeros(4000, 64), 1.0, key).double() for key in (KEY, bytes(32)))
    limit = 5 / z.numel() ** 0.5
    pairs = [(z, other), (z[1:], z[:-1]), (z[2:], z[:-2]), *((z[:, k:], z[:, :-k]) for k in (1, 2, 16))]
    for first, second in pairs:
        assert abs((first * second).mean()) < limit
        assert abs(((first**2 - 1) * (second**2 - 1)).mean()) < 2 * limit
