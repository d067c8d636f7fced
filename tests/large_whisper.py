"""A model for CTranslate2 with the outward form of Whisper large-v3 (128 mel bands, many languages), hardly any inside.

Its weights are drawn at random, so it says nothing sensible; what counts is that it is loaded and runs as the large one
would. The vocabulary is that of tiny.en, filled up to the size of the large one's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.backends.faster_whisper import model_folder

STATE, MELS, LAYERS, HEADS = 16, 128, 2, 2

VOCABULARY = 51866
"""Tokens of large-v3."""

END_OF_TEXT = 50256
"""Its number in English-only models. The others have an empty token there, by which CTranslate2 tells them apart."""


def save_model(folder: Path) -> None:
    """Write the model's files into folder; needs faster-whisper and the package with tiny.en."""
    from ctranslate2.specs import WhisperSpec
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(multilingual((model_folder("tiny.en") / "tokenizer.json").read_text("utf-8")))
    spare = VOCABULARY - tokenizer.get_vocab_size() - 1
    tokenizer.add_special_tokens(["<|yue|>", *(f"<|spare{number}|>" for number in range(spare))])
    tokens = [str(tokenizer.id_to_token(index)) for index in range(VOCABULARY)]
    spec = WhisperSpec(LAYERS, HEADS, LAYERS, HEADS)
    random = np.random.default_rng(0)
    for name, value in list(spec.variables(ordered=True)):
        if value is None:
            assign(spec, name, weights(name, random))
    for part, length in ((spec.encoder, 1500), (spec.decoder, 448)):
        part.position_encodings.encodings = random.normal(0, 0.1, (length, STATE)).astype(np.float32)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.register_vocabulary(tokens)
    spec.config.lang_ids = [tokenizer.token_to_id(f"<|{code}|>") for code in ("en", "de", "yue")]
    spec.config.alignment_heads = [[1, 0], [1, 1]]
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], []
    folder.mkdir(parents=True, exist_ok=True)
    spec.validate()
    spec.save(str(folder))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": MELS}))


def multilingual(tokenizer: str) -> str:
    """Return an English-only model's tokenizer.json with the empty token put before the end of text."""
    parts = json.loads(tokenizer)
    vocabulary = {token: index + (index >= END_OF_TEXT) for token, index in parts["model"]["vocab"].items()}
    parts["model"]["vocab"] = vocabulary | {"": END_OF_TEXT}
    for token in parts["added_tokens"]:
        token["id"] += token["id"] >= END_OF_TEXT
    return json.dumps(parts)


def assign(spec: Any, name: str, value: NDArray[np.float32]) -> None:
    """Set the weight of a name such as decoder/layer_0/ffn/linear_0/weight."""
    *path, last = name.split("/")
    for part in path:
        head, _, index = part.rpartition("_")
        spec = getattr(spec, part, None) or getattr(spec, head)[int(index)]
    setattr(spec, last, value)


def weights(name: str, random: np.random.Generator) -> NDArray[np.float32]:
    """Return random weights of the shape that a name stands for."""
    shapes = {
        "conv1/weight": (STATE, MELS, 3),
        "conv2/weight": (STATE, STATE, 3),
        "embeddings/weight": (VOCABULARY, STATE),
        "projection/weight": (VOCABULARY, STATE),
        "self_attention/linear_0/weight": (3 * STATE, STATE),
        "/attention/linear_1/weight": (2 * STATE, STATE),
        "ffn/linear_0/weight": (4 * STATE, STATE),
        "ffn/linear_1/weight": (STATE, 4 * STATE),
        "weight": (STATE, STATE),
        "gamma": (STATE,),
        "beta": (STATE,),
    }
    shape = next(shape for ending, shape in shapes.items() if name.endswith(ending))
    return random.normal(0, 0.3, shape).astype(np.float32)
