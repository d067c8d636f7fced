from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.diarization import UNKNOWN
from cascade.pipeline import Decision
from cascade.rendering import (
    CUE_CHARACTERS,
    CUE_MS,
    SCRAP,
    Gap,
    cues,
    names_only,
    one_line,
    readable,
    rttm,
    srt,
    transcript_lines,
    vtt,
)
from cascade.types import (
    Admission,
    AdmitReason,
    Mode,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    Word,
    covered,
    seconds,
)

ADMITTED = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.52)
BYSTANDER, TOO_SHORT, UNDECIDED = WithholdReason.BYSTANDER, WithholdReason.TOO_SHORT, WithholdReason.UNDECIDED


def span(start_s: float, end_s: float) -> Span:
    return Span(seconds(start_s), seconds(end_s))


def said(start_s: float, end_s: float, text: str, speaker: str = "main") -> Utterance:
    """An utterance whose words share its time."""
    words = text.split()
    edges = [start_s + (end_s - start_s) * n / max(1, len(words)) for n in range(len(words) + 1)]
    timed = tuple(Word(span(edges[n], edges[n + 1]), word, 0.9) for n, word in enumerate(words))
    return Utterance(span(start_s, end_s), speaker, text, timed, ADMITTED)


def kept_back(start_s: float, end_s: float, reason: WithholdReason = BYSTANDER, speaker: str = "speaker_2") -> Withheld:
    return Withheld(span(start_s, end_s), speaker, reason, 0.2)


def lines(*items: Utterance | Withheld) -> list[str]:
    return list(transcript_lines(Transcript.of(items)))


# --- the transcript on a screen ---------------------------------------------------------------------------------------


def test_a_transcript_is_shown_with_times_labels_and_placeholders() -> None:
    assert lines(said(0.3, 8.2, "Hey, it's me."), kept_back(12.6, 15.6)) == [
        "00:00.3  main  Hey, it's me.",
        "00:12.6        [bystander, 3.0 s withheld]",
    ]


def test_labels_stand_in_one_column() -> None:
    shown = lines(said(0, 1, "Yes.", "main"), said(1, 2, "No.", "speaker_2"))
    assert shown == ["00:00.0  main       Yes.", "00:01.0  speaker_2  No."]


@pytest.mark.parametrize(
    ("at_s", "shown"), [(59.94, "00:59.9"), (59.96, "01:00.0"), (3599.96, "1:00:00.0"), (3725.04, "1:02:05.0")]
)
def test_times_carry_over(at_s: float, shown: str) -> None:
    assert lines(said(at_s, at_s + 1, "Hm.")) == [f"{shown}  main  Hm."]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (WithholdReason.BYSTANDER, "bystander"),
        (WithholdReason.UNDECIDED, "undecided"),
        (WithholdReason.TOO_SHORT, "too short"),
        (WithholdReason.OVERLAPPED, "overlapped"),
        (WithholdReason.UNVERIFIED, "unverified"),
        (WithholdReason.NO_EMBEDDING, "no embedding"),
        (WithholdReason.GATE_ERROR, "gate error"),
    ],
)
def test_every_reason_has_words(reason: WithholdReason, word: str) -> None:
    assert lines(kept_back(0, 2, reason)) == [f"00:00.0        [{word}, 2.0 s withheld]"]


def test_neighbouring_withheld_turns_are_one_without_the_pause_between() -> None:
    assert lines(kept_back(0, 1), kept_back(1.4, 3)) == ["00:00.0        [bystander, 2.6 s withheld]"]


def test_turns_that_overlap_are_counted_once() -> None:
    assert lines(kept_back(0, 2), kept_back(1, 1.5), kept_back(1, 3)) == ["00:00.0        [bystander, 3.0 s withheld]"]


def test_what_was_withheld_twice_at_one_time_is_told_once_also_where_something_was_admitted() -> None:
    """The background by itself, and what the mixture tells of the same voice."""
    background = kept_back(3, 9, speaker="background")
    assert lines(background, said(4, 6, "Yes."), kept_back(6, 10), kept_back(7, 9.5, WithholdReason.UNVERIFIED)) == [
        "00:03.0        [bystander, 6.0 s withheld]",
        "00:04.0  main  Yes.",
        "00:09.0        [bystander, 1.0 s withheld]",
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.booleans()), max_size=8))
def test_no_time_is_told_twice_and_none_is_left_out(parts: list[tuple[int, int, bool]]) -> None:
    items = [
        said(start / 2, (start + lasts) / 2, "Yes.") if speaks else kept_back(start / 2, (start + lasts) / 2)
        for start, lasts, speaks in parts
    ]
    shown = list(readable(Transcript.of(items)))
    gaps = [item for item in shown if isinstance(item, Gap)]
    assert sum(gap.withheld for gap in gaps) == covered(item.span for item in items if isinstance(item, Withheld))
    assert [item.span.start for item in shown] == sorted(item.span.start for item in shown)


def test_distant_turns_other_reasons_and_what_is_admitted_between_keep_turns_apart() -> None:
    assert len(lines(kept_back(0, 1), kept_back(1.5, 3))) == 2
    assert len(lines(kept_back(0, 1), kept_back(1, 3, UNDECIDED))) == 2
    assert len(lines(kept_back(0, 1), said(1, 1.2, "Yes."), kept_back(1.2, 3))) == 3


def test_scraps_are_told_with_their_neighbour() -> None:
    scrap = kept_back(1.1, 1.3, TOO_SHORT)
    assert lines(kept_back(0, 1), scrap) == ["00:00.0        [bystander, 1.2 s withheld]"]
    assert lines(scrap, kept_back(1.4, 2)) == ["00:01.1        [bystander, 0.8 s withheld]"]


def test_lone_scraps_are_not_told_but_short_words_of_a_known_bystander_are() -> None:
    assert lines(kept_back(1, 1.1, TOO_SHORT), kept_back(3, 3.3, BYSTANDER, UNKNOWN)) == []
    assert lines(kept_back(1, 1.4)) == ["00:01.0        [bystander, 0.4 s withheld]"]


def test_text_cannot_break_a_line_or_a_terminal() -> None:
    assert lines(said(0, 1, "a\nb\u2028c\x1b[31m\x00")) == ["00:00.0  main  a b c[31m"]


@pytest.mark.parametrize("sign", [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\ufeff\x9b\x07"])
def test_text_cannot_be_made_to_read_as_another(sign: str) -> None:
    assert one_line(f"pay{sign} Anna") == "pay Anna"
    assert lines(said(0, 1, f"pay{sign}ing {sign}")) == ["00:00.0  main  paying"]
    assert rttm(f"a{sign}b", [Decision(span(0, 1), "main", True, "", 0, 0)]).startswith("SPEAKER ab 1 ")


@pytest.mark.parametrize("text", ["می\u200cخواهم", "👩\u200d💻", "क्\u200dष"])
def test_joiners_stay_in_the_words_that_need_them(text: str) -> None:
    assert one_line(text) == text


def test_an_empty_transcript_shows_nothing() -> None:
    assert lines() == []
    assert srt(Transcript()) == ""
    assert vtt(Transcript()) == "WEBVTT\n"
    assert rttm("talk", []) == ""


# --- cues: read back by a grammar of their own ------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    start_ms: int
    end_ms: int
    speaker: str
    text: str


def milliseconds(hours: str, minutes: str, second: str, fraction: str) -> int:
    assert int(minutes) < 60
    assert int(second) < 60
    return ((int(hours) * 60 + int(minutes)) * 60 + int(second)) * 1000 + int(fraction)


def read_srt(text: str) -> list[Read]:
    """Parse SubRip strictly: blocks of number, times and one line of text, apart by one empty line."""
    times = re.compile(r"(\d\d+):(\d\d):(\d\d),(\d{3}) --> (\d\d+):(\d\d):(\d\d),(\d{3})")
    read = []
    blocks = text.removesuffix("\n").split("\n\n") if text else []
    for number, block in enumerate(blocks, start=1):
        head, stamp, content = block.split("\n")
        assert head == str(number)
        matched = times.fullmatch(stamp)
        assert matched is not None
        assert "-->" not in content
        read.append(Read(milliseconds(*matched.groups()[:4]), milliseconds(*matched.groups()[4:]), "", content))
    return read


def read_vtt(text: str) -> list[Read]:
    """Parse WebVTT strictly (w3.org/TR/webvtt1): header, then blocks of times and one line of cue text."""
    times = re.compile(r"(\d\d+):(\d\d):(\d\d)\.(\d{3}) --> (\d\d+):(\d\d):(\d\d)\.(\d{3})")
    content = re.compile(r"(?:<v ((?:[^&<>\n]|&(?:amp|lt|gt);)+)>)?((?:[^&<>\n]|&(?:amp|lt|gt);)+)")
    header, *blocks = text.removesuffix("\n").split("\n\n")
    assert header == "WEBVTT"
    read = []
    for block in blocks:
        stamp, line = block.split("\n")
        matched, cue = times.fullmatch(stamp), content.fullmatch(line)
        assert matched is not None
        assert cue is not None, line
        read.append(
            Read(
                milliseconds(*matched.groups()[:4]),
                milliseconds(*matched.groups()[4:]),
                unescaped(cue.group(1) or ""),
                unescaped(cue.group(2)),
            )
        )
    return read


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


EXAMPLE = Transcript.of([said(0.3, 2.5, "Hey, it's me."), kept_back(3, 6.2), said(6.5, 7, "So?")])


def test_srt_and_vtt_hold_what_was_said_and_the_placeholders() -> None:
    texts = ["Hey, it's me.", "[bystander, 3.2 s withheld]", "So?"]
    assert [(cue.start_ms, cue.end_ms) for cue in read_srt(srt(EXAMPLE))] == [(300, 2500), (3000, 6200), (6500, 7000)]
    assert [cue.text for cue in read_srt(srt(EXAMPLE))] == texts
    assert [cue.text for cue in read_vtt(vtt(EXAMPLE))] == texts
    assert [cue.speaker for cue in read_vtt(vtt(EXAMPLE))] == ["main", "", "main"]


def test_srt_names_the_speakers_where_there_are_several() -> None:
    both = Transcript.of([said(0, 1, "Yes."), said(1, 2, "No.", "speaker_2"), kept_back(3, 5)])
    assert [cue.text for cue in read_srt(srt(both))] == [
        "main: Yes.",
        "speaker_2: No.",
        "[bystander, 2.0 s withheld]",
    ]


def test_signs_with_a_meaning_to_players_are_escaped() -> None:
    odd = Transcript.of([said(0, 1, "a --> b <i>c</i> & &lt;", "<v x>")])
    assert [(cue.speaker, cue.text) for cue in read_vtt(vtt(odd))] == [("<v x>", "a --> b <i>c</i> & &lt;")]
    assert [cue.text for cue in read_srt(srt(odd))] == ["a → b <i>c</i> & &lt;"]


def test_a_long_utterance_is_split_at_its_words_and_sentences() -> None:
    text = "The tickets were eighty dollars each for everyone. You can pay me back later, there is no hurry at all."
    split = cues(Transcript.of([said(10, 20, text)]))
    assert [cue.text for cue in split] == [
        "The tickets were eighty dollars each for everyone.",
        "You can pay me back later, there is no hurry at all.",
    ]
    assert split[0].start_ms == 10_000
    assert split[1].end_ms == 20_000
    assert split[0].end_ms == split[1].start_ms


def test_a_text_without_spaces_is_split_as_its_words_are_and_gains_none() -> None:
    text = "我们明天去看电影吧好不好" * 12
    words = tuple(Word(span(n, n + 1), character, 0.9) for n, character in enumerate(text))
    split = cues(Transcript((Utterance(span(0, len(text)), "main", text, words, ADMITTED),)))
    assert "".join(cue.text for cue in split) == text
    assert all(cue.end_ms - cue.start_ms <= CUE_MS for cue in split)


@pytest.mark.parametrize("words", [[], ["else"], ["word0"], ["word59"]])
def test_where_words_are_missing_or_others_the_text_shares_the_time(words: list[str]) -> None:
    text = " ".join(f"word{n}" for n in range(60))
    timed = tuple(Word(span(0, 20), word, 0.9) for word in words)
    split = cues(Transcript((Utterance(span(0, 20), "main", text, timed, ADMITTED),)))
    assert " ".join(cue.text for cue in split) == text
    assert len(split) > 3
    assert (split[0].start_ms, split[-1].end_ms) == (0, 20_000)


MOMENTS = st.integers(0, 400_000)
SPANS = st.tuples(MOMENTS, MOMENTS).map(lambda pair: Span(min(pair), max(pair)))
TEXTS = st.text(st.characters(exclude_categories=()), max_size=250)
LABELS = st.sampled_from(["main", "speaker_2", "a <b> & c"])


@st.composite
def utterances(draw: st.DrawFn) -> Utterance:
    """An utterance with words at any times, in any order, of any length, that may or may not be its text's."""
    text = draw(TEXTS)
    words = draw(st.lists(st.tuples(SPANS, st.sampled_from([*text.split(), "other"])), max_size=40))
    if draw(st.booleans()):
        words = [(draw(SPANS), word) for word in text.split()]
    timed = tuple(Word(at, word, 0.5) for at, word in words)
    return Utterance(draw(SPANS), draw(LABELS), text, timed, ADMITTED)


WITHHELD = st.builds(Withheld, SPANS, st.sampled_from(["speaker_2", UNKNOWN]), st.sampled_from(WithholdReason))
TRANSCRIPTS = st.lists(utterances() | WITHHELD, max_size=12).map(Transcript.of)


@given(TRANSCRIPTS)
def test_cues_last_are_in_order_and_never_overlap_within_a_speaker(transcript: Transcript) -> None:
    found = cues(transcript)
    assert all(cue.start_ms < cue.end_ms for cue in found)
    assert [cue.start_ms for cue in found] == sorted(cue.start_ms for cue in found)
    for speaker in {cue.speaker for cue in found}:
        own = [cue for cue in found if cue.speaker == speaker]
        assert all(before.end_ms <= after.start_ms for before, after in pairwise(own))


@given(TRANSCRIPTS)
def test_cues_are_readable(transcript: Transcript) -> None:
    for cue in cues(transcript):
        if cue.speaker:
            assert cue.end_ms - cue.start_ms <= CUE_MS
            assert len(cue.text) <= CUE_CHARACTERS or " " not in cue.text


@given(TRANSCRIPTS)
def test_srt_and_vtt_can_always_be_read_back(transcript: Transcript) -> None:
    expected = [(cue.start_ms, cue.end_ms) for cue in cues(transcript)]
    assert [(cue.start_ms, cue.end_ms) for cue in read_srt(srt(transcript))] == expected
    read = read_vtt(vtt(transcript))
    assert [(cue.start_ms, cue.end_ms) for cue in read] == expected
    assert [cue.text for cue in read] == [cue.text for cue in cues(transcript)]


@given(TRANSCRIPTS)
def test_no_word_is_lost_between_transcript_and_cues(transcript: Transcript) -> None:
    # As bags of characters, since the cues of several speakers are mixed in time.
    said_ = "".join(one_line(item.text) for item in transcript.utterances)
    shown = "".join(cue.text for cue in cues(transcript) if cue.speaker)
    assert sorted(said_.replace(" ", "")) == sorted(shown.replace(" ", ""))


@st.composite
def turns_apart(draw: st.DrawFn) -> Transcript:
    """Withheld turns one after the other, with or without pauses."""
    at, turns = 0, []
    for pause, length in draw(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40_000)), max_size=12)):
        turns.append(draw(st.builds(Withheld, st.just(Span(at + pause, at + pause + length)), LABELS | st.just(UNKNOWN),
                                    st.sampled_from(WithholdReason))))  # fmt: skip
        at = turns[-1].span.end
    return Transcript.of(turns)


@given(turns_apart())
def test_nothing_but_scraps_is_left_out_and_nothing_is_told_twice(transcript: Transcript) -> None:
    placeholders = [re.findall(r"([\d.]+) s withheld", line)[0] for line in transcript_lines(transcript)]
    told, withheld = sum(map(float, placeholders)), sum(len(item.span) for item in transcript.withheld)
    scraps = sum(len(item.span) for item in transcript.withheld if len(item.span) < SCRAP)
    rounding = 0.0501 * len(placeholders)
    assert (withheld - scraps) / 16_000 - rounding <= told <= withheld / 16_000 + rounding


@given(st.text(st.characters(exclude_categories=())))
def test_one_line_is_one_line_of_encodable_text(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    one_line(text).encode()
    assert one_line(one_line(text)) == one_line(text)


# --- RTTM -------------------------------------------------------------------------------------------------------------


def test_rttm_has_ten_columns_for_each_turn() -> None:
    turns = [
        Decision(span(0.3, 8.25), "main", True, "main_speaker", 0.8, 0.52),
        Decision(span(12.6, 15.6), "speaker_2", False, "bystander", 0.3, math.nan),
    ]
    rows = [line.split(" ") for line in rttm("my talk", turns).splitlines()]
    assert rows == [
        ["SPEAKER", "my_talk", "1", "0.300", "7.950", "<NA>", "<NA>", "main", "<NA>", "<NA>"],
        ["SPEAKER", "my_talk", "1", "12.600", "3.000", "<NA>", "<NA>", "speaker_2", "<NA>", "<NA>"],
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'/home/alice/a b/x.wav' is gone", "'x.wav' is gone"),
        ("'/x.wav' and '/home/y.wav'", "'x.wav' and 'y.wav'"),
        ("cannot write /home/alice/x.json: full", "cannot write x.json: full"),
        (r"'C:\Users\alice\x.wav' is gone", "'x.wav' is gone"),
        ("https://example.org/v1/chat and 10/4/x", "https://example.org/v1/chat and 10/4/x"),
        ("in 'folder/scene 0.wav'; and/or/both", "in 'folder/scene 0.wav'; and/or/both"),
    ],
)
def test_absolute_paths_lose_their_folders(text: str, shown: str) -> None:
    assert names_only(text) == shown
