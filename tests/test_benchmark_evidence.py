"""benchmarks/evidence.py and what it is made of: noting, fitting, evidence_curves."""

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cascade.evidence import FRAME, N_FEATURES, Column, Evidence, Observation, load
from cascade.gate import Profile
from cascade.packaged import data_folder
from cascade.settings import MainSpeakerSettings
from cascade.types import Span, SpeakerTurn, Vector, seconds

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # the programs find each other there, as they do when they are run

import evidence  # noqa: E402
import evidence_curves  # noqa: E402
import fitting  # noqa: E402
import noting  # noqa: E402
import pinning  # noqa: E402
from fitting import Training  # noqa: E402
from noting import BOTH, BYSTANDER, MAIN, NOBODY, Heard, Note, Truth  # noqa: E402
from references import Scene, Spoken  # noqa: E402

GATE = MainSpeakerSettings(use="main_speaker", hold_s=2.0)
MAIN_VOICE = np.array([1, 0, 0, 0], np.float32)
OTHER_VOICE = np.array([0.6, 0.8, 0, 0], np.float32)


def scene_of(main: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]], name: str = "scene") -> Scene:
    """Return a scene in which these speak from one second to another."""
    lines = [Spoken(name, who, Span(seconds(start), seconds(end)))
             for who, times in (("main", main), ("bystander", others)) for start, end in times]  # fmt: skip
    return Scene(name, Path("mixture.flac"), None, None, (), tuple(lines))


def turn_of(start_s: float, parts: Sequence[tuple[float, Vector, float]], draws: np.random.Generator) -> SpeakerTurn:
    """Return a turn of noise: for each part how long, whose voice, and how loud."""
    samples = np.concatenate([draws.normal(0, level, seconds(lasts)) for lasts, _, level in parts]).astype(np.float32)
    voices = np.concatenate([np.tile(voice, (round(lasts * 5), 1)) for lasts, voice, _ in parts]).astype(np.float32)
    return SpeakerTurn(
        span=Span(seconds(start_s), seconds(start_s) + len(samples)),
        speaker="S1" if parts[0][1] is MAIN_VOICE else "S2",
        samples=samples,
        embedding=voices.mean(axis=0, dtype=np.float32),
        level_db=10 * math.log10(float(np.mean(samples**2))),
        embeddings=voices,
    )


def heard_of(seed: int, *, enrolled: bool = True) -> Heard:
    """Return a scene of 12 s: the main speaker near, then a bystander far, then one after the other in one turn."""
    draws = np.random.default_rng(seed)
    main, other = (MAIN_VOICE, float(draws.uniform(0.05, 0.2))), (OTHER_VOICE, float(draws.uniform(0.005, 0.02)))
    turns = [
        turn_of(0, [(3, *main)], draws),
        turn_of(4, [(2, *other)], draws),
        turn_of(7, [(2, *main), (1, *other)], draws),
        turn_of(11, [(1, *main)], draws),
    ]
    scene = scene_of([(0, 3), (7, 9), (11, 12)], [(4, 6), (9, 10)], f"scene {seed}")
    return Heard(scene.name, turns, Profile(MAIN_VOICE * 20) if enrolled else None, Truth.of(scene, 600))


def note_of(who: Sequence[int], features: Any = None, scene: str = "scene") -> Note:
    """Return a note of a turn in which these speak."""
    truth = Truth(np.array(who, np.int8), np.isin(who, (MAIN, BOTH)).astype(np.float32))
    table = np.zeros((len(who), N_FEATURES), np.float32) if features is None else features
    samples = np.full(len(who) * FRAME, 0.1, np.float32)
    turn = SpeakerTurn(Span(0, len(samples)), "S1", samples, MAIN_VOICE, -20.0)
    return Note(scene, True, turn, Observation(table, 0, len(who)), truth)


# --- noting.py --------------------------------------------------------------------------------------------------------


def test_the_truth_tells_who_speaks_and_gives_silence_to_the_nearest() -> None:
    truth = Truth.of(scene_of([(0.1, 0.2)], [(0.16, 0.3), (0.44, 0.5)]), 30)
    assert (
        truth.who.tolist()
        == [NOBODY] * 5 + [MAIN] * 3 + [BOTH] * 2 + [BYSTANDER] * 5 + [NOBODY] * 7 + [BYSTANDER] * 3 + [NOBODY] * 5
    )
    assert truth.is_main.tolist() == [1.0] * 10 + [0.0] * 20


@given(st.lists(st.sampled_from([NOBODY, MAIN, BOTH, BYSTANDER]), min_size=1, max_size=40))
def test_silence_belongs_to_one_of_those_who_speak_nearest(who: list[int]) -> None:
    spans = {kind: [(i * 0.02, i * 0.02 + 0.02) for i, one in enumerate(who) if one in kinds]
             for kind, kinds in (("main", (MAIN, BOTH)), ("other", (BYSTANDER, BOTH)))}  # fmt: skip
    truth = Truth.of(scene_of(spans["main"], spans["other"]), len(who))
    assert truth.who.tolist() == who
    for place, value in enumerate(truth.is_main):
        distances = [abs(place - other) for other, one in enumerate(who) if one != NOBODY]
        near = [one in (MAIN, BOTH) for other, one in enumerate(who)
                if one != NOBODY and abs(place - other) == min(distances)]  # fmt: skip
        assert bool(value) in (near or [False])


def test_a_turn_that_ends_after_the_recording_goes_with_its_last_frame() -> None:
    truth = Truth.of(scene_of([(0, 0.1)], []), 5).during(Span(3 * FRAME, 8 * FRAME + 1))
    assert truth.who.tolist() == [MAIN] * 6


def test_who_speaks_more_at_first_leads() -> None:
    assert Truth.of(scene_of([(0, 2), (3, 9)], [(2, 3)]), 500).main_leads(10)
    late = Truth.of(scene_of([(5, 15)], [(1, 4)]), 800)
    assert not late.main_leads(5)
    assert late.main_leads(10)
    assert not Truth.of(scene_of([], [(0, 4)]), 500).main_leads(10)


def test_a_judge_who_knows_the_truth_is_shown_all_turns_with_and_without_enrolment() -> None:
    notes = noting.note(heard_of(0), GATE, None)
    enrolled = [note for note in notes if note.enrolled]
    assert [note.turn.span.start_s for note in enrolled] == [0, 4, 7, 11]
    assert {note.turn.span.start_s for note in notes if not note.enrolled} == {0, 4, 7, 11}
    follows = enrolled[2]
    assert follows.truth.who.tolist() == [MAIN] * 100 + [BYSTANDER] * 50
    assert follows.seen.n_frames == 150


def test_the_gate_learns_from_the_truth() -> None:
    """Once the main speaker was heard, their level counts as zero; once a bystander was, there is a rival."""
    first, _, third, _ = [note.seen.features for note in noting.note(heard_of(0), GATE, None) if note.enrolled]
    heard, rivals = first[:, Column.HEARD], first[:, Column.ANY_RIVAL]
    assert not heard.any()
    assert not rivals.any()
    assert third[:, Column.HEARD].all()
    assert third[:, Column.ANY_RIVAL].all()


def test_without_an_enrolment_nothing_is_noted_where_somebody_else_leads() -> None:
    heard = heard_of(0, enrolled=False)
    assert noting.note(heard, GATE, None)
    bystander = Heard("other", heard.turns, None, Truth.of(scene_of([(4, 6)], [(0, 3)]), 600))
    assert noting.note(bystander, GATE, None) == []


def test_with_the_enrolment_of_one_who_is_absent_everybody_is_a_bystander() -> None:
    """It is that of the next scene whose main speaker has another voice."""
    first, same, silent, second, other = (heard_of(seed, enrolled=seed != 2) for seed in range(5))
    other = replace(other, profile=Profile(OTHER_VOICE * 20))
    strangers = noting.absent([first, same, silent, second, other])
    assert [scene.name for scene in strangers] == ["scene 0", "scene 3"]
    assert all(scene.profile is other.profile for scene in strangers)
    for scene, own in zip(strangers, (first, second), strict=True):
        assert scene.turns == own.turns
        assert not scene.truth.is_main.any()
        assert ((scene.truth.who == NOBODY) == (own.truth.who == NOBODY)).all()
        assert set(scene.truth.who.tolist()) == {NOBODY, BYSTANDER}
    notes = noting.note(strangers[0], GATE, None)
    assert [note.enrolled for note in notes] == [True] * 4
    assert not any(note.truth.is_main.any() for note in notes)
    assert noting.absent([first, same]) == []


def test_a_judge_that_fails_is_no_scene_without_notes() -> None:
    def broken(turn: SpeakerTurn, seen: Observation) -> Vector:
        raise TypeError("a mistake")

    with pytest.raises(RuntimeError, match="scene 0"):
        noting.note(heard_of(0), GATE, broken)


# --- fitting.py -------------------------------------------------------------------------------------------------------


def test_the_trained_network_is_the_one_that_is_used() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    network = fitting._network(Training(hidden=3, dropout=0.5)).eval()
    plain = {"mean": np.zeros(N_FEATURES, np.float32), "scale": np.ones(N_FEATURES, np.float32)}
    plain["calibration"] = fitting.UNCALIBRATED
    note = note_of([MAIN] * 60, np.random.default_rng(0).normal(size=(60, N_FEATURES)).astype(np.float32))
    with torch.no_grad():
        expected = torch.sigmoid(network(torch.from_numpy(note.seen.features.T[None].copy()))[0, 0]).numpy()
    used = Evidence(plain | fitting._weights_of(network))(note.turn, note.seen)
    np.testing.assert_allclose(used, expected, atol=1e-5)


def test_a_frame_counts_by_who_speaks_and_not_at_all_around_a_turn() -> None:
    note = note_of([NOBODY, MAIN, BYSTANDER])
    seen = Observation(np.zeros((6, N_FEATURES), np.float32), 2, 3)
    frames = fitting.Frames.of(Note("scene", True, note.turn, seen, note.truth), fitting.WEIGHTS)
    np.testing.assert_allclose(frames.weight, [0, 0, 0.3, 1, 2, 0])
    assert frames.is_main.tolist() == [0, 0, 0, 1, 0, 0]


def test_a_logistic_regression_finds_what_the_labels_were_drawn_by() -> None:
    draws = np.random.default_rng(0)
    table = draws.normal(size=(20_000, 2)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(2 * table[:, 0] - table[:, 1] + 0.5)))
    labels = (draws.random(len(table)) < chance).astype(np.float32)
    found = fitting.fit_logistic(table, labels, np.ones(len(table), np.float32))
    np.testing.assert_allclose([*found.coefficients, found.bias], [2, -1, 0.5], atol=0.1)


def test_a_column_that_tells_all_leaves_numbers() -> None:
    table = np.array([[-1.0], [1.0]] * 50, np.float32)
    found = fitting.fit_logistic(table, (table[:, 0] > 0).astype(np.float32), np.ones(100, np.float32))
    assert math.isfinite(found.coefficients[0])
    assert found.coefficients[0] > 3


def test_calibration_takes_back_what_is_too_certain_and_how_often_who_spoke() -> None:
    draws = np.random.default_rng(0)
    told = draws.normal(np.repeat([1.0, -1.0], [40_000, 10_000]), 1.0)  # log-odds are twice that if both are as likely
    note = note_of([MAIN] * 40_000 + [BYSTANDER] * 10_000)
    dominant = replace(note_of([MAIN] * 40_000 + [BYSTANDER] * 10_000), enrolled=False)
    calibration = fitting.calibrate(np.concatenate([6 * told + 1, 2 * told - 3]), [note, dominant])
    np.testing.assert_allclose(calibration[:, 0], [1, 1 / 3], rtol=0.05)
    expected = [3 - math.log(noting.CAUTION), -1 / 3 - math.log(noting.CAUTION)]
    np.testing.assert_allclose(calibration[:, 1], expected, atol=0.15)
    alone = fitting.calibrate(6 * told + 1, [note])
    np.testing.assert_allclose(alone[0], [1, 0])


# --- evidence_curves.py -----------------------------------------------------------------------------------------------


def test_curves_count_frames_in_which_somebody_speaks() -> None:
    one = note_of([MAIN, BOTH, BYSTANDER, BYSTANDER, NOBODY], scene="one")
    two = note_of([MAIN, MAIN, BYSTANDER, NOBODY], scene="two")
    curve = evidence_curves.curve_of([one, two], [np.array([0.9, 0.4, 0.6, 0.1, 1.0]), np.array([0.9, 0.9, 0.1, 0.0])])
    half = evidence_curves.THRESHOLDS.index(0.5)
    accepted, rejected = curve.false_accept[half], curve.false_reject[half]
    assert accepted is not None
    assert rejected is not None
    assert [accepted.share, rejected.share] == pytest.approx([1 / 3, 1 / 4])
    assert accepted.interval95 == (0.0, 0.5)
    assert sum(part.weight for part in curve.bins) == pytest.approx(7)


def test_probabilities_that_are_true_have_no_calibration_error() -> None:
    """Bystanders alone count twice the main speaker, however often they speak: here one frame as 2/10, or as 1/10."""
    note, given = note_of([MAIN] * 10 + [BYSTANDER] * 10), np.array([0.8] * 8 + [0.1] * 2 + [0.8] + [0.1] * 9)
    more = note_of([MAIN] * 10 + [BYSTANDER] * 20), np.array([0.8] * 8 + [0.1] * 2 + [0.8] * 2 + [0.1] * 18)
    both = (evidence_curves.curve_of([one], [value]).error for one, value in ((note, given), more))
    assert [*both] == pytest.approx([0, 0])
    assert evidence_curves.curve_of([note], [np.full(20, 0.8)]).error == pytest.approx(0.8 - 1 / 3)


def test_one_scene_has_no_interval() -> None:
    curve = evidence_curves.curve_of([note_of([MAIN, BYSTANDER])], [np.full(2, 0.8)])
    assert curve.false_accept[0] == evidence_curves.Rate(1.0, None)


def test_without_bystanders_there_is_no_false_accept() -> None:
    curve = evidence_curves.curve_of([note_of([MAIN] * 3)], [np.full(3, 0.8)])
    assert set(curve.false_accept) == {None}
    assert "-" in evidence_curves._text(curve.false_accept[0])


# --- evidence.py ------------------------------------------------------------------------------------------------------


def hear(folder: Path, name: str, threads: int) -> tuple[MainSpeakerSettings, Sequence[Heard]]:
    first, count = {"train": (0, 12), "valid": (100, 4), "test": (200, 4)}[folder.name]
    return GATE, [heard_of(seed) for seed in range(first, first + count)]


def fit(out: Path, *more: str) -> int:
    names = ["fit", "--scenes", "train", "--valid", "valid", "--out", str(out)]
    return evidence.main([*names, "--hidden", "8", "--epochs", "20", *more], hear)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("evidence") / "weights.npz"
    assert fit(out) == 0
    return out


def test_what_is_fitted_can_be_used_and_tells_near_from_far(fitted: Path) -> None:
    judge = load(fitted)
    notes = [seen for scene in hear(Path("test"), "", 1)[1] for seen in noting.note(scene, GATE, judge)]
    said = np.concatenate([judge(note.turn, note.seen) for note in notes])
    who = np.concatenate([note.truth.who for note in notes])
    assert (said[who == MAIN] > 0.5).mean() > 0.95
    assert (said[who == BYSTANDER] < 0.5).mean() > 0.9


def test_what_it_was_made_of_is_written_beside_it(fitted: Path) -> None:
    document = json.loads(fitted.with_suffix(".json").read_text())
    assert document["data"]["train"]["scenes"] == 12
    assert document["training"]["seed"] == 0
    assert len(document["validation loss, by round"]) == 2
    assert set(document["simple"]) == set(fitting.KINDS)
    assert set(document["validation curves"]) == {"enrolled", "dominant"}
    assert document["versions"]["numpy"] == np.__version__


def test_what_a_run_compares_weights_with_is_written_for_them(fitted: Path) -> None:
    """A run refuses weights that its manifest does not name."""
    said = data_folder("models") / "gate-evidence.yaml"
    sha256 = hashlib.sha256(fitted.read_bytes()).hexdigest()
    text = pinning.pinned(said.read_text(encoding="utf-8"), fitted)
    (file,) = YAML(typ="safe", pure=True).load(text)["files"]
    assert file == {"path": "dvector.npz", "sha256": sha256, "size": fitted.stat().st_size}
    before = said.read_text(encoding="utf-8").splitlines()
    assert len(text.splitlines()) == len(before)
    assert sum(old != new for old, new in zip(before, text.splitlines(), strict=True)) == 2


def test_the_same_seed_gives_the_same_weights(fitted: Path, tmp_path: Path) -> None:
    assert fit(tmp_path / "again.npz") == fit(tmp_path / "other.npz", "--seed", "1") == 0
    first, again, other = (np.load(path) for path in (fitted, tmp_path / "again.npz", tmp_path / "other.npz"))
    assert all((first[name] == again[name]).all() for name in first.files)
    assert any((first[name] != other[name]).any() for name in first.files)


def test_curves_are_shown_and_drawn(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.svg"
    assert evidence.main(["curves", str(fitted), "--scenes", "test", "--plot", str(picture)], hear) == 0
    shown = capsys.readouterr().out
    assert "Main speaker enrolled, 4 scenes" in shown
    assert "Main speaker dominant, 4 scenes" in shown
    assert all(name.split()[0] in shown for name in fitting.KINDS)
    assert "false accept, %" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fit", "--scenes", "train", "--valid", "valid", "--out", "nowhere/x.npz"],
            "no folder nowhere to write x.npz",
        ),
        (["curves", "none.npz", "--scenes", "test"], "none.npz holds no evidence model"),
        (["curves", "none.npz", "--scenes", "test", "--plot", "x.txt"], "--plot expects a file that ends in"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    assert evidence.main(arguments, hear) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_weights_beside_another_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match="take them together"):
        evidence.read_simple(tmp_path / "x.json")


def test_weights_alone_have_a_curve_too(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "alone.npz"
    alone.write_bytes(fitted.read_bytes())
    assert evidence.main(["curves", str(alone), "--scenes", "test"], hear) == 0
    shown = capsys.readouterr().out
    assert "no alone.json beside the weights" in shown
    assert evidence.NETWORK in shown


def test_a_folder_without_scenes_and_a_configuration_without_gate_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "plain.yaml"
    config.write_text(
        "stages:\n  - use: mixture\n  - use: online_clustering\n  - use: everyone\n  - use: faster_whisper\n"
    )
    arguments = ["fit", "--scenes", str(tmp_path), "--valid", str(tmp_path), "--out", str(tmp_path / "x.npz")]
    assert evidence.main(arguments) == 2
    assert "no references" in capsys.readouterr().err
    assert evidence.main([*arguments, "--config", str(config)]) == 2
    assert "add 'use: main_speaker'" in capsys.readouterr().err
