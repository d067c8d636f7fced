"""What a chat model is told: a prompt's text, with the question and the transcript filled in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, final

from cascade.answering.questions import LETTERS
from cascade.errors import ConfigError
from cascade.types import Question, Transcript

PLACEHOLDERS: Final = ("description", "transcript", "question", "options")
"""What a prompt may hold in braces."""

NO_SPEECH: Final = "(no speech)"
"""What stands for a transcript in which nobody says anything."""

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")


@final
@dataclass(frozen=True, slots=True)
class Prompt:
    """What a chat model is told: a text that names its PLACEHOLDERS in braces; a brace that is meant is doubled.

    Raises:
        ConfigError: Something else stands in braces, a brace stands alone, or there is no {question}.
    """

    text: str

    def __post_init__(self) -> None:
        names = [match[1] for match in _BRACES.finditer(self.text) if match[1] is not None]
        known = f"it may hold {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}; a brace that is meant is doubled"
        for name in names:
            if name not in PLACEHOLDERS:
                close = get_close_matches(name, PLACEHOLDERS, 1, cutoff=0.0)[0]
                raise ConfigError(f"the prompt holds {{{name[:30]}}}, did you mean {{{close}}}? {known.capitalize()}")
        if lone := re.search(r"[{}]", _BRACES.sub("", self.text)):
            raise ConfigError(f"the prompt holds a lone '{lone[0]}'; {known}")
        if "question" not in names:
            raise ConfigError("the prompt does not hold {question}; put it where the question belongs")

    @property
    def sha256(self) -> str:
        """The hash of the text in UTF-8, which tells one prompt from another in results."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def bind(self, description: str) -> str:
        """Return the text with the main speaker's description filled in, ready for `fill`; its braces stay text."""
        return put(self.text, "description", description)

    def fill(self, question: Question, transcript: Transcript, description: str = "") -> str:
        """Return what the model is told about this question; the four values are put in as they are."""
        return fill(self.bind(description), question, transcript)


def put(prompt: str, placeholder: str, value: str) -> str:
    """Return a prompt's text with one of its PLACEHOLDERS filled in; braces of the value stay text."""
    escaped = value.replace("{", "{{").replace("}", "}}")
    return _BRACES.sub(lambda match: escaped if match[1] == placeholder else match[0], prompt)


def load_prompt(path: Path) -> Prompt:
    """Read a prompt from a UTF-8 file.

    Raises:
        ConfigError: The file is missing or not UTF-8, or its text is no Prompt.
    """
    try:
        return Prompt(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no prompt file {path}; create it, or name another") from None
    except OSError as error:
        raise ConfigError(f"the prompt file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt file {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def fill(prompt: str, question: Question, transcript: Transcript) -> str:
    """Put question, options and transcript into a prompt's text in a single pass.

    Args:
        prompt: What `Prompt.bind` returns; a {description} that is still in it gives nothing.
        question: Its text, and its options as lines such as "A. text".
        transcript: Its admitted text, a line for each utterance, labelled where several speak; what was withheld leaves
            no trace.
    """
    values: Mapping[str, str] = {
        "transcript": _spoken(transcript),
        "question": question.text,
        "options": "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, question.options, strict=False)),
    }
    return _BRACES.sub(lambda match: match[0][0] if match[1] is None else values.get(match[1], ""), prompt)


def _spoken(transcript: Transcript) -> str:
    """Return the admitted utterances that have a text, a line each, with their speaker where there is more than one."""
    spoken = [(each.speaker, " ".join(each.text.split())) for each in transcript.utterances if each.text.strip()]
    several = len({speaker for speaker, _ in spoken}) > 1
    return "\n".join(f"{speaker}: {text}" if several else text for speaker, text in spoken) or NO_SPEECH
