"""benchmarks/leakage.py and what it is made of: references, hearing, rates, leakage_report."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from cascade.asr import Recognition
from cascade.config import CascadeConfig, load_config
from cascade.errors import ConfigError
from cascade.overlap import OverlapPolicy
from cascade.pipeline import Distribution
from cascade.scoring.bootstrap import mean95
from cascade.scoring.tally import Tally
from cascade.types import SAMPLE_RATE, AudioChunk, Mode, Samples, Span, seconds
from tests import canary
from tests.canary import MAIN, Models, Said, cascade_of

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import hearing  # noqa: E402
import leakage  # noqa: E402
import leakage_report  # noqa: E402
import rates  # noqa: E402
import references  # noqa: E402
import whole  # noqa: E402
from hearing import Ears, Gated, Result, Setting, Words  # noqa: E402
from leakage_report import Mean, difference, word_measure  # noqa: E402

SCENE = canary.Scene(
    (
        Said(MAIN, 0.5, "train boston nine platform tickets eighty jacket ferry"),
        Said("neighbour", 4.0, "biopsy kidney tumor cancer insurance surgery"),
        Said(MAIN, 7.0, "ferry station harbor dinner camera monday"),
        Said("caller", 10.0, "account lawyer divorce debt password"),
    )
)


def rttm(name: str, said: tuple[Said, ...]) -> str:
    lines = (f"SPEAKER {name} 1 {one.start_s} {len(one.span) / SAMPLE_RATE} <NA> <NA> {one.speaker}" for one in said)
    return "".join(f"{line} <NA> <NA>\n" for line in lines)


def seglst(name: str, said: tuple[Said, ...]) -> list[dict[str, Any]]:
    return [{"session_id": name, "speaker": one.speaker, "start_time": one.start_s, "words": one.text} for one in said]


def write_scene(folder: Path, *, main: bool = True, enrolment: bool = True) -> Path:
    """Write SCENE in the layout of benchmarks/scenes.py, in another kind of file."""
    folder.mkdir(parents=True)
    SCENE.write(folder / "mixture.wav")
    (folder / "reference.rttm").write_text(rttm("tones", SCENE.said))
    (folder / "reference.json").write_text(json.dumps(seglst("tones", SCENE.said)))
    if main:
        alone = canary.Scene(tuple(one for one in SCENE.said if one.speaker == MAIN))
        alone.write(folder / "main.wav")
    if enrolment:
        canary.ENROLMENT.write(folder / "enrolment.wav")
    return folder


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> references.Scene:
    folder = write_scene(tmp_path_factory.mktemp("scenes") / "tones")
    (scene,) = references.read_scenes(folder.parent)
    return scene


# --- references.py ----------------------------------------------------------------------------------------------------


def test_a_folder_of_scenes_is_read(tmp_path: Path) -> None:
    write_scene(tmp_path / "first")
    write_scene(tmp_path / "second", main=False, enrolment=False)
    first, second = references.read_scenes(tmp_path)
    assert first.mixture == tmp_path / "first" / "mixture.wav"
    assert first.main == tmp_path / "first" / "main.wav"
    assert first.enrolment == tmp_path / "first" / "enrolment.wav"
    assert (second.main, second.enrolment) == (None, None)


def test_all_who_are_not_main_are_bystanders(tones: references.Scene) -> None:
    assert tones.bystander_text.split()[-6:] == ["surgery", "account", "lawyer", "divorce", "debt", "password"]
    assert tones.main_text.split() == SCENE.main_words
    assert tones.bystander_spans == [SCENE.said[1].span, SCENE.said[3].span]
    assert tones.main_spans == [SCENE.said[0].span, SCENE.said[2].span]


def test_a_pair_of_files_beside_many_recordings_is_read(tmp_path: Path) -> None:
    """With recordings in a folder of their own, comments in the RTTM, and questions that are no references."""
    said = {"a": SCENE.said[:2], "b.c": SCENE.said[1:3]}
    lines = [";; made by hand\n", *(rttm(name, some) for name, some in said.items())]
    (tmp_path / "all.rttm").write_text("".join(lines))
    (tmp_path / "words.json").write_text(
        json.dumps([line for name, some in said.items() for line in seglst(name, some)])
    )
    (tmp_path / "questions.json").write_text(json.dumps([{"question": "?", "speaker": "main"}]))
    (tmp_path / "audio").mkdir()
    for name in ("a.wav", "b.c.wav", "b.c.enrolment.wav", "enrolment.wav"):
        canary.ENROLMENT.write(tmp_path / "audio" / name)
    first, second = references.read_scenes(tmp_path)
    assert (first.name, first.mixture.name, first.enrolment) == ("a", "a.wav", None)
    assert (second.name, second.mixture.name) == ("b.c", "b.c.wav")
    assert second.enrolment == tmp_path / "audio" / "b.c.enrolment.wav"
    assert first.main_text == SCENE.said[0].text
    assert second.main_text == SCENE.said[2].text


def test_the_sentences_of_a_meta_file_are_read_in_time_order(tmp_path: Path) -> None:
    folder = write_scene(tmp_path / "one")
    (folder / "reference.json").unlink()
    sentences = [{"speaker": "main", "start": 7.0, "text": "last"}, {"speaker": "main", "start": 0.5, "text": "first"}]
    (folder / "meta.json").write_text(json.dumps({"id": "one", "sentences": sentences}))
    (scene,) = references.read_scenes(tmp_path)
    assert scene.main_text == "first last"
    (folder / "reference.json").write_text(json.dumps(seglst("tones", SCENE.said[:1])))
    (scene,) = references.read_scenes(tmp_path)
    assert scene.main_text == SCENE.said[0].text, "SegLST goes first"


def test_a_silent_main_speaker_keeps_and_misses_nothing(tmp_path: Path) -> None:
    folder = write_scene(tmp_path / "alone")
    (folder / "reference.rttm").write_text(
        rttm("tones", SCENE.said[1:2]).replace("neighbour", "bystander")
        + rttm("tones", SCENE.said[3:]).replace("caller", "bystander_2")
    )
    (scene,) = references.read_scenes(tmp_path)
    (result,) = hearing.measure(replace(scene, said=()), Ears(config(), Models().load), [Setting(enrolled=True)])
    assert result.gated is not None
    assert result.gated.withheld == result.gated.words.kept == Tally()
    assert word_measure("word error rate")(result) is None
    assert result.gated.accepted == Tally(0, sum(map(len, scene.bystander_spans)))


def test_the_data_of_this_project_are_read() -> None:
    (talk,) = references.read_scenes(BENCHMARKS / "talk")
    assert talk.enrolment is not None
    mini = references.read_scenes(BENCHMARKS / "shmini")
    assert len(mini) == 12
    assert all(scene.main_text and scene.bystander_text and scene.bystander_spans for scene in mini)


def broken_line(folder: Path) -> None:
    (folder / "reference.rttm").write_text("SPEAKER tones 1 zero 2.0 <NA> <NA> main <NA> <NA>\n")


def rttm_of(times: str) -> Callable[[Path], None]:
    line = f"SPEAKER tones 1 {times} <NA> <NA> main <NA> <NA>\n"

    def spoil(folder: Path) -> None:
        (folder / "reference.rttm").write_text(line)

    return spoil


def seglst_with(change: dict[str, Any]) -> Callable[[Path], None]:
    """Spoil the second entry of who says what."""
    first, second, *rest = seglst("tones", SCENE.said)
    text = json.dumps([first, second | change, *rest])

    def spoil(folder: Path) -> None:
        (folder / "reference.json").write_text(text)

    return spoil


def a_folder_for_rttm(folder: Path) -> None:
    (folder / "reference.rttm").unlink()
    (folder / "reference.rttm").mkdir()


def nobody_main(folder: Path) -> None:
    (folder / "reference.rttm").write_text(rttm("tones", SCENE.said[1:2]))


def only_a_bad_meta(folder: Path) -> None:
    (folder / "reference.json").unlink()
    (folder / "meta.json").write_text(json.dumps({"sentences": [{"speaker": "main"}]}))


NO_ENTRIES: list[dict[str, Any]] = [
    {"start_time": None},
    {"start_time": "soon"},
    {"start_time": float("inf")},
    {"start_time": 10**400},
    {"words": None},
    {"speaker": ["main"]},
    {"session_id": {}},
]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: (folder / "reference.rttm").unlink(), "no references in"),
        (lambda folder: (folder / "mixture.wav").unlink(), "no recording for the references of 'tones'"),
        (broken_line, "reference.rttm, line 1: expected 'SPEAKER session"),
        (nobody_main, "nobody in 'tones' is called 'main', got neighbour"),
        (lambda folder: (folder / "reference.json").write_text("{"), "reference.json: expected JSON"),
        (only_a_bad_meta, "meta.json: expected 'sentences', each with speaker, start and text"),
        (rttm_of("inf 2.0"), "reference.rttm, line 1: expected 'SPEAKER session"),
        (rttm_of("0.0 1e999"), "reference.rttm, line 1: expected 'SPEAKER session"),
        (rttm_of("nan 2.0"), "reference.rttm, line 1: expected 'SPEAKER session"),
        (
            lambda folder: (folder / "reference.rttm").write_text("hello\n"),
            "no line of its RTTM file begins with SPEAKER",
        ),
        (a_folder_for_rttm, "reference.rttm: expected a file with references, got none"),
        (
            lambda folder: (folder / "reference.rttm").write_bytes(b"SPEAKER \xff"),
            "reference.rttm: expected text in UTF-8, got another byte at 8",
        ),
        (
            lambda folder: (folder / "reference.json").write_bytes(b'["\xff"]'),
            "reference.json: expected text in UTF-8, got another byte at 2",
        ),
        *((seglst_with(change), "reference.json, entry 2: expected texts for session") for change in NO_ENTRIES),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(
    spoil: Callable[[Path], None], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(write_scene(tmp_path / "one"))
    assert leakage.main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert (err.count("\n"), out) == (1, "")


def test_the_name_of_a_folder_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = replace(RESULTS[0], scene="a[green]b", setting=Setting(True, None))
    leakage.report(leakage.console_of(160), [result], leakage.parse_arguments([str(tmp_path)]))
    assert "a[green]b" in capsys.readouterr().out


def test_ctrl_c_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    assert whole.stoppable(Path("benchmarks/leakage.py"), stopped) == 130
    assert capsys.readouterr() == ("", "leakage.py: stopped\n")
    assert whole.stoppable(Path("leakage.py"), lambda: 2) == 2


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    whole.write_whole(path, b"first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
    with pytest.raises(TypeError):
        whole.write_whole(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"first"
    whole.write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def umask() -> int:
    """Return what new files are closed to here."""
    old = os.umask(0o022)
    os.umask(old)
    return old


# --- rates.py ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors", "total"),
    [
        ("The train leaves at noon.", "the train leaves at noon", 0, 5),
        ("It's twenty-two dollars, um, in grey.", "It is $22 in gray", 0, 5),
        ("one long day", "a long long night", 3, 3),
        ("a train", "", 2, 2),
        ("a train", "so many more words than that", 6, 2),
        ("Well, a train", "Well... a train...", 0, 3),
        ("Um...", "hello", 0, 0),
    ],
)
def test_words_are_counted_after_whispers_normalisation(
    reference: str, hypothesis: str, errors: int, total: int
) -> None:
    pytest.importorskip("jiwer")
    pytest.importorskip("whisper_normalizer")
    assert rates.word_errors(reference, hypothesis) == rates.Rate(errors, total)


def second(start_s: float, end_s: float) -> Span:
    return Span(seconds(start_s), seconds(end_s))


def test_diarization_errors_are_counted_outside_of_the_collar() -> None:
    """Names are free; 0.25 s on either side of a boundary are forgiven; who is missed in an overlap is counted."""
    pytest.importorskip("pyannote.metrics")
    reference = [(second(0, 10), "main"), (second(8, 14), "bystander")]
    heard = [(second(0.2, 10.2), "x"), (second(10.2, 14), "y"), (second(16, 17), "x")]
    rate = rates.diarization_errors(reference, heard, second(0, 20))
    assert rate is not None
    assert rate.errors == pytest.approx(1.0 + (2 - 2 * 0.25))  # the false second, and the overlap
    assert rate.total == pytest.approx((10 - 4 * 0.25) + (6 - 4 * 0.25))


def test_without_a_reference_there_is_no_rate() -> None:
    assert rates.Rate(0, 0).share is None
    assert rates.Rate(3, 2).share == 1.5


def test_rates_are_none_where_a_package_is_missing() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "sys.modules.update({'jiwer': None, 'pyannote': None})\n"
        "import rates\n"
        "from cascade.types import Span\n"
        "print(rates.word_errors('a', 'a'), rates.diarization_errors([], [], Span(0, 1)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"


# --- hearing.py -------------------------------------------------------------------------------------------------------


@dataclass
class Counting(canary.Recogniser):
    """A recogniser that counts how often it is asked."""

    asked: int = 0

    def __call__(self, samples: Samples, /) -> Recognition:
        self.asked += 1
        return super().__call__(samples)


def config() -> CascadeConfig:
    return load_config("ondevice.yaml")


def chunks(scene: canary.Scene = SCENE) -> list[AudioChunk]:
    return list(scene.chunks(0.1))


def test_bystanders_leak_without_a_gate_and_not_through_it(tones: references.Scene) -> None:
    ears = Ears(config(), Models().load)
    (result,) = hearing.measure(tones, ears, [Setting(enrolled=True)])
    assert result.gated is not None
    assert result.clean is not None
    leaked = len(tones.bystander_text.split())
    assert result.mixture.leaked == Tally(leaked, leaked)
    assert result.clean.leaked == result.gated.words.leaked == Tally(0, leaked)
    kept = len(tones.main_text.split())
    assert result.mixture.kept == result.clean.kept == result.gated.words.kept == Tally(kept, kept)
    assert result.gated.withheld.accuracy == pytest.approx(0, abs=0.02)
    assert result.gated.leaked_words == ()
    assert result.gated.delay is not None
    assert 0 < result.gated.delay.mean_s < 2


@pytest.mark.parametrize("enrolled", [True, False])
def test_turns_that_are_replayed_give_what_the_whole_cascade_gives(tones: references.Scene, enrolled: bool) -> None:
    enrolment = tones.enrolment if enrolled else None
    ears = Ears(config(), Models().load)
    replayed = ears.hear(ears.diarize(chunks()), Setting(enrolled), enrolment, {})
    cascade = cascade_of(config().with_enrolment([enrolment] if enrolment else []), Models(), Mode.SELECTIVE)
    for _ in cascade.listen(chunks()):
        pass
    assert replayed.transcript == cascade.transcript
    assert replayed.decisions == cascade.listening.decisions
    assert replayed.performance.delay == cascade.listening.performance.delay


def test_equal_turns_are_recognised_once(tones: references.Scene) -> None:
    counting, memory = Counting(), {}  # type: ignore[var-annotated]
    ears = Ears(config(), Models(recognise=counting).load)
    diarized = ears.diarize(chunks())
    first = ears.hear(diarized, Setting(enrolled=True, threshold=0.5), tones.enrolment, memory)
    asked = counting.asked
    again = ears.hear(diarized, Setting(enrolled=True, threshold=0.51), tones.enrolment, memory)
    assert counting.asked == asked > 0
    assert again.transcript.text == first.transcript.text
    assert {one.admission.threshold for one in first.transcript.utterances} == {0.5}
    assert {one.admission.threshold for one in again.transcript.utterances} == {0.51}


def test_a_threshold_that_nothing_reaches_lets_nothing_out(tones: references.Scene) -> None:
    settings = [Setting(enrolled=True, threshold=threshold) for threshold in (0.5, 1.0)]
    low, high = (result.gated for result in hearing.measure(tones, Ears(config(), Models().load), settings))
    assert low is not None
    assert high is not None
    assert high.words.kept.correct == 0 < low.words.kept.correct
    assert high.withheld.accuracy == 1


def test_what_needs_a_missing_recording_is_a_dash(tmp_path: Path) -> None:
    write_scene(tmp_path / "bare", main=False, enrolment=False)
    (scene,) = references.read_scenes(tmp_path)
    enrolled, dominant = hearing.measure(scene, Ears(config(), Models().load), [Setting(True), Setting(False)])
    assert enrolled.gated is None
    assert enrolled.clean is None
    assert dominant.gated is not None
    assert word_measure("retention")(enrolled) is None
    assert difference("retention", "clean")(dominant) is None
    row = printed(leakage_report.scene_table([enrolled], "t")).split("bare")[1].split("│")
    assert [cell.strip() for cell in row[1:4]] == ["-", "-", "-"]


OVER = canary.TALKED_OVER
POLICIES = ("admit_if_dominant", "separate", "foreground")


def test_true_sources_are_the_main_speaker_and_the_rest_and_add_up() -> None:
    mixture = np.array([0.5, 0.25, -0.5, 0.1], np.float32)
    main = np.array([0.25, 0.5], np.float32)
    (chunk,) = hearing.TrueSources(np.pad(main, (6, 0)), -20).push(AudioChunk(Span(6, 10), mixture))
    rest = mixture - np.pad(main, (0, 2))
    np.testing.assert_allclose(chunk.sources[0], 0.9 * np.pad(main, (0, 2)) + 0.1 * rest, atol=1e-6)
    np.testing.assert_allclose(chunk.sources.sum(axis=0), mixture, atol=1e-6)
    assert chunk.mixture is mixture


def test_true_sources_keep_a_bystander_out_of_the_main_speakers_words(tmp_path: Path) -> None:
    """The recogniser of these tests hears whoever is louder; so what tells is that none of the bystander is there."""
    given: dict[str, bytes] = {}
    folder = tmp_path / "over"
    folder.mkdir()
    OVER.write(folder / "mixture.wav")
    canary.Scene(tuple(one for one in OVER.said if one.speaker == MAIN), OVER.seed).write(folder / "main.wav")
    canary.ENROLMENT.write(folder / "enrolment.wav")
    (folder / "reference.rttm").write_text(rttm("over", OVER.said))
    (folder / "reference.json").write_text(json.dumps(seglst("over", OVER.said)))
    (scene,) = references.read_scenes(folder)
    for policy in POLICIES:
        models = Models()
        ears_of = load_config("foreground") if policy == "foreground" else config()
        ears = Ears(hearing.with_overlap(ears_of, OverlapPolicy(policy), true_sources=True), models.load)
        (result,) = hearing.measure(replace(scene, main=scene.main), ears, [ENROLLED], -60)
        assert result.gated is not None
        assert result.gated.words.kept.accuracy == 1
        given[policy] = b"".join(models.recognise.given[2:])  # the first two are the mixture and the main speaker
    assert [bool(OVER.leaks(given[policy])) for policy in POLICIES] == [True, False, False]


def test_to_separate_takes_sources() -> None:
    with pytest.raises(
        ConfigError, match=r"needs a stage in front that gives several sources.*or give --true-sources$"
    ):
        hearing.with_overlap(config(), OverlapPolicy.SEPARATE)


@pytest.mark.parametrize("true_sources", [False, True])
def test_the_foreground_takes_what_tells_it(true_sources: bool) -> None:
    with pytest.raises(ConfigError, match=r"overlap: foreground needs 'use: foreground'.*choose another overlap$"):
        hearing.with_overlap(config(), OverlapPolicy.FOREGROUND, true_sources=true_sources)
    fits = hearing.with_overlap(load_config("foreground"), OverlapPolicy.FOREGROUND, true_sources=true_sources)
    assert fits == load_config("foreground")


def test_references_of_a_longer_recording_are_refused(tones: references.Scene) -> None:
    end = max(line.span.end for line in tones.spoken)
    late = replace(tones, spoken=(*tones.spoken, references.Spoken("tones", "main", Span(end, end + seconds(60)))))
    with pytest.raises(ValueError, match=r"its references go on until \d+\.\d s, the recording ends at \d+\.\d s"):
        hearing.measure(late, Ears(config(), Models().load), [Setting(False)])


def test_true_sources_need_the_main_speakers_track(tones: references.Scene) -> None:
    with pytest.raises(ValueError, match="tones has no track of the main speaker alone"):
        hearing.measure(replace(tones, main=None), Ears(config(), Models().load), [ENROLLED], -15)


def test_a_configuration_without_speech_recognition_is_refused() -> None:
    short = config().model_copy(update={"stages": config().stages[:3]})
    with pytest.raises(ValueError, match="no speech recognition behind its gate"):
        Ears(short, Models().load)


# --- leakage_report.py ------------------------------------------------------------------------------------------------

ENROLLED = Setting(enrolled=True)


def words(leaked: int, kept: int) -> Words:
    return Words(Tally(leaked, 10), Tally(kept, 10), rates.Rate(10 - kept, 10))


def made(name: str, leaked: int, kept: int, setting: Setting = ENROLLED) -> Result:
    """A result in which ASR alone leaks 5 of 10 words and keeps 8."""
    gated = Gated(
        words(leaked, kept),
        Tally(SAMPLE_RATE, 4 * SAMPLE_RATE),
        Tally(0, SAMPLE_RATE),
        Distribution(3, 0.5, 0.9),
        ("x",),
    )
    return Result(name, setting, gated, words(5, 8), words(0, 9), rates.Rate(1.0, 8.0))


RESULTS = [made("a", 0, 8), made("b", 1, 6), made("c", 0, 10)]


def printed(*tables: Table) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(*tables)
    return capture.get()


def test_means_count_each_recording_the_same_and_have_their_interval() -> None:
    mean = Mean.of(word_measure("retention"), RESULTS)
    assert mean is not None
    assert mean.mean == pytest.approx(80)
    assert mean.recordings == 3
    assert mean.interval95 == mean95([80, 60, 100])


def test_differences_are_taken_recording_by_recording() -> None:
    assert [difference("retention", "mixture")(result) for result in RESULTS] == pytest.approx([0, -20, 20])
    assert [difference("leakage", "mixture")(result) for result in RESULTS] == pytest.approx([-50, -40, -50])


def test_a_recording_without_a_value_is_left_out_of_the_mean() -> None:
    results = [*RESULTS, replace(RESULTS[0], scene="d", gated=None)]
    assert Mean.of(word_measure("retention"), results) == Mean.of(word_measure("retention"), RESULTS)
    assert Mean.of(word_measure("retention"), results[3:]) is None


def test_tables_hold_the_numbers() -> None:
    each = printed(leakage_report.scene_table(RESULTS, "t"))
    assert "10.00" in each
    assert "60.00" in each
    summary = printed(leakage_report.summary_table(RESULTS, "t"))
    assert "80.00  [60.00, 100.00]" in summary
    assert "12.50  [12.50, 12.50]" in summary  # the diarization error rate
    curve = printed(leakage_report.curve_table(RESULTS, [ENROLLED, Setting(False, 0.25)]))
    assert "dominant" in curve
    assert "0.25" in curve


def test_json_holds_means_and_recordings() -> None:
    document = json.loads(leakage_report.to_json(RESULTS, "ondevice.yaml"))
    (setting,) = document["settings"]
    assert setting["means"]["retention, cascade"]["mean"] == pytest.approx(80)
    assert setting["recordings"]["b"]["leakage, cascade - mixture"] == pytest.approx(-40)
    assert setting["recordings"]["b"]["false accept time"] == 1.0
    assert document["units"]["false accept time"] == "s"


def curve() -> tuple[list[Result], list[Setting]]:
    settings = [Setting(enrolled, threshold) for enrolled in (True, False) for threshold in (0.3, 0.7)]
    return [made(name, place, 8 - place, one) for place, one in enumerate(settings) for name in "ab"], settings


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    results, settings = curve()
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    for path in (first, second):
        leakage_report.draw(results, settings, path)
    assert first.read_bytes() == second.read_bytes()
    if suffix == ".svg":
        assert all(text in first.read_text() for text in (">0.3<", ">0.7<", "enrolled", "dominant", "mixture, no gate"))


# --- leakage.py -------------------------------------------------------------------------------------------------------


def test_the_settings_that_are_asked_for() -> None:
    full, points = leakage.settings_of(leakage.parse_arguments(["x", "--both", "--thresholds", "0.7,0.3"]))
    assert full == [Setting(True), Setting(False)]
    assert points == [Setting(True, 0.3), Setting(True, 0.7), Setting(False, 0.3), Setting(False, 0.7)]
    full, points = leakage.settings_of(leakage.parse_arguments(["x", "--no-enrolment", "--threshold", "0.5"]))
    assert (full, points) == ([Setting(False, 0.5)], [])
    _, points = leakage.settings_of(leakage.parse_arguments(["x", "--plot", "curve.svg"]))
    assert [one.threshold for one in points] == list(leakage.CURVE)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--thresholds", "0.3,high"], "a threshold is a number from 0 to 1, got 'high'"),
        (["--threshold", "nan"], "a threshold is a number from 0 to 1, got 'nan'"),
        (["--true-sources", "3"], "softer than all of it, -15 (dB) say, got '3'"),
        (["--true-sources", "nan"], "softer than all of it, -15 (dB) say, got 'nan'"),
        (["--overlap", "mix"], "invalid choice: 'mix'"),
        (["--both", "--no-enrolment"], "not allowed with"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        leakage.parse_arguments(["x", *arguments])
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        ("--plot", "curve.bmp", "--plot expects a file that ends in .svg, .png, .pdf, got curve.bmp"),
        ("--plot", "missing/curve.svg", "to write curve.svg into"),
        ("--json", "missing/all.json", "to write all.json into"),
        ("--json", ".", "is a folder; name a file"),
    ],
)
def test_files_that_cannot_be_written_are_named_before_anything_is_heard(
    option: str, name: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leakage.main([str(tmp_path / "nothing here"), option, str(tmp_path / name)]) == 2
    assert expected in capsys.readouterr().err


def test_one_command_hears_the_talk_and_gives_tables_a_picture_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, numbers = tmp_path / "curve.svg", tmp_path / "numbers.json"
    files = ["--plot", str(plot), "--json", str(numbers)]
    assert leakage.main([str(BENCHMARKS / "talk"), "--both", "--thresholds", "0.2", *files]) == 0
    out = capsys.readouterr().out
    assert "Means, main speaker enrolled" in out
    assert "Privacy and utility by threshold" in out
    assert plot.read_text().rstrip().endswith("</svg>")
    document = json.loads(numbers.read_text())
    assert [(one["enrolled"], one["threshold"]) for one in document["settings"]] == [
        (True, None),
        (False, None),
        (True, 0.2),
        (False, 0.2),
    ]
    own = document["settings"][0]["recordings"]["talk"]
    assert own["leakage, cascade"] == 0
    assert own["retention, cascade"] > 80
    assert own["retention, clean"] is None  # there is no main.flac
