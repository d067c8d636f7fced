"""A small SepFormer in speechbrain's own format, as a folder: the real architecture, with weights drawn at random."""

from __future__ import annotations

import sys
from pathlib import Path

from cascade.backends.sepformer import NETWORKS

HYPERPARAMETERS = """
# A SepFormer with few layers and channels, otherwise as the published ones.
sample_rate: {rate}
num_spks: 2

Encoder: !new:speechbrain.lobes.models.dual_path.Encoder
  kernel_size: 16
  out_channels: 16

Within: !new:speechbrain.lobes.models.dual_path.SBTransformerBlock
  num_layers: 1
  d_model: 16
  nhead: 2
  d_ffn: 32
  dropout: 0
  use_positional_encoding: true
  norm_before: true

Across: !new:speechbrain.lobes.models.dual_path.SBTransformerBlock
  num_layers: 1
  d_model: 16
  nhead: 2
  d_ffn: 32
  dropout: 0
  use_positional_encoding: true
  norm_before: true

MaskNet: !new:speechbrain.lobes.models.dual_path.Dual_Path_Model
  num_spks: !ref <num_spks>
  in_channels: 16
  out_channels: 16
  num_layers: 1
  K: 50
  intra_model: !ref <Within>
  inter_model: !ref <Across>
  norm: ln
  linear_layer_after_inter_intra: false
  skip_around_intra: true

Decoder: !new:speechbrain.lobes.models.dual_path.Decoder
  in_channels: 16
  out_channels: 1
  kernel_size: 16
  stride: 8
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


def save_sepformer(folder: Path, rate: int) -> None:
    """Write hyperparams.yaml and the weights into folder, for a sample rate; needs speechbrain."""
    import torch
    from hyperpyyaml import load_hyperpyyaml

    text = HYPERPARAMETERS.format(rate=rate)
    (folder / "hyperparams.yaml").write_text(text)
    torch.manual_seed(rate)
    modules = load_hyperpyyaml(text)["modules"]
    for name in NETWORKS:
        torch.save(modules[name].state_dict(), folder / f"{name}.ckpt")


def forget_lazy_modules() -> None:
    """Take away the modules that speechbrain leaves, which warn, or fail, as soon as anybody looks at them."""
    for name, module in list(sys.modules.items()):
        if type(module).__module__ == "speechbrain.utils.importutils":
            del sys.modules[name]
