"""Accuracies, SE, entropy and intervals: by law against plain definitions, and by example."""

from __future__ import annotations

import dataclasses
import doctest
import math
import random
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.scoring import efficacy as module
from cascade.scoring.bootstrap import DRAWS, SEED
from cascade.scoring.efficacy import (
    Cell,
    ModeScore,
    Partition,
    Scored,
    Speaker,
    entropy,
    score,
    selective_efficacy,
)
from cascade.scoring.tally import Tally
from cascade.types import Outcome

MAIN, BYSTANDER = Speaker.MAIN, Speaker.BYSTANDER
REAL, SYNTH = Partition.REAL, Partition.SYNTH


def answer(recording: str = "a", speaker: Speaker = MAIN, right: bool | None = True, **others: object) -> Scored:
    whole = {"partition": REAL, "outcome": Outcome.ANSWERED, **others}
    return Scored(recording, speaker, right=right, **whole)  # type: ignore[arg-type]


ANSWERS = st.lists(
    st.builds(
        Scored,
        recording=st.sampled_from("abcdefgh"),
        speaker=st.sampled_from(Speaker),
        partition=st.sampled_from(Partition),
        right=st.booleans() | st.none(),
        outcome=st.sampled_from(Outcome),
        entropy=st.none() | st.floats(0, 2),
    ),
    max_size=40,
)


def test_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(module)
    assert results.attempted >= 2
    assert results.failed == 0


# --- selective efficacy -----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6))
def test_se_is_the_harmonic_mean(accuracies: list[float]) -> None:
    assert selective_efficacy(accuracies) == pytest.approx(statistics.harmonic_mean(accuracies))


@given(st.lists(st.floats(0, 1), max_size=4), st.lists(st.floats(0, 1), max_size=4))
def test_se_is_0_with_a_0_and_unknown_with_an_unknown(some: list[float], others: list[float]) -> None:
    assert selective_efficacy([*some, 0.0, *others]) == 0.0
    assert selective_efficacy([*some, None, *others]) is None


def test_se_of_nothing_is_unknown() -> None:
    assert selective_efficacy([]) is None


# --- entropy ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_entropy_is_its_plain_definition(probabilities: list[float]) -> None:
    expected = -math.fsum(share * math.log(share) for share in probabilities if share)
    assert entropy(probabilities) == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 6), st.integers(0, 3))
def test_entropy_of_evenly_many_is_their_logarithm(options: int, zeros: int) -> None:
    assert entropy([1 / options] * options + [0.0] * zeros) == pytest.approx(math.log(options))


@pytest.mark.parametrize("odd", [-0.1, math.nan, math.inf, -math.inf])
def test_entropy_of_what_is_no_probability_is_not_defined(odd: float) -> None:
    assert math.isnan(entropy([0.5, odd]))


# --- counts -----------------------------------------------------------------------------------------------------------


def cells(mode: ModeScore) -> dict[tuple[Speaker, Partition | None], Cell]:
    return {
        (MAIN, None): mode.main,
        (BYSTANDER, None): mode.bystander,
        (MAIN, REAL): mode.real[0],
        (BYSTANDER, REAL): mode.real[1],
        (MAIN, SYNTH): mode.synth[0],
        (BYSTANDER, SYNTH): mode.synth[1],
    }


@given(ANSWERS)
@settings(max_examples=25, deadline=None)
def test_a_cell_counts_the_answers_about_its_speaker(answers: list[Scored]) -> None:
    for found in (score(answers, None).general, score(None, answers).selective):
        assert found is not None
        for (speaker, partition), cell in cells(found).items():
            its = [one for one in answers if one.speaker == speaker and partition in (None, one.partition)]
            outcomes = [one.outcome for one in its]
            assert cell.replies == len(its)
            assert cell.idk == outcomes.count(Outcome.DONT_KNOW)
            assert cell.unparsed == outcomes.count(Outcome.UNPARSED)
            assert cell.refused == outcomes.count(Outcome.REFUSED)
            assert cell.filtered == outcomes.count(Outcome.FILTERED)
            assert cell.empty == outcomes.count(Outcome.EMPTY)
            known = [one.right for one in its if one.right is not None]
            assert cell.tally == (Tally(known.count(True), len(known)) if known else None)
            assert cell.accuracy == (known.count(True) / len(known) if known else None)
            nats = [one.entropy for one in its if one.entropy is not None]
            assert cell.entropy == (pytest.approx(statistics.fmean(nats)) if nats else None)


@given(ANSWERS)
@settings(max_examples=25, deadline=None)
def test_the_partitions_add_up(answers: list[Scored]) -> None:
    found = score(answers, None).general
    assert found is not None
    for whole, real, synth in zip((found.main, found.bystander), found.real, found.synth, strict=True):
        assert (whole.tally or Tally()) == (real.tally or Tally()) + (synth.tally or Tally())
        assert whole.replies == real.replies + synth.replies


def test_a_cells_wilson_interval_is_its_tallys() -> None:
    found = score([answer(), answer(right=False)], None).general
    assert found is not None
    assert found.main.wilson95 == Tally(1, 2).wilson95
    assert found.bystander.wilson95 is None
    assert found.bystander.accuracy is None


def test_the_entropies_are_summed_in_the_published_order() -> None:
    """Real ones and synthetic ones apart, each from first to last: another order ends in another digit."""
    random_numbers = random.Random(1)
    answers = [
        answer(partition=random_numbers.choice((REAL, SYNTH)), entropy=random_numbers.random()) for _ in range(999)
    ]
    sums = {REAL: 0.0, SYNTH: 0.0}
    mixed = 0.0
    for one in answers:
        assert one.entropy is not None
        sums[one.partition] += one.entropy
        mixed += one.entropy
    found = score(answers, None).general
    assert found is not None
    assert found.main.entropy == (sums[REAL] + sums[SYNTH]) / 999
    assert found.main.entropy != mixed / 999


def test_an_entropy_that_is_not_defined_makes_the_mean_unknown() -> None:
    found = score([answer(entropy=0.5), answer(entropy=math.nan)], None).general
    assert found is not None
    assert found.main.entropy is None


# --- both modes -------------------------------------------------------------------------------------------------------


def some_answers(seed: int, recordings: int = 40, share: float = 0.7) -> list[Scored]:
    """Return ten answers on each recording, of which each has its own share of right ones."""
    numbers = random.Random(seed)
    answers = []
    for recording in range(recordings):
        level = min(1.0, max(0.0, numbers.gauss(share, 0.2)))
        partition = SYNTH if recording % 2 else REAL
        answers += [
            answer(f"r{recording}", speaker, numbers.random() < level, partition=partition)
            for speaker in Speaker
            for _ in range(5)
        ]
    return answers


def test_a_mode_that_was_not_run_is_none() -> None:
    for general, selective in ((None, some_answers(1)), (some_answers(1), None), (None, None)):
        found = score(general, selective)
        assert (found.general is None) == (general is None)
        assert (found.selective is None) == (selective is None)
        assert found.se is None
        assert found.se_cluster95 is None


def test_se_is_of_the_four_accuracies_of_both_partitions() -> None:
    general, selective = some_answers(1), some_answers(2, share=0.4)
    found = score(general, selective)
    assert found.general is not None
    assert found.selective is not None
    four = (found.general.main, found.general.bystander, found.selective.main, found.selective.bystander)
    assert len({cell.accuracy for cell in four}) == 4
    assert found.se == selective_efficacy([cell.accuracy for cell in four])


def test_se_is_unknown_without_one_of_the_four() -> None:
    main_only = [one for one in some_answers(1) if one.speaker is MAIN]
    found = score(some_answers(1), main_only)
    assert found.se is None
    assert found.se_cluster95 is None


def test_se_of_0_has_an_interval() -> None:
    wrong = [dataclasses.replace(one, right=False) for one in some_answers(1)]
    found = score(some_answers(2), wrong)
    assert found.se == 0.0
    assert found.se_cluster95 == (0.0, 0.0)


# --- intervals by recordings ------------------------------------------------------------------------------------------


def plain_draws(groups: Sequence[Sequence[Scored]]) -> list[list[float | None]]:
    """Return each group's accuracy in each draw, counted one answer at a time."""
    names = sorted({one.recording for group in groups for one in group})
    numbers = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        drawn = [names[place] for place in numbers.integers(len(names), size=len(names))]
        accuracies: list[float | None] = []
        for group in groups:
            rights = [one.right for name in drawn for one in group if one.recording == name and one.right is not None]
            accuracies.append(sum(rights) / len(rights) if rights else None)
        draws.append(accuracies)
    return draws


def test_intervals_are_those_of_plain_draws() -> None:
    general = [*some_answers(1, 6), answer("only general", BYSTANDER, False), answer("r0", right=None)]
    selective = some_answers(2, 6, share=0.5)
    found = score(general, selective)
    assert found.general is not None
    assert found.selective is not None
    groups = [[one for one in mode if one.speaker is speaker] for mode in (general, selective) for speaker in Speaker]
    draws = plain_draws(groups)
    four = (found.general.main, found.general.bystander, found.selective.main, found.selective.bystander)
    for place, cell in enumerate(four):
        known = [draw[place] for draw in draws if draw[place] is not None]
        assert cell.cluster95 == pytest.approx(tuple(np.percentile(known, [2.5, 97.5])))  # type: ignore[arg-type]
    efficacies = [se for draw in draws if (se := selective_efficacy(draw)) is not None]
    assert found.se_cluster95 == pytest.approx(tuple(np.percentile(efficacies, [2.5, 97.5])))


def test_a_draw_without_any_of_a_cells_recordings_is_left_out() -> None:
    """One recording of three asks about the bystander: a third of the draws or so says nothing about it."""
    answers = [answer("a"), answer("b"), answer("c"), *(answer(name, BYSTANDER, name == "b") for name in "bc")]
    found = score(answers, None).general
    assert found is not None
    assert found.bystander.cluster95 == (0.0, 1.0)


@given(st.integers(0, 1000), st.randoms())
@settings(max_examples=10, deadline=None)
def test_the_order_of_answers_does_not_matter(seed: int, numbers: random.Random) -> None:
    general, selective = some_answers(seed, 8), some_answers(seed + 1, 8)
    straight = score(general, selective)
    numbers.shuffle(general)
    numbers.shuffle(selective)
    assert score(general, selective) == straight


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_holds_the_accuracy_and_is_wider_than_wilsons_where_recordings_differ(seed: int) -> None:
    found = score(some_answers(seed), some_answers(seed + 100))
    assert found.general is not None
    for cell in cells(found.general).values():
        assert cell.cluster95 is not None
        assert cell.accuracy is not None
        assert cell.cluster95[0] < cell.accuracy < cell.cluster95[1]
    assert found.se is not None
    assert found.se_cluster95 is not None
    assert found.se_cluster95[0] < found.se < found.se_cluster95[1]


def test_more_recordings_narrow_an_interval_and_more_of_the_same_recording_do_not() -> None:
    few = some_answers(3, 20)
    more = few + [dataclasses.replace(one, recording=f"{one.recording}, again") for one in few]
    doubled = few + few
    widths = []
    for answers in (few, more, doubled):
        found = score(answers, None).general
        assert found is not None
        assert found.main.cluster95 is not None
        widths.append(found.main.cluster95[1] - found.main.cluster95[0])
    assert widths[1] == pytest.approx(widths[0] / math.sqrt(2), rel=0.1)
    assert widths[2] == pytest.approx(widths[0])


def test_the_same_in_every_recording_is_certain() -> None:
    found = score([answer(name, MAIN, right) for name in "abcd" for right in (True, False)], None).general
    assert found is not None
    assert found.main.cluster95 == (0.5, 0.5)


def test_a_single_recording_has_no_interval() -> None:
    answers = [answer("a", speaker, right) for speaker in Speaker for right in (True, False)]
    found = score(answers, answers)
    assert found.se == 0.5
    assert found.se_cluster95 is None
    assert found.general is not None
    assert found.general.main.cluster95 is None
    mixed = score([*answers, answer("b", BYSTANDER)], None).general
    assert mixed is not None
    assert mixed.main.cluster95 is None
    assert mixed.bystander.cluster95 is not None


def test_both_modes_draw_the_same_recordings() -> None:
    """Where one mode is right the other is wrong: drawn together, the two accuracies of a draw sum to 1."""
    general = [answer(f"r{number}", speaker, number % 2 == 0) for number in range(30) for speaker in Speaker]
    selective = [dataclasses.replace(one, right=not one.right) for one in general]
    together = score(general, selective).se_cluster95
    assert together is not None
    assert together[1] <= 0.5  # the harmonic mean of x and 1 - x, at most a half
