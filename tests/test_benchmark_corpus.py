"""benchmarks/corpus.py, the descriptions in benchmarks/corpus/, and what benchmarks/mixing.py has for it."""

import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.types import SAMPLE_RATE, Samples, Span, seconds

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import corpus  # noqa: E402
import mixing  # noqa: E402
import references  # noqa: E402

SENTENCES = mixing.read_description(corpus.SENTENCES_FILE, corpus.Sentences)
VOICES = mixing.read_description(corpus.VOICES_DESCRIPTION, corpus.Voices)
ROUNDS = 5

BASES = {
    "valid": {"af_jessica", "am_echo", "bf_alice", "bm_fable"},
    "test": {"af_sky", "af_river", "am_liam", "am_onyx", "bf_lily", "bm_lewis"},
}


def burst(seed: int, length: int) -> Samples:
    """Something with the rhythm of speech: noise that comes and goes four times a second, loud at both ends."""
    swell = 1.1 + np.cos(2 * np.pi * 4 * np.arange(length) / SAMPLE_RATE)
    return (0.05 * swell * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def fake_speak(text: str, voice: str, speed: float) -> Samples:
    """0.3 s a word, whoever speaks."""
    return burst(zlib.crc32(f"{voice} {text}".encode()), seconds(round(0.3 * len(text.split()) / speed, 2)))


def straight(room: mixing.Room, position: tuple[float, float], distance_m: float) -> mixing.Impulse:
    """No room at all."""
    return np.array([1.0])


def read_burst(line: corpus.Spoken) -> Samples:
    """What the fake bank holds."""
    return burst(zlib.crc32(line.file.encode()), seconds(line.seconds))


@cache
def fake_bank(rounds: int = ROUNDS) -> corpus.Bank:
    """All three splits as `speak` plans them, without a file."""
    lines: dict[str, list[corpus.Spoken]] = {}
    for split in corpus.SPLITS:
        for number in range(rounds):
            for line in corpus.plan_round(split, number, SENTENCES, VOICES, seed=0):
                length_s = round(0.3 * len(line.text.split()), 3)
                spoken = corpus.Spoken(line.speaker.name, split, line.text, length_s, line.file)
                lines.setdefault(line.speaker.name, []).append(spoken)
    return corpus.Bank(VOICES, lines, read_burst)


@cache
def drawn_settings(split: corpus.Split, count: int) -> tuple[corpus.Scenery, ...]:
    """Many scenes, without their sound."""
    return tuple(corpus.draw_setting(split, seed, fake_bank()) for seed in range(count))


def level_db(samples: Samples) -> float:
    return float(10 * np.log10(mixing.active_power(samples)))


def spans_of(setting: corpus.Scenery, speaker: str) -> list[Span]:
    return [sentence.span for sentence in setting.placed if sentence.speaker == speaker]


# --- the descriptions ---------------------------------------------------------------------------------------------


def test_there_is_enough_to_say_and_each_text_is_there_once() -> None:
    longs = [text for split in corpus.SPLITS for text in SENTENCES.of(split).long]
    shorts = [text for split in corpus.SPLITS for text in SENTENCES.of(split).short]
    assert len(longs) >= 360
    assert len(shorts) >= 60
    assert len({*longs, *shorts}) == len(longs) + len(shorts)
    assert all(4 <= len(text.split()) <= 25 for text in longs)
    assert all(len(text.split()) <= corpus.REACTION_WORDS for text in shorts)


def test_nobody_is_heard_in_two_splits() -> None:
    bases = {str(split): {base for speaker in VOICES.of(split) for base in speaker.bases} for split in corpus.SPLITS}
    assert {split: bases[split] for split in BASES} == BASES
    assert len(bases["train"]) == 18
    assert not bases["train"] & (BASES["valid"] | BASES["test"])
    alone = {
        str(split): {speaker.name for speaker in VOICES.of(split) if len(speaker.bases) == 1} for split in corpus.SPLITS
    }
    assert alone == bases
    assert [len(VOICES.of(split)) for split in corpus.SPLITS] == [18 + 40, 4 + 4, 6 + 6 + 9]
    assert all(0.85 <= speaker.speed <= 1.15 for split in corpus.SPLITS for speaker in VOICES.of(split))


def test_attacks_find_three_pairs_at_25_50_and_75_percent() -> None:
    shares = Counter(
        round(100 * share)
        for speaker in VOICES.test
        if speaker.name.endswith(("_25", "_50", "_75"))
        for share in speaker.bases.values()
    )
    assert shares == {25: 6, 50: 6, 75: 6}


def test_a_text_or_a_voice_in_two_splits_is_refused() -> None:
    said = {"long": [f"Sentence number {number} is here." for number in range(5)], "short": ["Yes."]}
    with pytest.raises(ValueError, match=r"'Sentence number 0 is here\.' is there twice"):
        corpus.Sentences.model_validate({"train": said, "valid": said, "test": said})
    parts = {
        split: [{"name": f"{split}_{base}", "voice": f"af_{split}*0.5+af_{base}*0.5"} for base in "ab"]
        for split in corpus.SPLITS
    }
    with pytest.raises(ValueError, match="af_a is heard in train and in valid"):
        corpus.Voices.model_validate(parts)
    parts["train"][1]["name"] = parts["train"][0]["name"]
    with pytest.raises(ValueError, match="train_a is there twice"):
        corpus.Voices.model_validate(parts)


# --- the bank of speech -------------------------------------------------------------------------------------------


def speak(out: Path, rounds: int, say: Callable[[str, str, float], Samples] = fake_speak, seed: int = 0) -> None:
    corpus.speak_split("valid", rounds, SENTENCES, VOICES, seed, say, out)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_round_gives_every_voice_five_sentences_and_a_reaction() -> None:
    rounds = [list(corpus.plan_round("valid", number, SENTENCES, VOICES, 0)) for number in range(10)]
    for lines in rounds:
        assert Counter(line.speaker.name for line in lines) == dict.fromkeys((v.name for v in VOICES.valid), 6)
        kinds = Counter(line.text in SENTENCES.valid.short for line in lines)
        assert kinds == {False: 5 * len(VOICES.valid), True: len(VOICES.valid)}
    texts = Counter((line.speaker.name, line.text) for lines in rounds for line in lines)
    assert set(texts.values()) == {1}, "a voice says nothing twice"
    assert all(abs(line.speed / line.speaker.speed - 1) <= 0.0505 for lines in rounds for line in lines)
    assert len({line.speed / line.speaker.speed for line in rounds[0]}) > 20


def test_the_bank_holds_what_its_index_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speak(tmp_path, 2)
    assert "valid: round 2 of 2, 96 files" in capsys.readouterr().out
    index = [json.loads(line) for line in (tmp_path / "speech" / "valid.jsonl").read_text().splitlines()]
    assert {tuple(line) for line in index} == {("voice", "split", "text", "seconds", "file")}
    assert {line["file"] for line in index} == set(read_files(tmp_path)) - {"speech/valid.jsonl"}
    for line in index[::10]:
        samples = read_audio(tmp_path / line["file"])
        assert len(samples) == seconds(line["seconds"])
        assert level_db(samples) == pytest.approx(mixing.MAIN_LEVEL_DBFS, abs=0.01)


def test_a_killed_run_is_gone_on_with_and_gives_what_an_unbroken_one_gives(tmp_path: Path) -> None:
    calls = list[str]()

    def dies(text: str, voice: str, speed: float) -> Samples:
        if len(calls) == 60:
            raise KeyboardInterrupt
        return counted(text, voice, speed)

    def counted(text: str, voice: str, speed: float) -> Samples:
        calls.append(voice)
        return fake_speak(text, voice, speed)

    broken, whole = tmp_path / "broken", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        speak(broken, 2, dies)
    assert set(Counter(calls).values()) <= {6, 12}, "the rounds are balanced"
    with (broken / "speech" / "valid.jsonl").open("a") as index:
        index.write('{"voice": "af_jess')
    (broken / "speech" / "valid" / "af_jessica" / "000.flac").unlink()
    speak(broken, 2, counted)
    assert len(calls) == 96 + 1
    speak(whole, 2)
    left, right = read_files(broken), read_files(whole)
    assert sorted(left.pop("speech/valid.jsonl").splitlines()) == sorted(right.pop("speech/valid.jsonl").splitlines())
    assert left == right


def test_other_sentences_in_the_same_folder_and_too_many_rounds_are_refused(tmp_path: Path) -> None:
    speak(tmp_path, 1)
    with pytest.raises(ValueError, match="the sentences or the seed have changed; give another --out"):
        speak(tmp_path, 1, seed=1)
    with pytest.raises(ValueError, match="--rounds 11 needs more sentences than valid has, which last for 10 rounds"):
        speak(tmp_path, 11)
    with pytest.raises(ValueError, match=r"af_jessica can't say .*: expected speech, got 100 silent samples"):
        speak(tmp_path / "silent", 1, lambda text, voice, speed: np.zeros(100, dtype=np.float32))


# --- a scene ------------------------------------------------------------------------------------------------------


@given(st.sampled_from(corpus.SPLITS), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_whatever_is_drawn_holds_together(split: corpus.Split, seed: int) -> None:
    setting = corpus.draw_setting(split, seed, fake_bank())
    people = [setting.main, *setting.bystanders]
    own = {speaker.name for speaker in VOICES.of(split)}
    assert {person.voice for person in people} <= own
    assert len({person.voice for person in people}) == len(people)
    assert [person.name for person in people] == ["main", "bystander", "bystander_2", "bystander_3"][: len(people)]
    assert 30 <= setting.length_s <= 60
    last = seconds(setting.length_s)
    for person in people:
        spans = spans_of(setting, person.name)
        assert all(before.end <= after.start for before, after in pairwise(spans)), person
        assert all(span.start > 0 and span.end <= last - seconds(corpus.EDGE_S) + 1 for span in spans)
    files = {line.file: line for lines in fake_bank().lines.values() for line in lines}
    for sentence in setting.placed:
        line = files[sentence.file]
        assert line.text == sentence.text
        assert line.voice == next(person.voice for person in people if person.name == sentence.speaker)
    enrolled = [files[file] for file in setting.enrolment.files]
    assert {line.voice for line in enrolled} == {setting.main.voice}
    texts = Counter([sentence.text for sentence in setting.placed] + [line.text for line in enrolled])
    assert set(texts.values()) == {1}, "nobody says what another says, nor what was said when enrolling"
    babble = {files[file].voice for voice in setting.noise.voices for file in voice}
    assert babble <= own - {setting.main.voice}


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_everything_is_within_its_bounds(seed: int) -> None:
    setting = corpus.draw_setting("train", seed, fake_bank())
    assert -38 <= setting.main.level_dbfs <= -20
    assert all(-6 <= gain_db <= 6 for gain_db in setting.main.drift_db)
    assert all(-3 <= sentence.gain_db <= 3 for sentence in setting.placed)
    assert 10 <= setting.noise.snr_db <= 35
    assert 0.15 <= setting.room.rt60_s <= 0.7
    assert all(3 <= size_m <= 10 for size_m in setting.room.size_m[:2])
    assert 0.3 <= setting.main.distance_m <= 1.2
    for person in (setting.main, *setting.bystanders):
        away = np.hypot(*(np.array(person.position_m) - setting.room.microphone))
        assert away == pytest.approx(person.distance_m, abs=0.001)
        walls = zip(person.position_m, setting.room.size_m, strict=False)
        assert all(mixing.is_inside(place, size_m) for place, size_m in walls)
    for person in setting.bystanders:
        assert -20 <= person.level_dbfs - setting.main.level_dbfs <= -3 + 1e-9
        assert 1.5 <= person.distance_m <= 5


def test_scenes_are_as_various_as_they_should_be() -> None:
    scenes = drawn_settings("train", 300)
    absent = [scene for scene in scenes if not spans_of(scene, "main")]
    alone = [scene for scene in scenes if not scene.bystanders]
    company = [scene for scene in scenes if scene.bystanders and spans_of(scene, "main")]
    assert 15 <= len(absent) <= 50
    assert 15 <= len(alone) <= 50
    assert all(scene.placed for scene in scenes)
    shares = [scene.share(talked_over=False) for scene in (*alone, *company)]
    assert min(shares) >= 0.4
    assert max(shares) <= 0.8
    overlap = [scene.share(talked_over=True) for scene in company]
    assert np.quantile(overlap, 0.1) < 0.05
    assert np.quantile(overlap, 0.9) > 0.5
    counts = Counter(len(scene.bystanders) for scene in company)
    assert counts[1] > counts[2] > counts[3] > 0
    assert {scene.noise.kind for scene in scenes} == set(corpus.NOISES)
    assert {person.pattern for scene in scenes for person in scene.bystanders} == set(corpus.PATTERNS)
    assert 0 < sum(scene.band for scene in scenes) < 100
    assert 0 < sum(scene.soft_clip is not None for scene in scenes) < 100
    channels = [scene.channel for scene in scenes if scene.channel is not None]
    assert 25 <= len(channels) <= 100
    assert {channel.kind for channel in channels} == set(corpus.CHANNELS)
    assert 0.2 < np.mean([channel.enrolled_by_it for channel in channels]) < 0.8
    assert any(person.television for scene in scenes for person in scene.bystanders)
    assert 0 < sum(scene.enrolment.room is not None for scene in scenes) < 150


def test_some_bystanders_have_a_close_voice() -> None:
    bases = {speaker.name: speaker.bases.keys() for speaker in VOICES.train}
    female = {speaker.name: speaker.is_female for speaker in VOICES.train}
    pairs = [(scene.main.voice, person.voice) for scene in drawn_settings("train", 300) for person in scene.bystanders]
    close = np.mean([bool(bases[main] & bases[other]) for main, other in pairs])
    alike = np.mean([female[main] == female[other] for main, other in pairs])
    assert 0.2 < close < 0.6
    assert 0.5 < alike < 0.9


def only(scene: corpus.Scenery, pattern: str) -> bool:
    return bool(spans_of(scene, "main")) and [person.pattern for person in scene.bystanders] == [pattern]


def test_patterns_are_what_they_are_called() -> None:
    scenes = (*drawn_settings("train", 300), *drawn_settings("test", 300))
    shares = {
        pattern: np.mean([scene.share(talked_over=True) for scene in scenes if only(scene, pattern)])
        for pattern in corpus.PATTERNS
    }
    assert shares["block"] > 0.3
    assert shares["pauses"] < 0.02
    assert shares["alone"] < 0.02
    for scene in scenes:
        if only(scene, "first"):
            assert scene.placed[0].speaker == "bystander"
        if only(scene, "interjections"):
            words = [len(sentence.text.split()) for sentence in scene.placed if sentence.speaker == "bystander"]
            assert max(words, default=0) <= corpus.REACTION_WORDS
            assert words


def test_a_scene_is_the_same_for_the_same_seed_alone() -> None:
    one, again, other = (corpus.draw_scene("test", seed, fake_bank(), straight) for seed in (3, 3, 4))
    assert one.setting == again.setting
    assert np.array_equal(one.mixture, again.mixture)
    assert np.array_equal(one.enrolment, again.enrolment)
    assert one.setting != other.setting
    assert corpus.draw_setting("valid", 3, fake_bank()).room != one.setting.room


@pytest.mark.parametrize("seed", range(12))
def test_levels_are_exactly_those_of_the_setting(seed: int) -> None:
    drawn = corpus.draw_scene("train", seed, fake_bank(), straight)
    setting, length = drawn.setting, seconds(drawn.setting.length_s)
    assert {len(track) for track in (drawn.mixture, drawn.main, *drawn.bystanders)} == {length}
    for person, track in zip((setting.main, *setting.bystanders), (drawn.main, *drawn.bystanders), strict=True):
        if spans_of(setting, person.name):
            assert level_db(track) == pytest.approx(person.level_dbfs - drawn.lowered_db, abs=0.01)
        else:
            assert not track.any()
    if setting.channel is None:
        assert np.abs(drawn.mixture).max() <= corpus.PEAK + 1e-6
    if setting.soft_clip is None and setting.channel is None:
        noise = drawn.mixture - drawn.main - sum(drawn.bystanders, np.zeros(length, np.float32))
        expected_db = setting.main.level_dbfs - drawn.lowered_db - setting.noise.snr_db
        assert 10 * np.log10(np.mean(noise.astype(float) ** 2)) == pytest.approx(expected_db, abs=0.05)
    assert corpus.ENROLMENT_S[0] * SAMPLE_RATE <= len(drawn.enrolment) <= corpus.ENROLMENT_S[1] * SAMPLE_RATE
    if setting.enrolment.room is None and not (setting.channel and setting.channel.enrolled_by_it):
        assert level_db(drawn.enrolment) == pytest.approx(setting.enrolment.level_dbfs, abs=0.01)


@pytest.mark.parametrize("kind", corpus.CHANNELS)
@pytest.mark.parametrize("enrolled_by_it", [True, False])
def test_a_channel_changes_the_recording_and_the_enrolment_only_if_it_was_made_by_it(
    kind: str, enrolled_by_it: bool
) -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal(2 * SAMPLE_RATE).astype(np.float32)
    drawn = {"kind": kind, "over_db": 9.0, "bit_rate": 8_000, "enrolled_by_it": enrolled_by_it}
    channel = corpus.Channel.model_validate(drawn)
    heard, enrolled = corpus.through(channel, noise), corpus.through(channel, noise, enrolment=True)
    assert len(heard) == len(noise)
    assert not np.allclose(heard, noise, atol=0.01)
    np.testing.assert_array_equal(enrolled, heard if enrolled_by_it else noise)


def plain(drawn: corpus.Scenery) -> bool:
    """Whether nothing rings after it has sounded."""
    return not drawn.band and drawn.channel is None and not any(person.television for person in drawn.bystanders)


def test_each_is_heard_in_their_spans_and_nowhere_else() -> None:
    scenes = [setting for setting in drawn_settings("train", 40) if plain(setting) and len(setting.bystanders) > 1]
    assert scenes
    for setting in scenes[:3]:
        drawn = corpus.render(setting, fake_bank(), straight)
        for person, track in zip((setting.main, *setting.bystanders), (drawn.main, *drawn.bystanders), strict=True):
            spans = spans_of(setting, person.name)
            heard = np.zeros(len(track), dtype=bool)
            for span in spans:
                heard[span.start : span.end] = True
                assert track[span.start : span.start + 160].any()
            assert np.abs(track[~heard]).max(initial=0) < 1e-6 * np.abs(track).max()


def test_a_turn_that_is_louder_is_heard_louder() -> None:
    setting = next(s for s in drawn_settings("train", 60) if plain(s) and len(spans_of(s, "main")) > 5)
    steady = setting.model_copy(update={"main": setting.main.model_copy(update={"drift_db": (0.0, 0.0)})})
    main = corpus.render(steady, fake_bank(), straight).main
    sentences = [sentence for sentence in setting.placed if sentence.speaker == "main"]
    assert len({sentence.gain_db for sentence in sentences}) > 1
    relative = [level_db(main[part.start : part.end]) - part.gain_db for part in sentences]
    assert relative == pytest.approx([relative[0]] * len(relative), abs=0.02)


def test_the_room_is_asked_once_for_each_place() -> None:
    asked = list[tuple[float, float]]()

    def respond(room: mixing.Room, position: tuple[float, float], distance_m: float) -> mixing.Impulse:
        asked.append(position)
        return np.array([0.5])

    setting = next(s for s in drawn_settings("train", 60) if s.enrolment.room and spans_of(s, "main"))
    corpus.render(setting, fake_bank(), respond)
    spoken = {sentence.speaker for sentence in setting.placed}
    people = [person.position_m for person in (setting.main, *setting.bystanders) if person.name in spoken]
    assert sorted(asked) == sorted([*people, setting.enrolment.position_m])


def test_a_bank_that_holds_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the bank holds too little of train: 0 voices with 26 s .* speak` further"):
        corpus.draw_setting("train", 0, fake_bank(1))


def test_a_bank_of_few_rounds_gives_short_scenes() -> None:
    for seed in range(30):
        setting = corpus.draw_setting("train", seed, fake_bank(3))
        assert 30 <= setting.length_s <= 60
        if spans_of(setting, "main"):
            assert setting.share(talked_over=False) > 0.35


# --- files and command line ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    arguments = ["speak", "--kokoro", "none", "--out", str(folder), "--rounds", str(ROUNDS), "--only", "valid"]
    assert corpus.main(arguments, load=lambda kokoro, threads: fake_speak) == 0
    return folder


def make(bank: Path, out: Path, seed: int, count: int, *more: str) -> int:
    arguments = ["scenes", "--corpus", str(bank), "--split", "valid", "--out", str(out)]
    return corpus.main([*arguments, "--seed", str(seed), "--count", str(count), *more], respond=straight)


def test_scenes_have_the_layout_that_references_reads(bank_folder: Path, tmp_path: Path) -> None:
    bank = corpus.read_bank(bank_folder, "valid", None)
    settings_ = [corpus.draw_setting("valid", seed, bank) for seed in range(30)]
    spoken = [setting for setting in settings_ if spans_of(setting, "main")]
    absent = next(setting for setting in settings_ if setting not in spoken)
    alone = next(setting for setting in spoken if not setting.bystanders)
    several = next(setting for setting in spoken if len(setting.bystanders) > 1)
    for setting in (alone, several, absent):
        assert make(bank_folder, tmp_path, setting.seed, 1) == 0
    read = {scene.name: scene for scene in references.read_scenes(tmp_path)}
    assert set(read) == {alone.session_id, several.session_id, absent.session_id}
    for setting in (alone, several, absent):
        scene, folder = read[setting.session_id], tmp_path / setting.session_id
        assert scene.main is not None
        assert scene.enrolment is not None
        assert [said.text for said in scene.said] == [sentence.text for sentence in setting.placed]
        assert [said.speaker for said in scene.said] == [sentence.speaker for sentence in setting.placed]
        edges = [(sentence.start, sentence.end) for sentence in setting.placed]
        assert np.allclose([(line.span.start, line.span.end) for line in scene.spoken], edges, atol=16)
        mixture, main, others = (read_audio(path) for path in (scene.mixture, scene.main, folder / "bystander.flac"))
        assert len(mixture) == len(main) == len(others) == seconds(setting.length_s)
        each = [read_audio(path) for path in sorted(folder.glob("bystander_*.flac"))]
        assert len(each) == (len(setting.bystanders) if len(setting.bystanders) > 1 else 0)
        if each:
            assert np.abs(sum(each, np.zeros_like(main)) - others).max() < 1e-4
        assert others.any() == bool(setting.bystanders)
        assert 8 <= len(read_audio(scene.enrolment)) / SAMPLE_RATE <= 10
        told = json.loads((folder / "scene.json").read_text())
        assert told.pop("main_share") == pytest.approx(setting.share(talked_over=False), abs=0.001)
        assert told.pop("overlap_share") == pytest.approx(setting.share(talked_over=True), abs=0.001)
        assert told.pop("lowered_db") >= 0
        assert corpus.Scenery.model_validate(told) == setting


def test_scenes_that_are_there_are_kept_and_processes_change_nothing(bank_folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert make(bank_folder, one, 0, 2) == 0
    first = read_files(one)
    (one / "valid_000000" / "main.flac").write_bytes(b"kept")
    assert make(bank_folder, one, 0, 3) == 0
    assert (one / "valid_000000" / "main.flac").read_bytes() == b"kept"
    assert make(bank_folder, two, 0, 2, "--processes", "2") == 0
    assert read_files(two) == first
    assert sorted(path.name for path in one.glob("valid_*")) == [f"valid_{seed:06d}" for seed in range(3)]


def test_rounds_hold_the_bank_still(bank_folder: Path) -> None:
    few, all_of_it = (corpus.read_bank(bank_folder, "valid", rounds) for rounds in (4, None))
    assert {len(lines) for lines in few.lines.values()} == {24}
    assert {len(lines) for lines in all_of_it.lines.values()} == {6 * ROUNDS}


def test_what_the_user_can_mend_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(tmp_path, tmp_path, 0, 1) == 2
    assert capsys.readouterr().err == (
        f"corpus.py: no speech of valid in {tmp_path}; run `corpus.py speak --out {tmp_path}` first\n"
    )
    for wrong in ("0", "-1", "x"):
        with pytest.raises(SystemExit):
            make(tmp_path, tmp_path, 0, 1, "--processes", wrong)
        assert "expected a number" in capsys.readouterr().err
    assert corpus.main(["speak", "--kokoro", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("corpus.py: ")


def test_a_file_that_is_not_what_the_index_says_is_refused(bank_folder: Path) -> None:
    bank = corpus.read_bank(bank_folder, "valid", None)
    longer = corpus.Bank(bank.voices, bank.lines, lambda line: burst(0, seconds(line.seconds) + 1))
    with pytest.raises(ValueError, match=r"has \d+ samples, its index says \d+"):
        corpus.draw_scene("valid", 0, longer, straight)
    missing = corpus.Spoken("af_jessica", "valid", "Gone.", 1.0, "speech/valid/af_jessica/999.flac")
    with pytest.raises(ValueError, match=r"999\.flac"):
        bank.read(missing)


# --- mixing.py ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slope_db", "expected"), [(0.0, 0.0), (-3.0, -3.0), (-5.0, -5.0)])
def test_noise_falls_as_its_slope_says(slope_db: float, expected: float) -> None:
    noise = mixing.sloping_noise(20 * SAMPLE_RATE, slope_db, np.random.default_rng(0))
    powers = np.abs(np.fft.rfft(noise)) ** 2
    octaves = [powers[20 * low : 20 * 2 * low].mean() for low in (250, 500, 1000, 2000)]
    assert np.diff(10 * np.log10(octaves)) == pytest.approx([expected] * 3, abs=0.3)


def test_hum_stands_on_the_mains_harmonics_and_music_has_notes() -> None:
    hum = mixing.mains_hum(2 * SAMPLE_RATE, np.random.default_rng(1))
    loudest_hz = np.argmax(np.abs(np.fft.rfft(hum))) / 2
    assert loudest_hz % 50 == 0 or loudest_hz % 60 == 0
    music = mixing.chords(5 * SAMPLE_RATE, np.random.default_rng(1))
    powers = np.sort(np.abs(np.fft.rfft(music)) ** 2)[::-1]
    assert len(music) == 5 * SAMPLE_RATE
    assert powers[: len(powers) // 50].sum() > 0.9 * powers.sum()


def test_a_band_is_kept_and_the_rest_is_gone() -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    kept, gone = (np.sin(2 * np.pi * hertz * time).astype(np.float32) for hertz in (1000, 100))
    assert mixing.active_power(mixing.band_pass(kept, 300, 3400)) == pytest.approx(0.5, rel=0.05)
    assert np.mean(mixing.band_pass(gone, 300, 3400)[SAMPLE_RATE // 2 :] ** 2) < 1e-3


def test_soft_clipping_bends_what_is_loud_alone() -> None:
    bent = mixing.soft_clip(np.array([0.001, -0.001, 1.0, -1.0], dtype=np.float32), 0.5)
    assert bent[:2] == pytest.approx([0.001, -0.001], rel=1e-4)
    assert bent[2:] == pytest.approx([0.5 * np.tanh(2), -0.5 * np.tanh(2)])


def test_a_level_wanders_in_straight_lines() -> None:
    drifted = mixing.drift(np.ones(5, dtype=np.float32), [0.0, 6.0, -6.0])
    assert 20 * np.log10(drifted) == pytest.approx([0, 3, 6, 0, -6], abs=1e-4)
    assert mixing.drift(np.ones(3, dtype=np.float32), [6.0]) == pytest.approx([10**0.3] * 3)


def test_fewer_reflections_make_a_shorter_response() -> None:
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics makes the rooms; it is not installed")
    room = mixing.Room()
    whole, cut = (mixing.impulse_response(room, (2.0, 2.0), 1.2, order) for order in (None, 5))
    assert np.argmax(np.abs(cut)) <= 1
    assert len(cut) < len(whole)
    assert np.allclose(cut[:100], whole[:100], atol=0.01 * np.abs(whole).max())
    assert not np.allclose(cut[:1000], whole[:1000], atol=0.001 * np.abs(whole).max())
