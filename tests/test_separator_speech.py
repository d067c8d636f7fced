"""models/separator/speech.py, and the descriptions that it reads."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from cascade.types import Samples

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(ROOT / "models" / "separator"))

import corpus  # noqa: E402
import mixing  # noqa: E402
import mixtures  # noqa: E402
import speech  # noqa: E402

SENTENCES = speech.read_sentences()
VOICES = mixing.read_description(speech.VOICES_FILE, corpus.Voices)


def hum(text: str, voice: str, speed: float) -> Samples:
    """Half a second of a tone."""
    return np.sin(np.arange(8000, dtype=np.float32) / 10)


def test_there_are_at_least_three_hundred_speakers_of_their_own() -> None:
    """None of them is in the gate's bank, so that both can be trained on together."""
    names = {speaker.name for split in corpus.SPLITS for speaker in VOICES.of(split)}
    others = mixing.read_description(corpus.VOICES_DESCRIPTION, corpus.Voices)
    assert len(names) >= 300
    assert names.isdisjoint(speaker.name for split in corpus.SPLITS for speaker in others.of(split))


def test_every_speaker_is_a_blend_and_none_is_mostly_one_voice() -> None:
    shares = [max(speaker.bases.values()) for split in corpus.SPLITS for speaker in VOICES.of(split)]
    assert max(shares) <= 0.7


def test_no_base_voice_changes_its_split_between_the_two_banks() -> None:
    others = mixing.read_description(corpus.VOICES_DESCRIPTION, corpus.Voices)
    for split in corpus.SPLITS:
        here = {base for speaker in VOICES.of(split) for base in speaker.bases}
        elsewhere = [speaker for other in corpus.SPLITS if other != split for speaker in others.of(other)]
        assert here.isdisjoint(base for speaker in elsewhere for base in speaker.bases)


def test_voices_of_test_recordings_are_known() -> None:
    bases = {base for split in corpus.SPLITS for speaker in VOICES.of(split) for base in speaker.bases}
    assert bases >= mixtures.HEARD_ALONE


def test_sentences_hold_no_slot_and_no_text_is_in_two_splits() -> None:
    """That none is in two splits, Sentences checks by itself."""
    texts = [text for split in corpus.SPLITS for text in SENTENCES.of(split).long]
    assert not [text for text in texts if re.search(r"[{}\[\]]", text)]
    assert len(SENTENCES.train.long) > 700


def test_a_pattern_is_filled_differently_each_time_and_equally_each_run() -> None:
    slots = {"name": ["Ann", "Bob", "Cem"]}
    filled = [speech.fill("{name} met {name}.", slots, number) for number in range(20)]
    assert filled == [speech.fill("{name} met {name}.", slots, number) for number in range(20)]
    assert len(set(filled)) > 3
    assert all(text.split()[0] != text.split()[-1].rstrip(".") for text in filled)


def test_a_sentence_begins_with_a_capital() -> None:
    assert speech.fill("{thing} fell.", {"thing": ["the lamp"]}, 0) == "The lamp fell."


def test_an_unknown_slot_is_named() -> None:
    with pytest.raises(ValueError, match="no slot nmae"):
        speech.fill("{nmae} fell.", {"name": ["Ann"]}, 0)


def test_speaking_goes_round_by_round_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []

    def speak(text: str, voice: str, speed: float) -> Samples:
        said.append(text)
        return hum(text, voice, speed)

    arguments = ["--kokoro", str(tmp_path), "--out", str(tmp_path), "--rounds", "1"]
    assert speech.main(arguments, lambda kokoro, threads: speak) == 0
    assert len(said) == 6 * sum(len(VOICES.of(split)) for split in corpus.SPLITS)
    assert speech.main(arguments, lambda kokoro, threads: speak) == 0
    assert len(said) == 6 * sum(len(VOICES.of(split)) for split in corpus.SPLITS)
    assert "valid: round 1 of 1" in capsys.readouterr().out


def test_a_missing_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(kokoro: Path, threads: int) -> corpus.ThriftyKokoro:
        raise FileNotFoundError("no model there")

    assert speech.main(["--kokoro", str(tmp_path), "--out", str(tmp_path)], fail) == 2
    assert capsys.readouterr().err == "speech.py: no model there\n"
