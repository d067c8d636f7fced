from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cascade.answering.spending import Price
from cascade.backends import faster_whisper, pyannote, separator, sepformer, whisper
from cascade.config import BenchmarkSettings, CascadeConfig, find_config, load_config
from cascade.diarization import Diarizer, ForegroundDiarizer
from cascade.errors import ConfigError, EnrolmentError, ModelError
from cascade.manifests import checksums, manifests
from cascade.overlap import OverlapPolicy
from cascade.packaged import data_folder
from cascade.separation import Encoder
from cascade.settings import (
    ForegroundSettings,
    LoudestSourceSettings,
    MainSpeakerSettings,
    OnlineClusteringSettings,
    OpenAISettings,
    SepFormerSettings,
    stages_by_name,
)
from cascade.speech import SpeechDetector
from cascade.stage import Chain
from cascade.types import SAMPLE_RATE, AudioChunk, Mode, Samples, Span, SpeakerTurn
from tests.canary import PitchEncoder
from tests.test_backends_pyannote import write_pipeline

Write = Callable[..., Path]

CHAIN = """\
stages:
  - use: mixture
  - use: online_clustering
  - use: main_speaker
  - use: faster_whisper
  - use: extractive
"""


LLAMA = CHAIN.replace("use: extractive", 'use: llamacpp\n    model: "away"')
RATES = ("max_cost", "requests_per_minute", "tokens_per_minute", "timeout_s")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a configuration; returns its path."""

    def _write(text: str | bytes, name: str = "own.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


def gate(text: str) -> str:
    """Return CHAIN with settings for the gate, which then stand from line 5 on."""
    lines = "".join(f"\n    {line}" for line in text.splitlines())
    return CHAIN.replace("use: main_speaker", f"use: main_speaker{lines}")


def chat(text: str) -> str:
    """Return CHAIN with a chat model and a setting of it, which stands on line 7."""
    return CHAIN.replace("use: extractive", f"use: openai\n    {text}")


def refusal(path: Path) -> str:
    """Return the one line with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def the_gate(config: CascadeConfig) -> MainSpeakerSettings:
    return next(stage for stage in config.stages if isinstance(stage, MainSpeakerSettings))


# --- what is valid ----------------------------------------------------------------------------------------------------


def test_a_plain_chain_has_the_defaults(write: Write) -> None:
    config = load_config(write(CHAIN))
    assert [stage.use for stage in config.stages] == [
        "mixture",
        "online_clustering",
        "main_speaker",
        "faster_whisper",
        "extractive",
    ]
    assert [stage.use for stage in config.stream] == ["mixture", "online_clustering", "main_speaker", "faster_whisper"]
    assert config.answerer is config.stages[-1]


def test_an_answerer_is_not_needed(write: Write) -> None:
    config = load_config(write(CHAIN.replace("  - use: extractive\n", "")))
    assert config.answerer is None
    assert len(config.stream) == 4


def test_settings_are_read(write: Write) -> None:
    text = "threshold: 1\nmin_turn_s: 0.4\noverlap: withhold\nalways: true\nenrolment: [a.wav, b.wav]"
    set_to = the_gate(load_config(write(gate(text))))
    assert (set_to.threshold, set_to.min_turn_s, set_to.overlap, set_to.always) == (
        1.0,
        0.4,
        OverlapPolicy.WITHHOLD,
        True,
    )


def test_an_enrolment_is_looked_for_beside_the_configuration(write: Write, tmp_path: Path) -> None:
    one = the_gate(load_config(write(gate("enrolment: me.wav"))))
    assert one.enrolment == (tmp_path / "me.wav",)
    several = the_gate(load_config(write(gate("enrolment: [voices/me.wav, /elsewhere/me.wav]"))))
    assert several.enrolment == (tmp_path / "voices/me.wav", Path("/elsewhere/me.wav"))


def test_with_enrolment_changes_nothing_else(write: Write) -> None:
    config = load_config(write(gate("threshold: 0.6\nenrolment: me.wav")))
    other = config.with_enrolment([Path("you.wav")])
    assert the_gate(other).enrolment == (Path("you.wav"),)
    assert the_gate(other).threshold == 0.6
    assert other.with_enrolment(the_gate(config).enrolment) == config


def test_an_enrolment_is_a_file_or_else_the_name_of_one_that_is_kept(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_ENROLMENTS", str(tmp_path / "kept"))
    path = write(gate("enrolment: me"))
    assert the_gate(load_config(path)).enrolment == (tmp_path / "kept" / "me.json",)
    assert load_config(path).with_enrolment(["me"]) == load_config(path)
    (tmp_path / "me").touch()  # beside the configuration
    assert the_gate(load_config(path)).enrolment == (tmp_path / "me",)
    assert the_gate(load_config(path).with_enrolment(["me"])).enrolment == (tmp_path / "kept" / "me.json",)


@pytest.mark.parametrize(
    ("stage", "encoder"),
    [
        ("online_clustering", "d-vector-ge2e"),
        ("pyannote", "speaker-diarization-community-1"),
        ("loudest_source", None),
    ],
)
def test_the_gate_knows_whose_embeddings_it_is_given(write: Write, stage: str, encoder: str | None) -> None:
    found = load_config(write(CHAIN.replace("online_clustering", stage))).encoder
    assert (None if found is None else found.name) == encoder


def test_an_encoder_of_one_file_has_that_files_sha256_and_more_files_count_together(
    write: Write, tmp_path: Path
) -> None:
    one = load_config(write(CHAIN)).encoder
    assert one is not None
    assert one.sha256 == next(iter(checksums(manifests()["d-vector-ge2e"]).values()))
    own = tmp_path / "own"
    own.mkdir()
    config = load_config(write(CHAIN.replace("use: online_clustering", f"use: pyannote\n    model: {own}")))
    found = set()
    write_pipeline(own)
    for name in ("segmentation/pytorch_model.bin", "embedding/pytorch_model.bin", "plda/plda.npz"):
        found.add(config.encoder)
        (own / name).write_text("another")
    assert len({*found, config.encoder}) == 4
    (own / "results").mkdir()
    (own / "results" / "run.json").write_text("what else lies there is none of it")
    assert len({*found, config.encoder}) == 4


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ({"use": "sepformer"}, {"hyperparams.yaml", "encoder.ckpt", "masknet.ckpt", "decoder.ckpt"}),
        ({"use": "faster_whisper"}, {"config.json", "model.bin", "tokenizer.json", "vocabulary.txt"}),
    ],
)
def test_only_what_is_read_of_a_folder_is_a_models_own(tmp_path: Path, stage: dict[str, str], names: set[str]) -> None:
    """Results in a model's folder would change what the run is that they are of."""
    for name in (*names, "results/journal.jsonl", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    key = "size" if stage["use"] == "faster_whisper" else "model"
    settings = stages_by_name()[stage["use"]].model_validate({**stage, key: str(tmp_path)})
    assert set(settings.own_files) == {tmp_path / name for name in names}


def test_with_enrolment_needs_a_stage_that_enrols(write: Write) -> None:
    config = load_config(write(CHAIN.replace("main_speaker", "everyone")))
    with pytest.raises(ConfigError, match="add 'use: main_speaker'"):
        config.with_enrolment([Path("me.wav")])


def test_with_threshold_changes_nothing_else_and_is_part_of_what_a_run_is(write: Write) -> None:
    config = load_config(write(gate("threshold: 0.6\nenrolment: me.wav")))
    other = config.with_threshold(0.3)
    assert (the_gate(other).threshold, the_gate(other).enrolment) == (0.3, the_gate(config).enrolment)
    assert other.with_threshold(0.6) == config
    assert other.sha256 == load_config(write(gate("threshold: 0.3\nenrolment: me.wav"))).sha256 != config.sha256


def test_a_threshold_needs_a_gate_and_is_a_probability(write: Write) -> None:
    with pytest.raises(
        ConfigError, match=r"a threshold was given, but .* add 'use: main_speaker', or leave the option"
    ):
        load_config(write(CHAIN.replace("main_speaker", "everyone"))).with_threshold(0.5)
    for threshold in (-0.1, 1.1, math.nan):
        with pytest.raises(ConfigError, match="give a probability, from 0 to 1"):
            load_config(write(CHAIN)).with_threshold(threshold)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CHAIN, "dominant speaker; nobody enrolled"),
        (CHAIN.replace("main_speaker", "everyone"), "no gate"),
        ("me.wav", "enrolled: me.wav"),
        ("[voices/me.wav, /elsewhere/you.wav]", "enrolled: me.wav, you.wav"),
        ("me", "enrolled: me"),
    ],
)
def test_it_is_told_how_the_main_speaker_is_known(write: Write, text: str, told: str) -> None:
    """By names alone: a kept enrolment has no ending, and no folder is anybody's business."""
    assert load_config(write(text if "use:" in text else gate(f"enrolment: {text}"))).main_speaker == told


def test_settings_cannot_be_changed_afterwards(write: Write) -> None:
    config = load_config(write(CHAIN))
    with pytest.raises(ValidationError, match="frozen"):
        the_gate(config).threshold = 0.0


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(write: Write) -> None:
    assert load_config(write(b"\xef\xbb\xbf" + CHAIN.replace("\n", "\r\n").encode())) == load_config(write(CHAIN))


# --- paths ------------------------------------------------------------------------------------------------------------

PATHS = {
    ("sepformer", "model"): sepformer.MODELS,
    ("sepformer", "overlap_model"): (pyannote.MODEL,),
    ("foreground", "model"): (separator.MODEL,),
    ("pyannote", "model"): (pyannote.MODEL,),
    ("main_speaker", "enrolment"): (),
    ("whisper", "size"): (whisper.DEFAULT_SIZE,),
    ("faster_whisper", "size"): tuple(faster_whisper.MANIFESTS),
    ("openai", "cache"): (),
    ("llamacpp", "model"): (),
}
"""Every setting of a stage that can be a path, with what else it can be."""

WORDS = {
    ("whisper", "language"),
    ("faster_whisper", "language"),
    ("openai", "model"),
    ("openai", "base_url"),
    ("openai", "api_key_env"),
    ("show_prompt", "model"),
}
"""Texts that are none."""

PLACES = {
    "sepformer": 0,
    "foreground": 0,
    "pyannote": 1,
    "main_speaker": 2,
    "whisper": 3,
    "faster_whisper": 3,
    "openai": 4,
    "llamacpp": 4,
}
"""Where in CHAIN a stage stands."""


def with_path(use: str, field: str, value: str) -> str:
    """Return CHAIN with a stage and a setting of it."""
    head, *stages = CHAIN.splitlines()
    stages[PLACES[use]] = f"  - use: {use}\n    {field}: {value}"
    return "\n".join([head, *stages, ""])


def set_to(config: CascadeConfig, use: str, field: str) -> str:
    (value,) = (getattr(stage, field) for stage in config.stages if stage.use == use)
    return str(value[0] if isinstance(value, tuple) else value)


def test_it_is_decided_of_every_text_whether_it_can_be_a_path() -> None:
    found = {
        (use, name)
        for use, stage in stages_by_name().items()
        for name, field in stage.model_fields.items()
        if name != "use" and ("Path" in str(field.annotation) or field.annotation in (str, str | None))
    }
    assert found == PATHS.keys() | WORDS


@pytest.mark.parametrize(("use", "field"), PATHS)
def test_relative_paths_of_a_stage_are_read_from_the_configurations_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, field: str
) -> None:
    path = write(with_path(use, field, "own/place.bin"))
    elsewhere = write(with_path(use, field, "/own/place.bin"), "absolute.yaml")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    assert set_to(load_config(path), use, field) == str(tmp_path / "own" / "place.bin")
    assert set_to(load_config("../own.yaml"), use, field) == str(Path("../own/place.bin"))
    assert set_to(load_config(elsewhere), use, field) == "/own/place.bin"


@pytest.mark.parametrize(("use", "field", "name"), [(*key, name) for key, names in PATHS.items() for name in names])
def test_the_name_of_a_model_is_no_path(write: Write, use: str, field: str, name: str) -> None:
    assert set_to(load_config(write(with_path(use, field, name))), use, field) == name


def test_every_path_of_the_benchmark_is_read_from_the_configurations_folder(write: Write, tmp_path: Path) -> None:
    paths = [name for name, field in BenchmarkSettings.model_fields.items() if "Path" in str(field.annotation)]
    text = CHAIN + "benchmark:\n" + "".join(f"  {name}: own/{name}\n" for name in paths)
    benchmark = load_config(write(text)).benchmark
    assert [getattr(benchmark, name) for name in paths] == [tmp_path / "own" / name for name in paths]
    assert len(paths) == 4


# --- the hash ---------------------------------------------------------------------------------------------------------


def test_the_hash_is_of_what_is_set_not_of_how_it_is_written(write: Write) -> None:
    plain = load_config(write(gate("threshold: 0.6\nalways: true")))
    flow = "{stages: [{use: mixture}, {use: online_clustering}, {always: true, threshold: 0.60, use: main_speaker}, "
    flow += "{use: faster_whisper}, {use: extractive}]}  # the same"
    assert load_config(write(flow)).sha256 == plain.sha256
    assert re.fullmatch("[0-9a-f]{64}", plain.sha256)


def test_a_default_that_is_written_out_changes_no_hash(write: Write) -> None:
    default = the_gate(load_config(write(CHAIN))).threshold
    assert load_config(write(gate(f"threshold: {default}"))).sha256 == load_config(write(CHAIN)).sha256


@pytest.mark.parametrize(
    "text",
    [
        gate("threshold: 0.61"),
        gate("always: true"),
        gate("enrolment: a.wav"),
        CHAIN.replace("main_speaker", "everyone"),
    ],
)
def test_other_settings_have_another_hash(write: Write, text: str) -> None:
    assert load_config(write(text)).sha256 != load_config(write(CHAIN)).sha256


# --- SepFormer's settings ---------------------------------------------------------------------------------------------


SEPARATED = "stages:\n  - use: sepformer\n"


def test_what_tells_overlap_is_needed_only_where_it_is_asked(tmp_path: Path) -> None:
    asking = SepFormerSettings(use="sepformer", when="overlap")
    assert pyannote.MODEL in asking.models
    assert pyannote.MODEL not in SepFormerSettings(use="sepformer").models
    (tmp_path / "config.yaml").write_text("")
    own = SepFormerSettings(use="sepformer", when="overlap", overlap_model=str(tmp_path))
    assert pyannote.MODEL not in own.models
    assert own.own_files == (tmp_path / "config.yaml",)
    with pytest.raises(ModelError, match="is not the configuration of a pyannote pipeline"):
        own.check_own_model()
    idle = SepFormerSettings(use="sepformer", overlap_model=str(tmp_path))
    assert idle.own_files == ()
    idle.check_own_model()


@pytest.mark.parametrize("told", [False, True])
def test_where_nobody_overlaps_nothing_is_separated(told: bool) -> None:
    separated: list[int] = []

    def separate(windows: Samples) -> Samples:
        separated.append(len(windows))
        return np.stack([windows, windows], axis=1)

    made = SepFormerSettings(use="sepformer", when="overlap").around(
        separate, SAMPLE_RATE, 2, PitchEncoder(), lambda _: told
    )
    stage, audio = made(Mode.GENERAL), np.full(SAMPLE_RATE * 5, 0.1, np.float32)
    stage.push(AudioChunk(Span(0, len(audio)), audio))
    stage.flush()
    assert bool(separated) is told


# --- the foreground's settings ----------------------------------------------------------------------------------------


def test_a_network_of_ones_own_takes_the_place_of_the_one_that_has_a_manifest(tmp_path: Path) -> None:
    known = ForegroundSettings(use="foreground")
    assert (known.models, known.own_files) == ((separator.MODEL, "silero-vad-v6"), ())
    known.check_own_model()
    own = ForegroundSettings(use="foreground", model=str(tmp_path / "mine.onnx"))
    assert (own.models, own.own_files) == (("silero-vad-v6",), ())
    with pytest.raises(ModelError, match="cannot be read"):
        own.check_own_model()
    (tmp_path / "mine.onnx").write_bytes(b"\x08\x08")
    assert own.own_files == (tmp_path / "mine.onnx",)
    own.check_own_model()
    with pytest.raises(ModelError, match=r"mine.onnx is not a network that onnxruntime can load; expected foreground"):
        own.load(lambda: Chain([]))


def test_the_foregrounds_lookahead_is_the_stages() -> None:
    settings, made = ForegroundSettings(use="foreground"), list[None]()

    def detector() -> SpeechDetector:
        made.append(None)
        return lambda _: 0.0

    make = settings.around(lambda spectra: spectra, detector)
    stages = make(Mode.SELECTIVE), make(Mode.GENERAL)
    assert {stage.lookahead for stage in stages} == {round((settings.lookahead_s or 0) * SAMPLE_RATE)}
    assert settings.lookahead_s == 2.0
    assert len(made) == 2, "each stream has a detector of its own"


@pytest.mark.parametrize(
    ("text", "price"),
    [("{input: 0, output: 0}", Price(0, 0, 0)), ("{input: 2, cached_input: 0.5, output: 8}", Price(2, 0.5, 8))],
)
def test_the_price_of_a_server_of_ones_own_allows_a_limit(write: Write, text: str, price: Price) -> None:
    config = load_config(write(chat(f"price: {text}\n    base_url: http://localhost:1/v1"))).with_max_cost(1.0)
    answerer = config.answerer
    assert isinstance(answerer, OpenAISettings)
    assert answerer.price is not None
    assert answerer.price.price == price
    assert "price" in answerer.immaterial


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GROQ_KEY_2", "_K", "MY_VERY_LONG_NAME_OF_A_KEY_FOR_THE_SERVER_HERE"]
)
def test_a_variable_of_the_key_is_named_in_capitals(write: Write, name: str) -> None:
    answerer = load_config(write(chat(f"api_key_env: {name}"))).answerer
    assert isinstance(answerer, OpenAISettings)
    assert answerer.key_variable == name


@pytest.mark.parametrize(
    "key",
    [
        "gsk_SECRET0123456789abcdef",
        "sk_proj_abcdefgh",
        "secretword",
        "SECRET0123456789ABCDEF0123",
        "AKIASECRET0123456789",
        "SECRET_" * 12,
        "sk-SECRET-0123",
    ],
)
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_shown(write: Write, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(chat(f"api_key_env: {key}")))
    assert "openai.api_key_env: expected the name of an environment variable, such as OPENAI_API_KEY" in str(
        caught.value
    )
    assert key not in "".join(traceback.format_exception(caught.value))


# --- what is wrong with a file ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (gate("thresold: 0.6"), "own.yaml, line 5: unknown key 'thresold'; did you mean 'threshold'?"),
        (gate("always: true\nxyz: 1"), "line 6: unknown key 'xyz'; valid: always, enrolment, hold_s, "),
        (CHAIN.replace("stages", "stage"), "line 1: unknown key 'stage'; did you mean 'stages'?"),
        (CHAIN.replace("_speaker", "_speeker"), "line 4: unknown stage 'main_speeker'; did you mean 'main_speaker'"),
        (CHAIN.replace("use: mixture", "used: mixture"), "line 2: a stage needs a 'use:' key; valid: mixture, "),
        (CHAIN.replace("use: mix", "mix"), "line 2: stages.0: expected a stage, such as '- use: mixture'"),
        (CHAIN.replace("use: mixture", "use: 3"), "line 2: unknown stage '3'; valid: mixture, "),
        (CHAIN.replace("use: mixture", "use:"), "line 2: unknown stage 'None'; valid: mixture, "),
        ("stages: mixture", "line 1: stages: expected a list, got text"),
        ("stages:", "line 1: stages: expected a list, got nothing"),
        ("stages: []", "the chain must end with Utterance or Answer, but the audio gives AudioChunk"),
        ("config: {}", "'stages:' is missing"),
        ("3: 4", "line 1: a key must be text; valid: benchmark, stages"),
        (gate("threshold: high"), "line 5: main_speaker.threshold: expected a number, got text"),
        (gate("threshold: '0.6'"), "line 5: main_speaker.threshold: expected a number, got text"),
        (gate("threshold: true"), "line 5: main_speaker.threshold: expected a number, got true or false"),
        (gate("threshold:"), "line 5: main_speaker.threshold: expected a number, got nothing"),
        (gate("threshold: 1.5"), "line 5: main_speaker.threshold: input should be less than or equal to 1"),
        (gate("threshold: .nan"), "line 5: main_speaker.threshold: input should be a finite number"),
        (gate("hold_s: .inf"), "line 5: main_speaker.hold_s: input should be a finite number"),
        (gate("hold_s: -1"), "line 5: main_speaker.hold_s: input should be greater than or equal to 2"),
        (gate("hold_s: 10 s"), "line 5: main_speaker.hold_s: expected a number, got text"),
        (gate("overlap: admit"), "main_speaker.overlap: input should be 'withhold', 'admit_if_dominant', 'separate'"),
        (gate("enrolment: 3"), "line 5: main_speaker.enrolment: expected a list, got a number"),
        (gate("enrolment: [a.wav, 3]"), "main_speaker.enrolment.1: "),
        (CHAIN.replace("- use: ex", "  cpu_threads: 1.5 #"), "6: faster_whisper.cpu_threads: expected a whole number"),
        (CHAIN.replace("- use: ex", "  device: gpu #"), "faster_whisper.device: input should be 'cpu' or 'cuda'"),
        (SEPARATED + "    hop_s: 4", "windows must overlap: expected less than window_s, 4.0, got 4.0"),
        (SEPARATED + "    window_s: 2", "windows must overlap: expected less than window_s, 2.0, got 2.0"),
        (SEPARATED + "    when: never", "line 3: sepformer.when: input should be 'always' or 'overlap'"),
        ("stages:\n  - use: foreground\n    threads: 0", "line 3: foreground.threads: input should be greater than or"),
        (SEPARATED + "    threads: -1", "line 3: sepformer.threads: input should be greater than or equal to 0"),
        *((chat(f"{key}: .inf"), f"openai.{key}: input should be a finite number") for key in RATES),
        *((chat(f"{key}: .nan"), f"openai.{key}: input should be a finite number") for key in RATES),
        (chat("requests_per_minute: 1e-9"), "requests_per_minute: input should be greater than or equal to 0.01"),
        (chat("tokens_per_minute: 1e-320"), "tokens_per_minute: input should be greater than or equal to 1"),
        (chat("timeout_s: 1e-320"), "timeout_s: input should be greater than or equal to 0.1"),
        (
            chat("price: {input: 0, output: 0, cached_input: 1000}"),
            "line 7: openai.price.cached_input: expected at most what other tokens cost, 0.0, got 1000.0",
        ),
        (gate('enrolment: "a\\0.wav"'), "line 5: main_speaker.enrolment: expected text without a NUL character"),
        (gate('enrolment: ["a\\0.wav"]'), "line 5: main_speaker.enrolment: expected text without a NUL character"),
        (chat('cache: "\\0"'), "line 7: openai.cache: expected text without a NUL character"),
        (chat('model: "\\0"'), "line 7: openai.model: expected text without a NUL character"),
        (LLAMA.replace("away", "\\0"), "llamacpp.model: expected text without a NUL character"),
        (f'benchmark: {{data: "\\0"}}\n{CHAIN}', "line 1: benchmark.data: expected text without a NUL character"),
        (chat("price: {input: 1, ouput: 1}"), "line 7: unknown key 'ouput'; did you mean 'output'?"),
        (chat("price: {input: 1}"), "line 7: 'openai.price.output:' is missing"),
        (chat("price: {input: 1, output: -1}"), "openai.price.output: input should be greater than or equal to 0"),
        (chat("price: free"), "line 7: openai.price: "),
        (chat("base_url: 'http://\uff4cocalhost:1/v1'"), "line 7: openai.base_url: base_url is no address"),
        (chat('base_url: "http://localhost/v1\\r\\nX: y"'), "line 7: openai.base_url: base_url is no address"),
        (chat("base_url: ''"), "expected one such as http://localhost:8000/v1"),
        ("- use: mixture", "expected a file that begins with 'stages:', got a list"),
        ("mixture", "expected a file that begins with 'stages:', got text"),
        ("", "expected a file that begins with 'stages:', got nothing"),
        ("# nothing but a comment\n", "expected a file that begins with 'stages:', got nothing"),
        ("stages:\n\t- use: mixture", "line 2: not valid YAML: found character '\\t' that cannot start any token"),
        (CHAIN + "stages: []", "line 7: not valid YAML: found duplicate key \"stages\""),
        (gate("threshold: 0.6\nthreshold: 0.1"), "line 6: not valid YAML: found duplicate key \"threshold\""),
        ("stages: [", "not valid YAML: "),
        ("[" * 3000, "not valid YAML: it is nested too deeply"),
        (CHAIN + "---\n" + CHAIN, "not valid YAML: but found another document"),
        (CHAIN + "at: 2026-13-45", "not valid YAML: it holds a date or a number that cannot be one"),
        ("stages: " + "9" * 5000, "not valid YAML: it holds a date or a number that cannot be one"),
        ("stages: \x01", "not valid YAML: unacceptable character"),
        ("a: !!python/object/apply:os.system ['true']", "line 1: not valid YAML: could not determine a constructor"),
        (CHAIN.encode("utf-16"), "byte 1 is not UTF-8; save the file as UTF-8"),
        (CHAIN.encode() + b"# caf\xe9", "is not UTF-8; save the file as UTF-8"),
    ],
)  # fmt: skip
def test_the_error_names_the_place_and_the_remedy(write: Write, text: str | bytes, expected: str) -> None:
    message = refusal(write(text))
    assert expected in message
    assert "own.yaml" in message


def instead(stage: str, text: str) -> str:
    """Return CHAIN in which this text, indented, stands in place of one of its stages."""
    return CHAIN.replace(f"- use: {stage}", "- use: " + text.replace("; ", "\n    "))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            instead("online_clustering", "pyannote; min_speakers: 5; max_speakers: 2"),
            "line 5: pyannote.max_speakers: expected at least min_speakers, 5, got 2",
        ),
        (
            instead("faster_whisper", "whisper; fp16: true"),
            "line 6: whisper.fp16: whisper computes in float16 on a GPU only: expected false with device: cpu",
        ),
        (
            instead("faster_whisper", "whisper; language: xx"),
            "line 6: whisper.language: expected the code of a language",
        ),
        (
            instead("faster_whisper", "whisper; size: models/base.en.pt; language: de"),
            "line 7: whisper.language: that size of Whisper knows English only: expected en, got de",
        ),
        (instead("faster_whisper", "faster_whisper; language: de"), "that size of Whisper knows English only"),
        (instead("faster_whisper", "faster_whisper; language: xx"), "such as en or de, got xx"),
        *(
            (
                instead("faster_whisper", f"faster_whisper; compute_type: {kind}"),
                f"expected one of int8, int8_float32, int16, float32 with device: cpu, got {kind}",
            )
            for kind in ("float16", "bfloat16", "int8_float16")
        ),
        (
            instead("faster_whisper", "faster_whisper; device: cuda; compute_type: int16"),
            "line 7: faster_whisper.compute_type: expected one of int8, int8_float32, int8_float16, float16, ",
        ),
    ],
)
def test_what_loading_would_refuse_is_refused_when_it_is_read(write: Write, text: str, expected: str) -> None:
    assert expected in refusal(write(text))


@pytest.mark.parametrize(
    "text",
    [
        instead("online_clustering", "pyannote; min_speakers: 2; max_speakers: 2"),
        instead("online_clustering", "pyannote; max_speakers: 1"),
        instead("faster_whisper", "whisper; fp16: true; device: cuda"),
        instead("faster_whisper", "whisper; language: yue"),
        instead("faster_whisper", "whisper; language: no; size: mine.pt"),
        instead("faster_whisper", "whisper; language: null; size: tiny.en.pt"),
        instead("faster_whisper", "faster_whisper; language: de; size: large-v3"),
        instead("faster_whisper", "faster_whisper; compute_type: int8_float32"),
        instead("faster_whisper", "faster_whisper; compute_type: float16; device: cuda"),
    ],
)
def test_what_can_be_loaded_is_not_refused(write: Write, text: str) -> None:
    load_config(write(text))


@pytest.mark.parametrize("word", ["off", "no", "n", "yes", "on", "0", "1", "'false'", "~"])
def test_a_word_is_no_switch(write: Write, word: str) -> None:
    """Under YAML 1.2 `off` is a word; taken for false, it might open a gate that was meant to stay shut."""
    assert "line 5: main_speaker.always: expected true or false, got " in refusal(write(gate(f"always: {word}")))


def test_all_problems_are_told_at_once(write: Write) -> None:
    message = refusal(write(gate("thresold: 0.6\nhold_s: 1")))
    assert "line 5" in message
    assert "line 6" in message


@pytest.mark.parametrize(
    "text",
    [
        gate("threshold: sk-SECRET"),
        gate("api_key: sk-SECRET"),
        gate("always: sk-SECRET"),
        gate("overlap: sk-SECRET"),
        gate("enrolment: {key: sk-SECRET}"),
        gate("api_key: sk-SECRET\napi_key: sk-SECRET"),
        gate("api_key: 'sk-SECRET"),
        CHAIN + "api_key: sk-SECRET",
        CHAIN + "api_key: [sk-SECRET",
        "sk-SECRET",
        "stages: [sk-SECRET]",
        "stages: {use: sk-SECRET}",
    ],
)
def test_no_value_is_echoed(write: Write, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text))
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    chained = caught.value.__cause__ or caught.value.__context__
    assert chained is None or not isinstance(chained, ValidationError)


@given(st.text(max_size=60) | st.text("stages: use\n-[]{}#&*!|>'\"%@`0\t", max_size=40).map(lambda text: CHAIN + text))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_is_a_configuration_or_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with suppress(ConfigError):
        load_config(path)
        return
    refusal(path)


# --- stages that do not fit -------------------------------------------------------------------------------------------


NO_GATE = "nothing may be transcribed that has not passed a gate; add 'use: main_speaker' before it"


@pytest.mark.parametrize(
    ("without", "at", "given", "remedy"),
    [
        (
            "mixture",
            "2: online_clustering",
            "SeparatedChunk, but the audio gives AudioChunk",
            "stand: mixture, sepformer, foreground",
        ),
        (
            "online_clustering",
            "3: main_speaker",
            "SpeakerTurn, but mixture gives SeparatedChunk",
            "loudest_source, pyannote",
        ),
        ("main_speaker", "4: faster_whisper", "AdmittedTurn, but online_clustering gives SpeakerTurn", NO_GATE),
        (
            "faster_whisper",
            "5: extractive",
            "Utterance, but main_speaker gives AdmittedTurn",
            "faster_whisper",
        ),
    ],
)
def test_a_missing_stage_is_named(write: Write, without: str, at: str, given: str, remedy: str) -> None:
    message = refusal(write(CHAIN.replace(f"  - use: {without}\n", "")))
    assert f"line {at} takes {given}" in message
    assert message.endswith(remedy)


def test_without_gate_and_recogniser_nothing_is_answered(write: Write) -> None:
    text = CHAIN.replace("  - use: main_speaker\n", "").replace("  - use: faster_whisper\n", "")
    assert "add 'use: main_speaker' before it" in refusal(write(text))


def test_a_chain_must_reach_text(write: Write) -> None:
    text = CHAIN.replace("  - use: extractive\n", "").replace("  - use: faster_whisper\n", "")
    assert "must end with Utterance or Answer, but main_speaker gives AdmittedTurn" in refusal(write(text))


@pytest.mark.parametrize("use", ["mixture", "main_speaker", "extractive"])
def test_no_stage_comes_twice(write: Write, use: str) -> None:
    assert f"{use} takes " in refusal(write(CHAIN.replace(f"  - use: {use}\n", f"  - use: {use}\n" * 2)))


def test_a_misspelt_stage_is_not_also_reported_as_a_gap(write: Write) -> None:
    assert refusal(write(CHAIN.replace("main_speaker", "main_speeker"))).count(";") == 1


# --- finding a file by its name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ondevice", "ondevice.yaml", Path("ondevice"), data_folder("configs") / "ondevice"])
def test_a_name_is_found_with_or_without_yaml(name: str | Path) -> None:
    assert find_config(name) == data_folder("configs") / "ondevice.yaml"


def test_what_is_given_comes_before_what_is_built_in(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(CHAIN, "ondevice.yaml")
    monkeypatch.chdir(tmp_path)
    assert find_config("ondevice.yaml") == Path("ondevice.yaml")
    assert find_config("ondevice") == Path("ondevice.yaml")
    assert find_config("./ondevice") == Path("ondevice.yaml")


@pytest.mark.parametrize("name", ["nosuch", "nosuch.yaml", "sub/nosuch", "/nowhere/nosuch"])
def test_the_error_names_both_places(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_config(name)
    assert f"no configuration at {name} nor in {data_folder('configs')}" in str(caught.value)
    assert "cascade comes with: foreground.yaml, ondevice.yaml" in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "x" * 5000, "a\0b", "a\nb", " ", "~", "-", "*"])
def test_odd_names_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration at"):
        load_config(tmp_path)


# --- the closed list --------------------------------------------------------------------------------------------------


def test_every_stage_says_what_it_takes_and_gives() -> None:
    for name, stage in stages_by_name().items():
        assert isinstance(stage.takes, type), name
        assert isinstance(stage.gives, type), name
        assert stage.__doc__, name


def test_durations_end_in_s() -> None:
    """What looks like a duration says its unit in its name, and nothing else ends in `_s`."""
    for stage in stages_by_name().values():
        for name, field in stage.model_fields.items():
            if name.endswith("_s"):
                assert field.annotation is float
            assert not re.search("second|millis|_ms$|duration|time", name.removesuffix("timeout_s"))


class Listener:
    """Notes what it hears, and gives no turns."""

    lookahead = 0

    def __init__(self, heard: list[Span]) -> None:
        self.heard = heard

    def push(self, chunk: AudioChunk, /) -> list[SpeakerTurn]:
        self.heard.append(chunk.span)
        return []

    def flush(self) -> list[SpeakerTurn]:
        return []


def test_an_enrolment_is_heard_in_pieces_so_that_no_turn_hides_two_voices(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "me.wav", np.zeros(10 * 16_000, np.float32), 16_000)
    heard: list[Span] = []
    gate = MainSpeakerSettings(use="main_speaker", enrolment=(tmp_path / "me.wav",))
    with pytest.raises(EnrolmentError, match="no speech found"):
        gate.load(lambda: Chain([Listener(heard)]))
    assert heard == [Span(0, 64_000), Span(0, 64_000), Span(0, 32_000)]


def test_what_is_heard_in_the_background_of_an_enrolment_is_nobodys_who_is_enrolled(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "me.wav", np.full(8 * 16_000, 0.1, np.float32), 16_000)
    voice = np.array([1, 0], np.float32)

    class Two(Listener):
        def push(self, chunk: AudioChunk, /) -> list[SpeakerTurn]:
            mine = SpeakerTurn(chunk.span, "speaker_1", chunk.mixture, voice, -20.0, goes_on=False)
            theirs = replace(mine, speaker="background", embedding=voice[::-1].copy(), background=True)
            return [mine, theirs]

    gate = MainSpeakerSettings(use="main_speaker", enrolment=(tmp_path / "me.wav",))
    profile, speech_s = gate.hear(lambda: Chain([Two([])]))
    np.testing.assert_array_equal(profile.voice, voice)
    assert speech_s == 8


SEPARATE = """
stages:
  - use: {first}
  - use: {second}
  - use: main_speaker
    overlap: separate
  - use: faster_whisper
"""


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        (
            "mixture",
            "online_clustering",
            "needs a stage in front that gives several sources, such as 'use: fore",
        ),
        ("mixture", "pyannote", "needs a stage in front that gives several sources, such as 'use: fore"),
        ("sepformer", "loudest_source", "verifies sources by their voice, but no stage in front tells voices"),
    ],
)
def test_separate_needs_sources_and_voices(write: Write, first: str, second: str, refusal: str) -> None:
    path = write(SEPARATE.format(first=first, second=second))
    with pytest.raises(ConfigError) as error:
        load_config(path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}, line 5: overlap: separate {refusal}")


@pytest.mark.parametrize("first", ["sepformer", "foreground"])
@pytest.mark.parametrize("second", ["online_clustering", "pyannote"])
def test_separate_goes_behind_a_separator_and_what_tells_voices(write: Write, first: str, second: str) -> None:
    gate = load_config(write(SEPARATE.format(first=first, second=second))).gate
    assert gate is not None
    assert (gate.overlap, gate.misfit) == (OverlapPolicy.SEPARATE, None)


@pytest.mark.parametrize(
    ("first", "second"),
    [("mixture", "online_clustering"), ("sepformer", "online_clustering"), ("foreground", "pyannote")],
)
def test_the_foreground_is_only_there_where_it_is_told_from_the_background(
    write: Write, first: str, second: str
) -> None:
    path = write(SEPARATE.format(first=first, second=second).replace("separate", "foreground"))
    with pytest.raises(ConfigError) as error:
        load_config(path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(
        f"{path}, line 5: overlap: foreground needs 'use: foreground' and 'use: online_clustering' in front"
    )


@pytest.mark.parametrize(("first", "heard"), [("mixture", Diarizer), ("sepformer", Diarizer), ("foreground", None)])
def test_the_background_is_heard_by_itself_where_there_is_one(
    write: Write, first: str, heard: type[Diarizer] | None
) -> None:
    text = SEPARATE.format(first=first, second="online_clustering").replace("separate", "admit_if_dominant")
    _, clustering, gate = load_config(write(text)).stream[:3]
    assert isinstance(clustering, OnlineClusteringSettings)
    assert clustering.hears_foreground is (heard is None)
    detectors = [lambda frame: 0.0, lambda frame: 0.0]
    stage = clustering.around(iter(detectors).__next__, PitchEncoder())(Mode.SELECTIVE)
    assert type(stage) is (heard or ForegroundDiarizer)
    assert isinstance(gate, MainSpeakerSettings)
    assert gate.misfit is None


def test_settings_that_know_what_is_in_front_are_a_copy() -> None:
    alone = OnlineClusteringSettings(use="online_clustering")
    assert alone.behind([ForegroundSettings(use="foreground")]).hears_foreground
    assert not alone.hears_foreground


def test_the_gate_verifies_with_the_encoder_of_the_turns() -> None:
    asked: list[str] = []

    class Telling(OnlineClusteringSettings):
        def load_encoder(self) -> Encoder:
            asked.append(self.use)
            return PitchEncoder()

    before = [SepFormerSettings(use="sepformer"), Telling(use="online_clustering")]
    plain = MainSpeakerSettings(use="main_speaker").behind(before)
    plain.load(lambda: Chain([]))(Mode.SELECTIVE)
    assert asked == []
    gate = MainSpeakerSettings(use="main_speaker", overlap=OverlapPolicy.SEPARATE).behind(before)
    gate.load(lambda: Chain([]))(Mode.SELECTIVE)
    assert asked == ["online_clustering"]


def test_without_an_encoder_there_is_no_such_gate() -> None:
    gate = MainSpeakerSettings(use="main_speaker", overlap=OverlapPolicy.SEPARATE)
    with pytest.raises(ConfigError, match="needs the speaker encoder of the turns"):
        gate.load(lambda: Chain([]))(Mode.SELECTIVE)
    with pytest.raises(ConfigError, match="no embeddings in the turns of 'loudest_source'"):
        LoudestSourceSettings(use="loudest_source").load_encoder()


def test_other_data_have_no_share_in_the_small_benchmarks_recordings(write: Write) -> None:
    config = load_config(write(CHAIN + "benchmark:\n  data: mine/questions.json\n")).benchmark
    folder = config.data.parent
    assert (config.data.name, folder.name) == ("questions.json", "mine")
    assert (config.audio, config.references) == (folder, None)
    config = load_config(write(CHAIN + "benchmark:\n  data: q.json\n  audio: a\n  references: r.json\n")).benchmark
    assert config.references is not None
    assert (config.audio.name, config.references.name) == ("a", "r.json")
    assert config.audio.parent == config.references.parent == config.data.parent


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("dta: q.json", "unknown key 'dta'; did you mean 'data'?"),
        ("dont_know: off", "benchmark.dont_know: expected true or false, got text"),
        ("description: mine", "benchmark.description: "),
    ],
)
def test_a_mistake_in_the_benchmark_is_named_with_its_line(write: Write, setting: str, line: str) -> None:
    path = write(CHAIN + f"benchmark:\n  {setting}\n")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert f"line {path.read_text().splitlines().index(f'  {setting}') + 1}: {line}" in str(error.value)
