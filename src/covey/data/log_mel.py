"""Log-mel spectrograms: how loud a sound is over time, in bands as the ear hears them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Singles

FRAMES_A_SECOND = 40
QUIET = 1e-6  # of full power: what is below counts as silence


def log_mel(waves: Sequence[NDArray[np.int16]], *, rate: int, bands: int, frames: int) -> Singles:
    """log10(power + 1e-6) of each wave, [waves, bands, frames]: Hann windows of 50 ms, one every 25 ms, mel bands.

    What is longer than the frames is cut, what is shorter is followed by silence.
    """
    step = rate // FRAMES_A_SECOND
    width = 2 * step
    window = np.hanning(width + 1)[:-1].astype(np.float32)
    filters = mel_filters(rate=rate, bins=width // 2 + 1, bands=bands)
    places = np.arange(frames)[:, None] * step + np.arange(width)
    found = np.empty((len(waves), bands, frames), np.float32)
    for number, wave in enumerate(waves):
        padded = np.zeros(frames * step + width, np.float32)
        kept = wave[: len(padded)]
        padded[: len(kept)] = kept.astype(np.float32) / 2**15
        power = np.abs(np.fft.rfft(padded[places] * window, axis=1)) ** 2 / window.sum() ** 2
        found[number] = np.log10(filters @ power.T + QUIET)
    return found


def mel_filters(*, rate: int, bins: int, bands: int) -> Singles:
    """Triangles [bands, bins] with corners evenly spaced in mel = 2595 log10(1 + f / 700), from 0 to half the rate."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    at = np.linspace(0, rate / 2, bins)
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (at - low) / (middle - low), (high - at) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
