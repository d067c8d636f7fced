"""A small SepFormer (arXiv 2010.13154) of speechbrain's modules: samples of mixtures in, samples of their sources out.

hyperparams.yaml is what describes it, here as in speechbrain's pretrained format: the networks are made of the very
text that is written beside their weights. The published ones have frames of 1 to 2 ms, which is what their time goes
into. Where rooms echo, longer ones do as well, and a window of 4 s has 500 frames instead of 4000.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from shapes import SepFormerShape
from spectra import to_spectra
from torch import Tensor, nn

from cascade.backends.sepformer import HYPERPARAMETERS, NETWORKS
from cascade.foreground import SOURCES
from cascade.types import SAMPLE_RATE

BLOCK: Final = """!new:speechbrain.lobes.models.dual_path.SBTransformerBlock
  num_layers: {shape.layers}
  d_model: {shape.width}
  nhead: {shape.heads}
  d_ffn: {shape.hidden}
  dropout: 0
  use_positional_encoding: true
  norm_before: true
"""

DESCRIPTION: Final = f"""# A small SepFormer that gives the foreground first, then the background.
sample_rate: {SAMPLE_RATE}
num_spks: {SOURCES}

Encoder: !new:speechbrain.lobes.models.dual_path.Encoder
  kernel_size: {{shape.kernel}}
  out_channels: {{channels}}

Within: {BLOCK}
Across: {BLOCK}
MaskNet: !new:speechbrain.lobes.models.dual_path.Dual_Path_Model
  num_spks: !ref <num_spks>
  in_channels: {{channels}}
  out_channels: {{shape.width}}
  num_layers: {{shape.blocks}}
  K: {{shape.piece}}
  intra_model: !ref <Within>
  inter_model: !ref <Across>
  norm: ln
  linear_layer_after_inter_intra: false
  skip_around_intra: true

Decoder: !new:speechbrain.lobes.models.dual_path.Decoder
  in_channels: {{channels}}
  out_channels: 1
  kernel_size: {{shape.kernel}}
  stride: {{stride}}
  bias: false

modules:
  encoder: !ref <Encoder>
  masknet: !ref <MaskNet>
  decoder: !ref <Decoder>

pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
  loadables:
    encoder: !ref <Encoder>
    masknet: !ref <MaskNet>
    decoder: !ref <Decoder>
"""
"""Of hyperparams.yaml, apart from the numbers."""


class SepFormer(nn.Module):  # type: ignore[misc, unused-ignore]
    """Encoder, masks for the encoder's channels, decoder; its sources have a fixed order."""

    def __init__(self, shape: SepFormerShape) -> None:
        """Make it with random weights, but for encoder and decoder, which begin as each other's opposite.

        Raises:
            ModuleNotFoundError: speechbrain isn't installed.
        """
        from hyperpyyaml import load_hyperpyyaml

        super().__init__()
        self.shape = shape
        modules = load_hyperpyyaml(describe(shape))["modules"]
        self.encoder, self.masknet, self.decoder = (modules[name] for name in NETWORKS)
        waves = both_ways(shape.kernel).unsqueeze(1)
        with torch.no_grad():
            self.encoder.conv1d.weight.copy_(waves)
            self.decoder.weight.copy_(waves)

    def forward(self, mixtures: Tensor) -> Tensor:
        """(n, n_samples) -> (n, SOURCES, n_samples); at least kernel samples."""
        frames = self.encoder(mixtures)
        masked = self.masknet(frames) * frames
        sources = self.decoder(masked.transpose(0, 1).flatten(0, 1)).reshape(len(mixtures), SOURCES, -1)
        return nn.functional.pad(sources, (0, mixtures.shape[-1] - sources.shape[-1]))

    def separate(self, mixtures: Tensor) -> Tensor:
        """Mixtures (n, n_samples) -> their sources (n, SOURCES, n_samples)."""
        return self(mixtures)

    def guess(self, mixtures: Tensor) -> Tensor:
        """Mixtures (n, n_samples) -> spectra of their sources (n, SOURCES, 2, N_BINS, n_frames)."""
        return to_spectra(self(mixtures).float())

    def save(self, folder: Path) -> None:
        """Write it in speechbrain's pretrained format.

        Raises:
            OSError: The folder can't be made, or written to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HYPERPARAMETERS).write_text(describe(self.shape), encoding="utf-8")
        for name in NETWORKS:  # what is learnt; tables of sines, as large again, are made anew
            torch.save(dict(getattr(self, name).named_parameters()), folder / f"{name}.ckpt")


def describe(shape: SepFormerShape) -> str:
    """What hyperparams.yaml says of a SepFormer."""
    return DESCRIPTION.format(shape=shape, channels=2 * shape.kernel, stride=shape.kernel // 2)


def both_ways(kernel: int) -> Tensor:
    """Waves of all frequencies under a window, upright and upside down: (2 * kernel, kernel).

    The encoder keeps what is positive, and frames half a kernel apart add up to all: with these waves, encoder and
    decoder give the samples back, so a network that has learnt nothing has only the masks to learn.
    """
    spectrum = torch.fft.fft(torch.eye(kernel), norm="ortho")
    waves = (spectrum.real - spectrum.imag) * torch.hann_window(kernel).sqrt()
    return torch.cat([waves, -waves])
