"""What a run is going to do, and what is said before it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.check import Report, examine
from cascade.config import load_config
from cascade.errors import ConfigError, NotReadyError
from cascade.machine import Machine
from cascade.output.benchmark import replace_private
from cascade.settings import OpenAISettings
from cascade.shbench.plan import Shard, make_plan, own_content, what_is_heard
from cascade.types import Mode
from tests import tone_benchmark as tones


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    tones.write(folder, recordings=5, questions=2)
    return folder


# --- which of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/2/3", "a/b", "-1/2", "1/0", "1.0/2", "²/3"])
def test_a_wrong_shard_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--shard .*: expected I/N with 1 <= I <= N, such as 1/4$"):
        Shard.of(text)


@settings(deadline=None, max_examples=12)  # each plan hashes the models
@given(st.integers(1, 5), st.sampled_from([None, 1, 3, 5, 100]))
def test_shards_share_out_all_recordings_once(folder: Path, count: int, limit: int | None) -> None:
    whole = tones.plan_of(folder, limit=limit)
    if len(whole.recordings) < count:
        return
    shards = [tones.plan_of(folder, limit=limit, shard=Shard(index, count)) for index in range(1, count + 1)]
    dealt = [recording.name for shard in shards for recording in shard.recordings]
    assert sorted(dealt) == sorted(recording.name for recording in whole.recordings)
    assert sorted(item.number for shard in shards for item in shard.items) == [item.number for item in whole.items]


def test_a_limit_takes_the_first_recordings_with_all_of_their_questions(folder: Path) -> None:
    plan = tones.plan_of(folder, limit=2)
    assert [recording.name for recording in plan.recordings] == ["folder/scene 0.wav", "folder/scene 1.wav"]
    assert [item.number for item in plan.items] == [0, 1, 5, 6]
    assert len(plan.data.items) == 10


def test_a_shard_without_a_recording_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--shard 6/6: there are only 5 recordings; give a smaller N"):
        tones.plan_of(folder, shard=Shard(6, 6))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("n" * 245, r"'nnnnnnnnnnnnnnnnnnnn\.\.\.' has 245 bytes, expected at most 200"),
        ("日" * 67, "has 201 bytes, expected at most 200"),
        ("a\nb", "holds a line break, another control character"),
        ("a\x1b[31mb", "holds a line break, another control character"),
        ("a\udcff", "or what is no character"),
    ],
)
def test_a_name_that_no_file_should_have_is_refused_before_anything_is_heard(
    folder: Path, name: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"the configuration's name .*{told}.*give the file another name") as error:
        make_plan(tones.config_of(folder), name, modes=tuple(Mode))
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["n" * 200, "日本 (1)", "it's"])
def test_with_any_other_name_all_files_can_be_written(folder: Path, tmp_path: Path, name: str) -> None:
    config = tones.config_of(folder, always=True)
    benchmark = config.benchmark.model_copy(update={"description": "none", "dont_know": False, "open_ended": True})
    plan = make_plan(config.model_copy(update={"benchmark": benchmark}), name, modes=tuple(Mode))
    for mode in Mode:
        replace_private(tmp_path / plan.file_name(mode), b"")


# --- how it is asked --------------------------------------------------------------------------------------------------


def changed(folder: Path, **settings: Any) -> Any:
    config = tones.config_of(folder)
    benchmark = config.benchmark.model_copy(update=settings)
    return make_plan(config.model_copy(update={"benchmark": benchmark}), "tones", modes=tuple(Mode))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, {"tones_basic_qa.json", "tones_selective_qa.json"}),
        ({"description": "none"}, {"tones_basic_qa.json", "tones_selectivenospk_qa.json"}),
        ({"dont_know": False}, {"tones_basicnoidk_qa.json", "tones_selectivenoidk_qa.json"}),
        ({"open_ended": True}, {"tones_basicopen_qa.json", "tones_selectiveopen_qa.json"}),
        (
            {"description": "none", "dont_know": False},
            {"tones_basicnoidk_qa.json", "tones_selectivenospknoidk_qa.json"},
        ),
    ],
)
def test_the_files_names_tell_mode_and_setting(folder: Path, settings: dict[str, Any], names: set[str]) -> None:
    plan = changed(folder, **settings)
    assert {plan.file_name(mode) for mode in plan.modes} == names


def test_the_option_dont_know_is_the_benchmarks_own(folder: Path) -> None:
    plan = tones.plan_of(folder)
    item = plan.items[0]
    question = plan.question(item, Mode.SELECTIVE)
    assert question.options == item.options
    assert question.options[question.dont_know or 0] == "Unclear"


def test_without_the_option_dont_know_the_others_keep_their_order(folder: Path) -> None:
    plan = changed(folder, dont_know=False)
    item = plan.items[3]
    question = plan.question(item, Mode.GENERAL)
    assert question.options == tuple(option for option in item.options if option != "Unclear")
    assert question.dont_know is None


def test_open_ended_questions_have_no_options(folder: Path) -> None:
    plan = changed(folder, open_ended=True)
    question = plan.question(plan.items[0], Mode.SELECTIVE)
    assert (question.options, question.dont_know) == ((), None)


@pytest.mark.parametrize("field", ["main_speaker_desc", "main_speaker_desc_w_content"])
def test_only_selective_mode_is_told_about_the_main_speaker(folder: Path, field: str) -> None:
    plan = changed(folder, description=field)
    item = plan.items[0]
    assert getattr(item, field) in plan.question(item, Mode.SELECTIVE).prompt
    assert getattr(item, field) not in plan.question(item, Mode.GENERAL).prompt


def test_prompts_can_be_replaced_and_a_missing_one_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "general.txt").write_text("My own: {transcript} {question} {options}")
    config = tones.config_of(folder)
    config = config.model_copy(update={"benchmark": config.benchmark.model_copy(update={"prompts": tmp_path})})
    plan = make_plan(config, "tones", modes=[Mode.GENERAL])
    assert plan.question(plan.items[0], Mode.GENERAL).prompt.startswith("My own: ")
    with pytest.raises(ConfigError, match=r"selective_described.txt"):
        make_plan(config, "tones", modes=[Mode.SELECTIVE])


# --- what is heard, and what determines it ----------------------------------------------------------------------------


def test_two_modes_are_two_hearings_unless_the_gate_is_always_shut(folder: Path) -> None:
    general, selective = Mode.GENERAL, Mode.SELECTIVE
    assert tones.plan_of(folder).hearings == {selective: (selective,), general: (general,)}
    assert tones.plan_of(folder, always=True).hearings == {selective: (selective, general)}
    assert tones.plan_of(folder, modes=(general,), always=True).hearings == {selective: (general,)}


def test_what_is_heard_is_there_as_often_as_it_is_heard(folder: Path) -> None:
    config = tones.config_of(folder)
    first, second, *_ = [folder / "folder" / f"scene {number}.wav" for number in range(5)]
    assert len(what_is_heard(config)) == 10
    assert sorted(what_is_heard(config, limit=2)) == [first, first, second, second]
    assert what_is_heard(config, limit=2, shard=Shard(2, 2)) == [second, second]
    assert what_is_heard(tones.config_of(folder, always=True), limit=2) == [first, second]


def test_another_setting_is_another_run_and_a_larger_limit_is_not(folder: Path) -> None:
    identity = tones.plan_of(folder).describe()["identity"]
    assert tones.plan_of(folder, limit=2).describe()["identity"] == identity
    others = [
        tones.plan_of(folder, threshold=0.6),
        tones.plan_of(folder, always=True),
        tones.plan_of(folder, modes=(Mode.GENERAL,)),
        tones.plan_of(folder, shard=Shard(1, 2)),
        changed(folder, description="none"),
        changed(folder, dont_know=False),
        changed(folder, references=None),
    ]
    assert len({identity, *(plan.describe()["identity"] for plan in others)}) == len(others) + 1


def test_a_higher_limit_on_the_cost_goes_on_with_the_same_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered and paid for is not asked again; another model is another run."""
    monkeypatch.setattr("cascade.shbench.plan.examine", lambda config, recordings: Report((), {}, ()))

    def key(**settings: Any) -> str:
        config = tones.config_of(folder)
        chat = OpenAISettings(use="openai", **settings)
        config = config.model_copy(update={"stages": (*config.stages[:-1], chat)})
        return make_plan(config, "tones", modes=[Mode.SELECTIVE]).stream_key

    assert key() == key(max_cost=2.0, concurrency=3, timeout_s=5.0, cache=tmp_path) == key(max_cost=9.0)
    assert len({key(), key(model="gpt-4o-mini"), key(base_url="http://127.0.0.1:1")}) == 3


def test_the_description_holds_no_question_and_no_place_on_this_machine(folder: Path) -> None:
    described = json.dumps({**tones.plan_of(folder).describe(), "determined_by": None})
    assert "What is said" not in described
    assert str(folder) not in described


# --- what is missing --------------------------------------------------------------------------------------------------


def test_a_configuration_without_an_answerer_is_refused(folder: Path) -> None:
    config = tones.config_of(folder)
    config = config.model_copy(update={"stages": config.stages[:-1]})
    with pytest.raises(ConfigError, match="a benchmark asks questions, but the configuration has no answerer"):
        make_plan(config, "tones", modes=[Mode.GENERAL])


def test_an_enrolment_that_is_not_there_is_said_before_anything_is_heard(folder: Path) -> None:
    config = tones.config_of(folder).with_enrolment([folder / "away.wav"])
    with pytest.raises(NotReadyError, match=r"away\.wav"):
        make_plan(config, "tones", modes=[Mode.GENERAL])


def test_recordings_for_which_the_memory_is_too_small_are_not_begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Machine((), 100_000_000, {}, lambda: False)
    monkeypatch.setattr(
        "cascade.shbench.plan.examine", lambda config, recordings: examine(config, recordings, machine=small)
    )
    with pytest.raises(NotReadyError, match=r"^the recordings need about .* of memory on cpu, which has 100\.0 MB"):
        tones.plan_of(folder)


def test_the_small_benchmark_is_the_default() -> None:
    plan = make_plan(load_config("ondevice"), "ondevice", modes=tuple(Mode))
    assert len(plan.recordings) == 12
    assert len(plan.items) == len(plan.data.items) == 120
    assert all(recording.words and recording.words.keys() == {"main", "bystander"} for recording in plan.recordings)


def test_own_files_are_told_by_content_wherever_a_setting_names_them() -> None:
    own = {"a/model.gguf": "sha256:1", "b/weights/one.bin": "sha256:2"}
    assert own_content("a/model.gguf", own) == "sha256:1"
    assert own_content(["a/model.gguf", "c"], own) == ["sha256:1", "c"]
    assert own_content("b/weights", own) == "own"
    assert own_content("large-v3", own) == "large-v3"
    assert own_content(4.0, own) == 4.0
