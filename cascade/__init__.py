"""cascade: a streaming privacy filter for speech. Only what the main speaker said goes on.

from cascade import Cascade, load_config, open_audio

Importing it loads no model library; the names are fetched when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cascade.audio import open_audio
    from cascade.config import load_config
    from cascade.errors import CascadeError
    from cascade.pipeline import Cascade
    from cascade.types import Answer, AudioChunk, Mode, Question, Span, Transcript, Utterance, Withheld

_HOME = {
    "Cascade": "cascade.pipeline",
    "CascadeError": "cascade.errors",
    "load_config": "cascade.config",
    "open_audio": "cascade.audio",
    **dict.fromkeys(
        ("Answer", "AudioChunk", "Mode", "Question", "Span", "Transcript", "Utterance", "Withheld"), "cascade.types"
    ),
}

__all__ = [
    "Answer",
    "AudioChunk",
    "Cascade",
    "CascadeError",
    "Mode",
    "Question",
    "Span",
    "Transcript",
    "Utterance",
    "Withheld",
    "load_config",
    "open_audio",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'cascade' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
