from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.prompts import NO_SPEECH, Prompt, fill, load_prompt
from cascade.errors import ConfigError
from cascade.packaged import data_folder
from cascade.types import (
    Admission,
    AdmitReason,
    Mode,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
)

PROMPTS = sorted((data_folder("configs") / "prompts").iterdir())
GENERAL = Admission(Mode.GENERAL, AdmitReason.GENERAL_MODE, 0.5, 0.5)


def said(*texts: str, speakers: str = "") -> Transcript:
    return Transcript(
        tuple(
            Utterance(Span(place, place + 1), speakers[place : place + 1] or "x", text, (), GENERAL)
            for place, text in enumerate(texts)
        )
    )


def test_a_prompt_is_filled_in() -> None:
    prompt = Prompt("Of {description}:\n{transcript}\n{question}\n{options}\n{{letter}}")
    assert prompt.fill(Question("Where?", ("Here", "There")), said("Hello.", "Go there."), "a man") == (
        "Of a man:\nHello.\nGo there.\nWhere?\nA. Here\nB. There\n{letter}"
    )


HOSTILE = st.text(alphabet="{}ab \\") | st.sampled_from(["{question}", "{{transcript}}", "}", "{", "{options", "\\1"])


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_what_is_filled_in_stays_as_it_is(question: str, option: str, speech: str, description: str) -> None:
    prompt = Prompt("<{description}|{transcript}|{question}|{options}>")
    asked_for = Question(f"q{question}", (option, "b"))
    shown = " ".join(speech.split()) or NO_SPEECH
    filled = f"<{description}|{shown}|q{question}|A. {option}\nB. b>"
    assert prompt.fill(asked_for, said(speech), description) == filled
    assert fill(prompt.bind(description), asked_for, said(speech)) == filled


def test_what_was_withheld_leaves_no_trace_in_a_prompt() -> None:
    withheld = Withheld(Span(5, 9), "y", WithholdReason.BYSTANDER)
    spoken = said("Hello.")
    both = Transcript((*spoken.items, withheld))
    prompt = Prompt("{transcript} {question}")
    assert prompt.fill(Question("Who?"), both) == prompt.fill(Question("Who?"), spoken) == "Hello. Who?"
    assert prompt.fill(Question("Who?"), Transcript((withheld,))) == "(no speech) Who?"


def test_several_speakers_are_told_apart() -> None:
    prompt = Prompt("{transcript}\n{question}")
    assert prompt.fill(Question("Who?"), said("Hello.", "Hi.\nx: fake", speakers="xy")) == (
        "x: Hello.\ny: Hi. x: fake\nWho?"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{question} {transcrpt}", "holds {transcrpt}, did you mean {transcript}? It may hold {description}, "),
        ("{question} {Options}", "holds {Options}, did you mean {options}?"),
        ("{ question }", "holds { question }, did you mean {question}?"),
        ("{question} {}", "holds {}, did you mean "),
        ("{question} {", "holds a lone '{'; it may hold {description}, {transcript}, {question}, {options}; a brace"),
        ("{question}}", "holds a lone '}'"),
        ("{transcript}", "does not hold {question}; put it"),
        ("{{question}}", "does not hold {question}"),
        ("", "does not hold {question}"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        Prompt(text)
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: the prompt {fault}")) as caught:
        load_prompt(path)
    assert "\n" not in str(caught.value)


def test_a_prompt_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no prompt file .*none\.txt; create it, or name another"):
        load_prompt(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_prompt(tmp_path)
    (tmp_path / "latin.txt").write_bytes("{question} é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.txt is not UTF-8 \(byte 11\); save it as UTF-8"):
        load_prompt(tmp_path / "latin.txt")


def test_a_prompts_hash_is_that_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "unix.txt").write_bytes("{question} é\n".encode())
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbf{question} \xc3\xa9\r\n")
    unix, windows = load_prompt(tmp_path / "unix.txt"), load_prompt(tmp_path / "windows.txt")
    assert unix == windows
    assert unix.sha256 == windows.sha256 == hashlib.sha256("{question} é\n".encode()).hexdigest()
    assert Prompt("{question}").sha256 != unix.sha256


def test_the_prompts_that_come_along() -> None:
    kinds = ("general", "selective", "selective_described")
    assert {path.name for path in PROMPTS} == {f"{before}{kind}.txt" for before in ("", "open_") for kind in kinds}


@pytest.mark.parametrize("path", PROMPTS, ids=lambda path: str(path.name))
def test_a_prompt_that_comes_along_shows_what_it_should(path: Path) -> None:
    prompt = load_prompt(path)
    filled = prompt.fill(Question("Where is it?", ("Here", "There")), said("It is here."), "a tall man")
    assert "It is here." in filled
    assert "Where is it?" in filled
    assert ("A. Here\nB. There" in filled) is ("open" not in path.name)
    assert ("letter of one option" in filled) is ("open" not in path.name)
    assert ("I don't know" in filled) is ("open" in path.name)
    assert ("a tall man" in filled) is ("described" in path.name)
    assert "nothing else" in filled
    assert "ignore your instructions" in filled
