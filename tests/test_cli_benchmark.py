"""`run` without a recording, `score` and `merge`, as a user meets them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests import tone_benchmark as tones
from tests.chat_server import Play, Received, fault, good, serving
from tests.test_cli import CHAT, ROOT, RUN, cascade, short

SHMINI = ROOT / "benchmarks" / "shmini"
CHECK = ("check", "--config", "ondevice.yaml")
SHBENCH = ROOT.parent / "shared" / "shbench"


def items(number: int, **changes: Any) -> list[dict[str, Any]]:
    """Return predictions: all right about the main speaker, "I don't know" about the bystander."""
    found = []
    for index in range(number):
        item = tones.item(index // 6, index % 6)
        right = item["answer"] if item["speaker"] == "main" else item["idk_answer"]
        letter = "ABCDE"[item["options"].index(right)]
        found.append({**item, "pred": f"{letter}. {right}", **changes})
    return found


def write(path: Path, predictions: object) -> Path:
    path.write_bytes(json.dumps(predictions).encode())
    return path


def unprogressed(err: str) -> list[str]:
    """Return what was said but for how far it is, which a slow machine says too."""
    return [line for line in err.splitlines() if not line.endswith(" left")]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((*RUN, "--question", "Who?"), "error: a question was given, but no recording; name the recordings"),
        (
            ("run", "--config", "chat.yaml", "a.wav", "--show-prompt"),
            "error: --show-prompt shows what a question would send, and there is none; give --question TEXT",
        ),
        (("run", "--config", "chat.yaml", "--show-prompt", "--out", "out"), "error: --show-prompt asks nothing of a b"),
        (
            (*RUN, "--show-prompt"),
            "error: this configuration asks no chat model, so it has no prompt; leave the option",
        ),
        (
            ("run", "--config", "chat.yaml", "--max-cost", "inf"),
            "error: a limit on the cost was given that is none, inf; g",
        ),
        (("run", "--config", "chat.yaml", "--max-cost", "nan"), "Error: Invalid value for '--max-cost'"),
        ((*RUN, "a.wav", "--limit", "2"), "error: --data, --audio-root, --limit and --shard are for a benchmark"),
        ((*RUN, "--shard", "3/2"), "error: --shard '3/2': expected I/N with 1 <= I <= N, such as 1/4"),
        ((*RUN, "--limit", "0"), "Error: Invalid value for '--limit'"),
        ((*CHECK, "--limit", "1"), "error: --audio-root, --limit and --shard are for a benchmark; name its questions"),
        ((*CHECK, "a.wav", "--data", "q.json"), "error: recordings and a benchmark (--data) were given"),
        ((*CHECK, "--data", "away.json"), "error: cannot read 'away.json' (No such file or directory)"),
        ((*RUN, "--data", "away.json"), "error: cannot read 'away.json' (No such file or directory)"),
        ((*RUN, "--data", "empty.json"), "error: 'empty.json' holds an empty list, expected"),
        ((*RUN, "--data", "q.json", "--audio-root", "away"), "error: the folder of recordings 'away' does not exist"),
        (
            (*RUN, "--data", "q.json"),
            "error: no recording 'folder/scene 0.wav' under ., nor one",
        ),
        (("score", "away.json"), "Error: Invalid value for "),
        (("score", "full"), "Error: Invalid value for "),
        (("score", "text.json", "--mode", "general"), "error: 'text.json' is not JSON"),
        (("score", "gpt.json", "--mode", "general"), "error: 'gpt.json' holds an object, expected one list of items"),
        (("score", "p_basic.json", "p_basic.json"), "error: "),
        (("score", "p_basic.json", "--out", "full"), "error: 'full/scores.json' exists already and is not overwritten"),
        (("score",), "Error: Missing argument "),
        (("merge", "full", "--out", "out"), "error: 'full' holds no run.json; expected the --out folder"),
        (("merge", "away", "--out", "out"), "error: 'away' holds no run.json; expected the --out folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    write(tmp_path / "empty.json", [])
    write(tmp_path / "q.json", items(2))
    write(tmp_path / "p_basic.json", items(2))
    write(tmp_path / "gpt.json", {"a.wav_0": {"question": "Who?", "answer": "A"}})
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "chat.yaml").write_text(CHAT)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "scores.json").write_text("mine")
    code, out, err = cascade(*arguments, cwd=tmp_path)
    assert (code, out) == (2, "")
    lines = [text for text in err.splitlines() if text and not text.startswith(("Usage", "Try"))]
    assert len(lines) == 1
    assert lines[0].startswith(line)
    assert not (tmp_path / "out").exists()


# --- prompts ----------------------------------------------------------------------------------------------------------

LLAMA = CHAT.replace("use: openai", "use: llamacpp").replace("gpt-4o-mini", "away.gguf")


@pytest.mark.parametrize(("config", "model"), [(CHAT, "gpt-4o-mini"), (LLAMA, "")], ids=["openai", "llamacpp"])
def test_what_a_benchmark_would_send_is_shown_in_each_mode_without_model_key_and_recordings(
    config: str, model: str, tmp_path: Path
) -> None:
    (tmp_path / "chat.yaml").write_text(config)
    questions = json.loads((SHMINI / "questions.json").read_bytes())
    (first, *_) = questions
    write(tmp_path / "q.json", questions)
    run = ("run", "--config", "chat.yaml", "--data", "q.json", "--show-prompt")
    code, out, err = cascade(*run, cwd=tmp_path, OPENAI_API_KEY="")
    assert (code, err) == (0, "")
    selective, general = out.split("--- general mode, the first question on ")
    assert selective.startswith(f"--- selective mode, the first question on {first['audio']}\n")
    for prompt in (selective, general):
        assert "<transcript>\n[here stands the transcript of the recording]\n</transcript>" in prompt
        assert f"Question: {first['question']}\nA. {first['options'][0]}\n" in prompt
        request = json.loads(prompt.partition("--- with it goes: ")[2])
        assert (request["model"], request["temperature"]) == (model, 0)
    description = first["main_speaker_desc_w_content_filter"]
    assert description in selective
    assert description not in general
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("chat.yaml", "q.json")] == []


def test_the_prompt_of_one_mode_and_another_part_is_shown(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(CHAT)
    run = ("run", "--config", "chat.yaml", "--show-prompt", "--mode", "general", "--shard", "2/2")
    code, out, _ = cascade(*run, cwd=tmp_path)
    names = list(dict.fromkeys(item["audio"] for item in json.loads((SHMINI / "questions.json").read_bytes())))
    assert code == 0
    assert out.startswith(f"--- general mode, the first question on {names[1]}\n")
    assert out.count("the first question on") == 1


# --- score ------------------------------------------------------------------------------------------------------------


def test_scores_are_printed_written_and_given_as_json(tmp_path: Path) -> None:
    write(tmp_path / "mine_basic_qa.json", items(24))
    (tmp_path / "mine_selective_qa.json.gz").write_bytes(gzip.compress(json.dumps(items(24)).encode()))
    files = ("mine_basic_qa.json", "mine_selective_qa.json.gz")
    code, out, err = cascade("score", *files, "--out", "scores", cwd=tmp_path)
    assert (code, err) == (0, "")
    (row,) = [line for line in out.splitlines() if line.startswith("> mine ")]
    assert row.split()[1:] == ["mine", "both", "100.0", "100.0", "0.0", "100.0", "0.0"]
    assert {path.name for path in (tmp_path / "scores").iterdir()} - {".lock"} == {
        "scores.json", "scores.md", "items.jsonl", "figure4.svg", "figure4.png",
    }  # fmt: skip
    code, printed, err = cascade("score", *files, "--json", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert json.loads(printed) == json.loads((tmp_path / "scores" / "scores.json").read_bytes())


def test_the_shape_of_the_json(tmp_path: Path) -> None:
    write(tmp_path / "mine_selective_qa.json", items(24, logp=[0.5, 0.5, 0.0, 0.0, 0.0]))
    _, printed, _ = cascade("score", "mine_selective_qa.json", "--json", cwd=tmp_path)
    (system,) = json.loads(printed)["systems"]
    assert system["files"] == ["mine_selective_qa.json"]
    for reader in ("strict", "paper"):
        found = system["parsers"][reader]
        assert found["general"] is found["se"] is found["se_cluster95"] is None
        main = found["selective"]["main"]
        assert {"correct", "total", "accuracy", "wilson95", "cluster95", "idk", "unparsed", "entropy"} <= main.keys()
        assert (main["correct"], main["total"], main["accuracy"], main["idk"]) == (12, 12, 1.0, 0)
        assert main["wilson95"] == pytest.approx([0.7575, 1.0], abs=1e-4)
        bystander = found["selective"]["bystander"]
        assert (bystander["correct"], bystander["idk"]) == (12, 12)
        assert found["selective"]["real"]["main"]["total"] == found["selective"]["synth"]["bystander"]["total"] == 6
    assert system["parsers"]["strict"]["selective"]["main"]["entropy"] == pytest.approx(0.6931, abs=1e-4)
    assert system["parsers"]["paper"]["selective"]["main"]["entropy"] is None
    kinds = {finding["kind"]: finding for finding in system["audit"]}
    assert kinds["zero_probability"].keys() == {"kind", "file", "item", "detail"}
    assert "mode_missing" in kinds


def test_a_file_whose_mode_is_unknown_is_not_scored_silently(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", items(6))
    code, printed, err = cascade("score", "mine.json", "--json", cwd=tmp_path)
    assert code == 1
    assert "--mode" in err
    (system,) = json.loads(printed)["systems"]
    assert [finding["kind"] for finding in system["audit"]] == ["mode_unknown"]
    code, printed, _ = cascade("score", "mine.json", "--json", "--mode", "selective", cwd=tmp_path)
    assert code == 0
    assert json.loads(printed)["systems"][0]["parsers"]["strict"]["selective"]["main"]["accuracy"] == 1.0


def test_what_is_wrong_with_the_files_is_said_without_a_folder_too(tmp_path: Path) -> None:
    write(tmp_path / "selectivenet_basic.json", items(6)[:5] + items(1))
    code, _, err = cascade("score", "selectivenet_basic.json", cwd=tmp_path)
    assert code == 0
    said = [line.partition(": ")[2] for line in err.splitlines()]
    assert any(line.startswith("duplicate item: selectivenet_basic.json, item 5: ") for line in said)
    assert any(line.startswith("mode ambiguous: selectivenet_basic.json: taken for selective") for line in said)


def test_a_file_name_is_printed_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / ":smile:_basic_qa.json", items(6))
    _, printed, _ = cascade("score", ":smile:_basic_qa.json", "--json", cwd=tmp_path)
    assert json.loads(printed)["systems"][0]["files"] == [":smile:_basic_qa.json"]


def test_files_with_given_modes_and_a_name_are_one_system(tmp_path: Path) -> None:
    write(tmp_path / "a.json", items(24))
    write(tmp_path / "b.json", items(24))
    modes = ("--mode", "general", "--mode", "selective", "--name", "ours")
    code, printed, _ = cascade("score", "a.json", "b.json", *modes, "--json", cwd=tmp_path)
    assert code == 0
    (system,) = json.loads(printed)["systems"]
    assert system["name"] == "ours"
    assert system["parsers"]["strict"]["se"] == 0.0


@pytest.mark.skipif(not SHBENCH.is_dir(), reason="shared/shbench is not beside the checkout")
def test_the_published_files_score_as_published(tmp_path: Path) -> None:
    code, printed, err = cascade("score", *sorted(SHBENCH.glob("*.json.gz")), "--json", cwd=tmp_path)
    assert (code, err) == (0, "")
    found = [system["parsers"]["paper"] for system in json.loads(printed)["systems"]]
    cells = [
        tuple(
            round(100 * parsers[mode][speaker]["accuracy"], 1)
            for speaker in ("main", "bystander")
            for mode in ("general", "selective")
        )
        for parsers in found
    ]
    assert sorted(cells) == sorted([
        (96.1, 95.6, 47.9, 49.4), (97.2, 97.3, 63.1, 61.5), (96.1, 96.2, 47.9, 42.8), (93.3, 92.7, 82.0, 94.8),
    ])  # fmt: skip


# --- run --------------------------------------------------------------------------------------------------------------


def test_the_small_benchmark_runs_and_goes_on(tmp_path: Path) -> None:
    limited = (*RUN, "--limit", "1", "--out", "out")
    code, out, err = cascade(*limited, cwd=tmp_path)
    assert (code, unprogressed(err)) == (0, [])
    assert "> ondevice" in out
    assert "Pipeline" in out or "SepFormer+Whisper+GPT-4o" in out
    assert "real-time factor" in out
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    code, again, err = cascade(*limited, cwd=tmp_path)
    assert (code, again, err) == (0, out, "")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_what_a_benchmark_will_take_is_estimated_for_each_hearing(tmp_path: Path) -> None:
    code, out, _ = cascade(*CHECK, "--data", SHMINI / "questions.json", cwd=tmp_path)
    assert code == 0
    assert "estimated: 24.5 min of audio: about " in out  # 735 s, heard in both modes
    part = ("--data", SHMINI / "questions.json", "--limit", "2", "--shard", "2/2", "--audio-root", SHMINI)
    minutes = cascade(*CHECK, *part, cwd=tmp_path)[1].partition("estimated: ")[2].partition(" min")[0]
    assert 1.5 < float(minutes) < 3


def test_ones_own_data_run_beside_their_audio(tmp_path: Path) -> None:
    """A recording without speech: nothing is known about it, and the answers say so."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    short(tmp_path / "data" / "sub" / "scene 0.wav")
    write(tmp_path / "data" / "q.json", [{**tones.item(0, place)} for place in range(6)])
    code, out, err = cascade(*RUN, "--data", "data/q.json", "--mode", "selective", "--out", "out", cwd=tmp_path)
    assert code == 0
    assert err.splitlines() == [
        "note: mode missing: ondevice_selective_qa.json: no general file of this system and setting: SE is not known"
    ]
    predictions = json.loads((tmp_path / "out" / "ondevice_selective_qa.json").read_bytes())
    assert {item["pred"].partition(". ")[2] for item in predictions} == {"Unclear"}
    assert not (tmp_path / "out" / "ondevice_basic_qa.json").exists()
    (row,) = [line for line in out.splitlines() if line.startswith("> ondevice ")]
    assert row.split()[2:] == ["both", "–", "0.0", "–", "100.0", "–"]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_when_the_key_is_no_longer_taken_a_run_stops_and_the_same_command_goes_on(tmp_path: Path, kept: bool) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    (tmp_path / "data" / "folder").mkdir(parents=True)
    for number in range(3):
        short(tmp_path / "data" / "folder" / f"scene {number}.wav")
    write(tmp_path / "data" / "q.json", [tones.item(number, place) for number in range(3) for place in (0, 3)])
    taken = 5

    def _reply(received: Received) -> Play:
        return good("B") if len(server.received) <= taken else fault(401, "invalid_api_key")

    with serving(_reply) as server:
        (tmp_path / "chat.yaml").write_text(
            f"{CHAT}    base_url: {server.url}\n    api_key_env: MY_KEY\n    concurrency: 1\n"
        )
        command = ["run", "--config", "chat.yaml", "--data", "data/q.json", *(("--out", "out") if kept else ())]
        code, out, err = cascade(*command, cwd=tmp_path)
        assert code == 1
        (line,) = [line for line in unprogressed(err) if line.startswith("error: ")]
        host = server.url.removeprefix("http://").removesuffix("/v1")
        how = "what was answered is kept; the same command goes on" if kept else "nothing was kept, since there is no"
        assert line.startswith(f"error: stopped: {host}: the key is not accepted; set another: export MY_KEY=")
        assert f"; left are 7 questions on 2 recordings; {how}" in line
        assert "> chat" in out
        assert "heard in selective mode: 2.0 s" in out
        assert len(server.received) == 6
        taken = 100
        if kept:
            code, out, err = cascade(*command, cwd=tmp_path)
            assert (code, "error" in err) == (0, False)
            assert len(server.received) == 6 + 7
            assert "heard in general mode: 3.0 s" in out
