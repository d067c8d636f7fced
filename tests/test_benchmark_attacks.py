"""benchmarks/attacks.py: what attacks are made of, and what the gate of ondevice.yaml lets pass of the demo talk."""

import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.config import load_config
from cascade.pipeline import load_stages
from cascade.scoring.leakage import false_accept, false_withhold
from cascade.scoring.tally import Tally
from cascade.settings import StageMaker
from cascade.stage import Chain
from cascade.types import SAMPLE_RATE, AdmittedTurn, AudioChunk, Mode, Samples, Span, SpeakerTurn, seconds

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import attacks  # noqa: E402
import channels  # noqa: E402
import corpus  # noqa: E402
import hearing  # noqa: E402
import mixing  # noqa: E402
import references  # noqa: E402
import voices  # noqa: E402

TALK = BENCHMARKS / "talk"
VOICES = mixing.read_description(corpus.VOICES_DESCRIPTION, corpus.Voices)
SENTENCES = mixing.read_description(corpus.SENTENCES_FILE, corpus.Sentences)
NONE = attacks.ATTACKS[0]
Change: TypeAlias = Callable[[Samples], Samples]
SPEAKERS = {speaker.name: speaker for speaker in VOICES.test}


def named(name: str, strength: str = "") -> attacks.Attack:
    return next(one for one in attacks.ATTACKS if one.name == name and strength in one.strength)


def burst(seed: int, length: int) -> Samples:
    """Something with the rhythm of speech: noise that comes and goes four times a second."""
    swell = 1.1 + np.cos(2 * np.pi * 4 * np.arange(length) / SAMPLE_RATE)
    return (0.05 * swell * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def fake_speak(text: str, voice: str, speed: float) -> Samples:
    return burst(zlib.crc32(f"{voice} {text}".encode()), seconds(0.3 * len(text.split())))


def straight(room: mixing.Room, position: tuple[float, float], distance_m: float) -> mixing.Impulse:
    """No room, but half the level at twice the distance."""
    return np.array([1 / distance_m])


@cache
def bank() -> corpus.Bank:
    """What `corpus.py speak` would make of the test split, without a file."""
    lines: dict[str, list[corpus.Spoken]] = {}
    for number in range(3):
        for line in corpus.plan_round("test", number, SENTENCES, VOICES, seed=0):
            length_s = round(0.3 * len(line.text.split()), 3)
            spoken = corpus.Spoken(line.speaker.name, "test", line.text, length_s, line.file)
            lines.setdefault(line.speaker.name, []).append(spoken)
    return corpus.Bank(VOICES, lines, lambda line: burst(zlib.crc32(line.file.encode()), seconds(line.seconds)))


@cache
def made(attack: attacks.Attack, number: int = 0) -> attacks.Made:
    return attacks.make_scene(attack, 0, number, bank(), fake_speak, straight)


def level_db(samples: Samples) -> float:
    return float(10 * np.log10(mixing.active_power(samples)))


# --- the list -----------------------------------------------------------------------------------------------------


def test_each_attack_and_strength_has_a_folder_of_its_own() -> None:
    folders = [attack.folder(number) for attack in attacks.ATTACKS for number in range(3)]
    assert len(set(folders)) == len(folders)
    assert all(re.fullmatch(r"[\w-]+", folder) for folder in folders)


def test_every_other_attack_changes_something() -> None:
    plain = [
        one.name for one in attacks.ATTACKS if not one.model_dump(exclude_defaults=True, exclude={"name", "strength"})
    ]
    assert plain == ["none"]


# --- voices -------------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(SPEAKERS)), st.sampled_from(sorted(SPEAKERS)), st.floats(0, 0.99))
def test_a_blended_voice_is_so_much_the_main_speakers(main: str, other: str, likeness: float) -> None:
    rng = np.random.default_rng(0)
    styles = {base: rng.standard_normal((3, 1, 8)).astype(np.float32) for one in VOICES.test for base in one.bases}
    blend = voices.blend(attacks.blended(SPEAKERS[main], SPEAKERS[other], likeness), styles)
    first, second = voices.blend(SPEAKERS[main].voice, styles), voices.blend(SPEAKERS[other].voice, styles)
    np.testing.assert_allclose(blend, likeness * first + (1 - likeness) * second, atol=1e-4)


def test_a_whole_other_voice_is_not_mixed_with_anything() -> None:
    assert attacks.blended(SPEAKERS["af_sky"], SPEAKERS["am_liam"], 0) == "am_liam*1.000000"
    half = attacks.blended(SPEAKERS["af_sky"], SPEAKERS["am_liam"], 0.25)
    assert half == "am_liam*0.750000+af_sky*0.250000"


def test_mains_of_both_sexes_take_turns_and_the_first_bystander_is_of_theirs() -> None:
    casts = [attacks.cast_of(bank(), number) for number in range(6)]
    assert [cast.main.is_female for cast in casts] == [True, False] * 3
    assert len({cast.main.name for cast in casts}) == 6
    assert all(cast.others[0].is_female == cast.main.is_female for cast in casts)
    assert all(cast.main not in cast.others and len(cast.others) == 5 for cast in casts)
    assert all(cast.main.name not in one.bases for cast in casts for one in cast.crowd)


def vowel(hertz: float, length_s: float = 2.0) -> Samples:
    """Pulses through three formants: what a voice is made of."""
    from scipy.signal import lfilter

    pulses = np.zeros(seconds(length_s))
    pulses[(np.arange(0, length_s, 1 / hertz) * SAMPLE_RATE).astype(int)] = 1
    sound = pulses
    for formant_hz, width_hz in ((700, 80), (1200, 90), (2600, 120)):
        radius, angle = np.exp(-np.pi * width_hz / SAMPLE_RATE), 2 * np.pi * formant_hz / SAMPLE_RATE
        sound = lfilter([1.0], [1, -2 * radius * np.cos(angle), radius**2], sound)
    return np.asarray(0.1 * sound / np.abs(sound).max(), np.float32)


def periodicity(samples: Samples) -> float:
    """The highest autocorrelation at a voice's periods (70 to 400 Hz), of the mean over frames of 64 ms."""
    frames = samples[: len(samples) // 1024 * 1024].reshape(-1, 1024).astype(np.float64)
    spectra = np.abs(np.fft.rfft(frames * np.hanning(1024), 2048)) ** 2
    correlations = np.fft.irfft(spectra)
    normal = (correlations / correlations[:, :1]).mean(axis=0)
    return float(normal[SAMPLE_RATE // 400 : SAMPLE_RATE // 70].max())


def bands_db(samples: Samples) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Levels in bands of 400 Hz up to 4 kHz, relative to all."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    bands = [power[(hertz >= low) & (hertz < low + 400)].sum() for low in range(200, 4000, 400)]
    return np.asarray(10 * np.log10(np.array(bands) / power.sum()))


@pytest.mark.parametrize("hertz", [110.0, 210.0])
def test_a_whisper_has_no_pitch(hertz: float) -> None:
    voice = vowel(hertz)
    whispered = attacks.whisper(voice, np.random.default_rng(0))
    assert whispered.shape == voice.shape
    assert periodicity(voice) > 0.8
    assert periodicity(whispered) < 0.3  # resonances ring a little by themselves
    assert level_db(whispered) == pytest.approx(level_db(voice), abs=0.5)


def test_a_whisper_has_the_voices_envelope() -> None:
    speech = read_audio(TALK / "enrolment.flac")
    for voice, within_db in ((speech, 1.0), (vowel(110), 4.0)):
        whispered = attacks.whisper(voice, np.random.default_rng(0))
        np.testing.assert_allclose(bands_db(whispered), bands_db(voice), atol=within_db)


def test_a_whisper_is_silent_where_the_voice_is() -> None:
    voice = np.concatenate([vowel(120, 0.5), np.zeros(seconds(0.5), np.float32)])
    whispered = attacks.whisper(voice, np.random.default_rng(0))
    assert not whispered[seconds(0.55) :].any()


# --- what is done to all of it --------------------------------------------------------------------------------------


@given(st.lists(st.floats(-0.96875, 0.96875, width=32), min_size=16, max_size=64))
@settings(deadline=None)
def test_mu_law_is_near_its_formula(samples: list[float]) -> None:
    """G.711 approximates the formula (mu = 255) by straight lines: within a step or two of it."""
    dry = np.array(samples, np.float32)
    compressed = np.sign(dry) * np.log1p(255 * np.abs(dry)) / np.log1p(255)
    rounded = np.round(compressed * 127) / 127
    formula = np.sign(rounded) * np.expm1(np.abs(rounded) * np.log1p(255)) / 255
    step = (np.abs(dry) + 1 / 255) * np.log1p(255) / 127  # the derivative of the formula, times a step
    assert np.all(np.abs(channels.mu_law(dry) - formula) <= 1.5 * step + 1e-4)


@pytest.mark.parametrize("over_db", [6.0, 12.0, 20.0])
def test_clipping_cuts_what_is_over_full_scale(over_db: float) -> None:
    tone = 0.01 * np.sin(np.arange(SAMPLE_RATE) * 0.1).astype(np.float32)
    clipped = channels.clip(tone, over_db)
    limit = 10 ** (-over_db / 20)  # of the loudest sample, from where it is cut
    flat = np.abs(tone) >= limit * np.abs(tone).max() * 1.001
    assert np.all(np.abs(clipped[flat]) == 1)
    assert flat.mean() == pytest.approx(1 - 2 / np.pi * np.arcsin(limit), abs=0.01)
    quiet = np.abs(tone) < limit * np.abs(tone).max() * 0.999
    ratio = clipped[quiet & (tone != 0)] / tone[quiet & (tone != 0)]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_a_telephone_keeps_300_to_3400_hz() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(4 * SAMPLE_RATE).astype(np.float32)
    power = np.abs(np.fft.rfft(channels.telephone(noise))) ** 2 / np.abs(np.fft.rfft(noise)) ** 2
    hertz = np.fft.rfftfreq(len(noise), 1 / SAMPLE_RATE)
    assert np.median(power[(hertz > 500) & (hertz < 3000)]) == pytest.approx(1, abs=0.05)
    assert np.median(power[hertz < 150]) < 0.01
    assert np.median(power[hertz > 4500]) < 1e-6


def test_of_a_narrow_band_nothing_is_left_above_4_khz_and_all_below() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(4 * SAMPLE_RATE).astype(np.float32)
    power = np.abs(np.fft.rfft(channels.narrow(noise))) ** 2 / np.abs(np.fft.rfft(noise)) ** 2
    hertz = np.fft.rfftfreq(len(noise), 1 / SAMPLE_RATE)
    assert np.median(power[hertz < 3500]) == pytest.approx(1, abs=0.01)
    assert np.median(power[hertz > 4500]) < 1e-5


@pytest.mark.parametrize(("codec", "rate"), [("opus", 8_000), ("mp3", 16_000)])
def test_what_a_codec_leaves_is_as_long_and_as_loud(codec: channels.Codec, rate: int) -> None:
    speech = read_audio(TALK / "enrolment.flac")
    left = channels.coded(speech, codec, rate)
    assert len(left) == len(speech)
    assert mixing.active_power(left) == pytest.approx(mixing.active_power(speech), rel=0.3)


@pytest.mark.parametrize(("codec", "suffix"), [("opus", ".opus"), ("mp3", ".mp3")])
def test_a_codec_keeps_time_and_level_and_little_else(codec: channels.Codec, suffix: str, tmp_path: Path) -> None:
    speech = read_audio(TALK / "enrolment.flac")
    rate = named("codec", "Opus" if codec == "opus" else "MP3").bit_rate
    encoded = channels.encode(speech, codec, rate)
    assert len(encoded) * 8 < 1.6 * rate * len(speech) / SAMPLE_RATE + 8_000
    (tmp_path / f"heard{suffix}").write_bytes(encoded)
    heard = read_audio(tmp_path / f"heard{suffix}")
    assert abs(len(heard) - len(speech)) < seconds(0.15)
    assert level_db(heard) == pytest.approx(level_db(speech), abs=3)


# --- scenes -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_scene_and_another_number_another() -> None:
    again = attacks.make_scene(NONE, 0, 0, bank(), fake_speak, straight)
    assert np.array_equal(again.mixture, made(NONE).mixture)
    assert [line.text for line in made(NONE, 1).lines] != [line.text for line in again.lines]


@pytest.mark.parametrize("name", ["louder", "far", "whisper", "television", "clipping", "telephone", "codec"])
def test_an_attack_is_added_to_the_scene_without_it(name: str) -> None:
    attack, plain = made(named(name)), made(NONE)
    assert [(line.speaker, line.text, line.start) for line in attack.lines] == [
        (line.speaker, line.text, line.start) for line in plain.lines
    ]
    assert np.array_equal(attack.enrolment, plain.enrolment)
    assert not np.array_equal(attack.mixture, plain.mixture)


def test_without_an_attack_two_speak_in_turn_at_their_levels() -> None:
    scene = made(NONE)
    assert [line.speaker for line in scene.lines] == list(attacks.TURNS)
    assert all(not one.span.overlaps(two.span) for one, two in pairwise(scene.lines))
    assert level_db(scene.tracks["main"]) == pytest.approx(-30, abs=0.1)
    assert level_db(scene.tracks["bystander"]) == pytest.approx(-40, abs=0.1)
    assert level_db(scene.mixture - scene.tracks["main"] - scene.tracks["bystander"]) == pytest.approx(-55, abs=0.5)


@pytest.mark.parametrize("over_db", [3, 6, 10])
def test_a_bystander_is_loud_for_five_seconds(over_db: int) -> None:
    loud, plain = made(named("louder", f"+{over_db} dB")).tracks["bystander"], made(NONE).tracks["bystander"]
    changed = np.flatnonzero(loud != plain)
    assert changed[-1] - changed[0] == pytest.approx(seconds(attacks.LOUD_S), abs=seconds(0.5))
    ratio = loud[changed] / plain[changed]
    np.testing.assert_allclose(ratio, 10 ** ((10 + over_db) / 20), rtol=1e-4)


def test_who_goes_away_is_heard_softer() -> None:
    near_m = made(NONE).drawn["places"]["main"]["distance_m"]  # type: ignore[index]
    far = made(named("far", "3 m"))
    assert far.drawn["places"]["main"]["distance_m"] == 3  # type: ignore[index]
    assert level_db(far.tracks["main"]) == pytest.approx(-30 + 20 * np.log10(near_m / 3), abs=0.1)


def test_a_whisper_is_so_much_softer() -> None:
    assert level_db(made(named("whisper", "10 dB")).tracks["main"]) == pytest.approx(-40, abs=0.5)


def test_the_main_speaker_is_silent_for_five_minutes_while_many_speak() -> None:
    assert named("silent").silence_s == 300
    scene = made(named("silent").model_copy(update={"silence_s": 60}))  # the same, and sooner tested
    spans = sorted(line.span for line in scene.lines if line.speaker == "main")
    silence_s = max(two.start_s - one.end_s for one, two in pairwise(spans))
    assert 55 <= silence_s <= 75
    assert len({line.speaker for line in scene.lines}) > 5
    assert spans[0].start_s < 1
    assert len(spans) == attacks.TURNS.count("main")


@pytest.mark.parametrize(("strength", "count"), [("third", 3), ("fourth", 4)])
def test_further_voices_take_their_turns(strength: str, count: int) -> None:
    scene = made(named("voices", strength))
    assert len({line.speaker for line in scene.lines}) == count
    assert len(set(scene.drawn["voices"].values())) == count  # type: ignore[attr-defined]


def test_nobody_but_the_bystander_speaks_where_the_main_speaker_is_absent() -> None:
    scene = made(named("absent"))
    assert {line.speaker for line in scene.lines} == {"bystander"}
    assert not scene.tracks["main"].any()
    assert len(scene.enrolment) > seconds(6)


def test_claims_are_spoken_by_the_bystander_alone() -> None:
    scene = made(named("claims"))
    assert [line.text for line in scene.lines if line.speaker != "main"] == list(attacks.CLAIMS)
    plain = [line.text for line in made(NONE).lines if line.speaker == "main"]
    assert [line.text for line in scene.lines if line.speaker == "main"] == plain


def test_a_level_drifts_by_20_db() -> None:
    fallen, plain = made(named("drift", "falls")).mixture, made(attacks.ATTACKS[1]).mixture
    gain_db = 20 * np.log10(fallen / np.where(plain == 0, np.nan, plain))
    assert gain_db[100] == pytest.approx(0, abs=0.1)
    assert gain_db[-100] == pytest.approx(-20, abs=0.1)
    assert np.nanmedian(gain_db) == pytest.approx(-10, abs=0.1)


def test_a_bank_without_the_test_split_is_told() -> None:
    few = {name: lines for name, lines in bank().lines.items() if name in ("af_sky", "bf_lily")}
    with pytest.raises(ValueError, match=r"expected four, of both; run `corpus\.py speak"):
        attacks.cast_of(replace(bank(), lines=few), 0)


def test_a_speaker_with_too_little_to_say_is_told() -> None:
    short = {name: lines[:6] for name, lines in bank().lines.items()}
    with pytest.raises(ValueError, match="has too little to say"):
        attacks.make_scene(named("drift"), 0, 0, replace(bank(), lines=short), fake_speak, straight)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    chosen = [NONE, named("absent"), named("music"), named("codec", "Opus")]
    for _ in range(2):  # the second time all is there
        attacks.make(chosen, 0, 1, bank(), fake_speak, tmp_path, straight)
    scenes = {scene.name: scene for scene in references.read_scenes(tmp_path)}
    assert sorted(scenes) == sorted(attack.folder(0) for attack in chosen)
    for attack in chosen:
        assert attacks.attack_of(scenes[attack.folder(0)]) == (attack.name, attack.strength)
    assert scenes[chosen[3].folder(0)].mixture.suffix == ".opus"
    music = scenes[chosen[2].folder(0)]
    assert music.main_spans == []
    assert sum(map(len, music.bystander_spans)) > seconds(attacks.MUSIC_S)
    assert music.bystander_text == ""
    described = json.loads((tmp_path / chosen[3].folder(0) / "scene.json").read_text())
    assert described["changed"] == {"codec": "opus", "bit_rate": 6000}


def test_the_same_files_are_written_twice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        attacks.make([NONE, named("codec", "MP3")], 0, 1, bank(), fake_speak, tmp_path / name, straight)
    files = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*.*"))]
    assert len(files) == 14
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


# --- the table ----------------------------------------------------------------------------------------------------


def outcome(attack: attacks.Attack, number: int, passed: int, *, enrolled: bool = True) -> attacks.Outcome:
    tallies = Tally(passed * SAMPLE_RATE, 10 * SAMPLE_RATE), Tally(0, SAMPLE_RATE), Tally(0, 5), Tally(4, 4)
    return attacks.Outcome(attack.name, attack.strength, attack.folder(number), enrolled, *tallies)


def test_rows_are_means_with_their_range_in_the_order_of_the_list() -> None:
    far, none = named("far"), NONE
    outcomes = [outcome(far, 0, 1), outcome(none, 0, 0), outcome(far, 1, 4), outcome(far, 0, 5, enrolled=False)]
    assert list(attacks.in_rows(outcomes)) == [(none.name, none.strength), (far.name, far.strength)]
    table = attacks.table_of(outcomes)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["attack"] == ["none", "far"]
    assert columns["n"] == ["1", "2"]
    assert columns["E FA s"] == ["0.0 (0-0)", "2.5 (1-4)"]
    assert columns["E FA %"][1] == "25.0 (10-40)"
    assert columns["D FA s"] == ["-", "5.0 (5-5)"]


def test_all_is_written_down() -> None:
    document = json.loads(attacks.to_document([outcome(NONE, 0, 1)], "ondevice.yaml"))
    enrolled, dominant = document["rows"]
    assert enrolled["measures"]["FA %"] == {"mean": 10.0, "least": 10.0, "most": 10.0}
    assert dominant["measures"]["FA %"] is None
    assert document["scenes"][0]["scene"] == NONE.folder(0)


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere"], "no references in nowhere"),
        (["run", "nowhere", "--json", "no/file.json"], "no folder no to write file.json into; make it first"),
        (["make", "--corpus", "none", "--kokoro", "none", "--out", "out"], "no speech of test in none"),
    ],
)
def test_a_mistake_is_told_on_one_line(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert attacks.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("attacks.py: ")
    assert expected in err
    assert err.count("\n") == 1


def test_a_scene_of_another_program_is_told(tmp_path: Path) -> None:
    (scene,) = references.read_scenes(TALK)
    with pytest.raises(ValueError, match=r"scene.json says of no attack and its strength; make the scenes"):
        attacks.attack_of(scene)


def test_a_missing_package_is_told() -> None:
    code = (
        "import sys; sys.modules['pyroomacoustics'] = None; sys.path.insert(0, 'benchmarks'); import attacks; "
        "from functools import partial; attacks.run_make = lambda *_: __import__('pyroomacoustics'); "
        "sys.exit(attacks.main(['make', '--corpus', 'a', '--kokoro', 'b', '--out', 'c']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS.parent, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pyroomacoustics isn't installed" in done.stderr


# --- the gate of ondevice.yaml on the demo talk ---------------------------------------------------------------------


def stages(*, enrolled: bool) -> list[StageMaker]:
    """Load the stages of ondevice.yaml, up to the gate."""
    config = load_config("ondevice.yaml")
    gate = next(place for place, stage in enumerate(config.stages) if stage.use == "main_speaker")
    shortened = config.model_copy(update={"stages": config.stages[: gate + 1]})
    configured = hearing.configured(shortened, hearing.Setting(enrolled), TALK / "enrolment.flac")
    return [make for _, make in load_stages(configured, Mode.SELECTIVE)]


@cache
def gate(*, enrolled: bool) -> StageMaker:
    return stages(enrolled=enrolled)[-1]


@cache
def front() -> list[StageMaker]:
    return stages(enrolled=False)[:-1]


def turns_of(samples: Samples) -> list[SpeakerTurn]:
    chain = Chain([make(Mode.SELECTIVE) for make in front()])
    return [*chain.push(AudioChunk(Span(0, len(samples)), samples)), *chain.flush()]


def admitted(turns: list[SpeakerTurn], *, enrolled: bool) -> list[Span]:
    """Return where the gate lets turns pass, or parts of them."""
    chain = Chain([gate(enrolled=enrolled)(Mode.SELECTIVE)])
    items = [*(item for turn in turns for item in chain.push(turn)), *chain.flush()]
    return [item.span for item in items if isinstance(item, AdmittedTurn)]


@cache
def talk() -> tuple[references.Scene, Samples]:
    (scene,) = references.read_scenes(TALK)
    return scene, read_audio(scene.mixture)


def shares(change: Change) -> dict[bool, tuple[float, float]]:
    """Return the shares of false accepts and withholds in a changed talk, with enrolment (True) and without."""
    scene, samples = talk()
    turns = turns_of(change(samples))
    found = {}
    for enrolled in (True, False):
        spans = admitted(turns, enrolled=enrolled)
        accepted = false_accept(spans, scene.main_spans, scene.bystander_spans).accuracy
        withheld = false_withhold(spans, scene.main_spans).accuracy
        found[enrolled] = (accepted or 0.0, withheld or 0.0)
    return found


def bystander_alone() -> Samples:
    """Return what is heard where only the bystander speaks, (n_samples,), again and again for half a minute."""
    scene, samples = talk()
    is_main, is_other = np.zeros(len(samples), bool), np.zeros(len(samples), bool)
    for mask, spans in ((is_main, scene.main_spans), (is_other, scene.bystander_spans)):
        for span in spans:
            mask[span.start : span.end] = True
    alone = samples[is_other & ~is_main]
    return np.tile(alone, -(-seconds(30) // len(alone)))


def music(level_dbfs: float) -> Samples:
    sound = mixing.chords(seconds(30), np.random.default_rng(0))
    return mixing.at_mean_level(sound, level_dbfs)


# What was measured is beside the bounds: false accepts and false withholds with enrolment, then without. There is room,
# for other weights of the evidence model, and since a single sentence is a tenth of either in this recording.
@pytest.mark.parametrize(
    ("name", "change", "enrolled", "dominant"),
    [
        ("none", lambda samples: samples, (0.10, 0.10), (0.10, 0.10)),  # 0.01 0.02, 0.01 0.04
        ("telephone", channels.telephone, (0.10, 1.00), (0.10, 0.30)),  # 0.00 1.00, 0.00 0.03
        ("6 dB over", lambda samples: channels.clip(samples, 6), (0.10, 0.50), (0.15, 0.15)),  # 0.00 0.23, 0.00 0.04
        ("12 dB over", lambda samples: channels.clip(samples, 12), (0.10, 1.00), (0.15, 0.20)),  # 0.00 1.00, 0.00 0.06
        ("falls", lambda samples: mixing.drift(samples, (0, -20)), (0.10, 0.55), (0.10, 0.60)),  # 0.00 0.37, 0.00 0.41
        ("rises", lambda samples: mixing.drift(samples, (-20, 0)), (0.20, 0.20), (0.50, 0.15)),  # 0.04 0.09, 0.38 0.03
    ],
)
def test_the_gate_holds_within_bounds(
    name: str, change: Change, enrolled: tuple[float, float], dominant: tuple[float, float]
) -> None:
    found = shares(change)
    for way, (most_accepted, most_withheld) in ((True, enrolled), (False, dominant)):
        accepted, withheld = found[way]
        assert accepted <= most_accepted, f"{name}, enrolled {way}: {accepted:.2f} of the bystander's time passed"
        assert withheld <= most_withheld, f"{name}, enrolled {way}: {withheld:.2f} of the main speaker's did not"


def test_of_a_bystander_alone_nearly_nothing_passes_an_enrolment() -> None:
    samples = bystander_alone()
    turns = turns_of(samples)
    assert sum(turn.span.duration_s for turn in turns) > 20  # there is something to withhold
    assert sum(span.duration_s for span in admitted(turns, enrolled=True)) <= 1.5  # 0.0 of 34.6 s


@pytest.mark.parametrize("enrolled", [True, False])
def test_of_music_nothing_passes(enrolled: bool) -> None:
    assert admitted(turns_of(music(mixing.MAIN_LEVEL_DBFS)), enrolled=enrolled) == []
