"""Whisper tiny.en as a checkpoint of openai-whisper, made from the file for CTranslate2 that a package carries.

Both hold the same float16 tensors under other names. CTranslate2 keeps query, key and value of self-attention as rows
of one matrix, and key and value of cross-attention as rows of another; its key bias, which openai-whisper does not
have, is zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cascade.backends.faster_whisper import model_folder

DIMS = {
    "n_mels": 80,
    "n_audio_ctx": 1500,
    "n_audio_state": 384,
    "n_audio_head": 6,
    "n_audio_layer": 4,
    "n_vocab": 51864,
    "n_text_ctx": 448,
    "n_text_state": 384,
    "n_text_head": 6,
    "n_text_layer": 4,
}
"""Of tiny.en: whisper.model.ModelDimensions."""

Tensors = dict[str, NDArray[Any]]

FLOAT16 = 4
"""CTranslate2's number for the type (include/ctranslate2/types.h)."""

OUTER = {
    "decoder/embeddings/weight": "decoder.token_embedding.weight",
    "decoder/position_encodings/encodings": "decoder.positional_embedding",
    "decoder/layer_norm/gamma": "decoder.ln.weight",
    "decoder/layer_norm/beta": "decoder.ln.bias",
    "encoder/position_encodings/encodings": "encoder.positional_embedding",
    "encoder/layer_norm/gamma": "encoder.ln_post.weight",
    "encoder/layer_norm/beta": "encoder.ln_post.bias",
    **{f"encoder/conv{i}/{part}": f"encoder.conv{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
}

INNER = {
    "self_attention/layer_norm/gamma": "attn_ln.weight",
    "self_attention/layer_norm/beta": "attn_ln.bias",
    "attention/layer_norm/gamma": "cross_attn_ln.weight",
    "attention/layer_norm/beta": "cross_attn_ln.bias",
    "ffn/layer_norm/gamma": "mlp_ln.weight",
    "ffn/layer_norm/beta": "mlp_ln.bias",
    **{f"ffn/linear_{i}/{part}": f"mlp.{2 * i}.{part}" for i in (0, 1) for part in ("weight", "bias")},
}

ATTENTION = {
    "self_attention/linear_0": ("attn.query", "attn.key", "attn.value"),
    "self_attention/linear_1": ("attn.out",),
    "attention/linear_0": ("cross_attn.query",),
    "attention/linear_1": ("cross_attn.key", "cross_attn.value"),
    "attention/linear_2": ("cross_attn.out",),
}
"""Each of CTranslate2's matrices, and what its rows are."""


def save_checkpoint(path: Path) -> None:
    """Write tiny.en to path in the format that whisper.load_model reads; needs torch."""
    import torch

    with (model_folder("tiny.en") / "model.bin").open("rb") as stream:
        tensors = dict(read_tensors(stream))
    state = {name: torch.from_numpy(tensor.copy()) for name, tensor in renamed(tensors).items()}
    torch.save({"dims": DIMS, "model_state_dict": state}, path)


def read_tensors(stream: BinaryIO) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the float16 tensors of a model.bin of version 6 (ctranslate2/specs/model_spec.py writes them)."""

    def number(form: str) -> int:
        return int(struct.unpack(form, stream.read(struct.calcsize(form)))[0])

    def text() -> str:
        return stream.read(number("H"))[:-1].decode()

    assert number("I") == 6
    assert text() == "WhisperSpec"
    number("I")  # revision
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, data = number("B"), stream.read(number("I"))
        if kind == FLOAT16:
            yield name, np.frombuffer(data, np.float16).reshape(shape)


def renamed(tensors: Tensors) -> Tensors:
    """Return the tensors under openai-whisper's names, attention split into its parts."""
    state: Tensors = {}
    for name, tensor in tensors.items():
        if name in OUTER:
            state[OUTER[name]] = tensor
            continue
        side, layer, inner = name.split("/", 2)
        prefix = f"{side}.blocks.{layer.removeprefix('layer_')}."
        if inner in INNER:
            state[prefix + INNER[inner]] = tensor
            continue
        matrix, part = inner.rsplit("/", 1)
        rows = np.split(tensor, len(ATTENTION[matrix]))
        for target, values in zip(ATTENTION[matrix], rows, strict=True):
            if part == "bias" and target.endswith(".key"):
                assert not values.any()
            else:
                state[f"{prefix}{target}.{part}"] = values
    return state
