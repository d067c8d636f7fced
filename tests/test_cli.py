"""The command line as a user meets it: one line for a mistake, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.chat_server import Play, Received, fault, good, serving

ROOT = Path(__file__).resolve().parent.parent
TALK = ROOT / "benchmarks" / "talk" / "talk.flac"
ENROLMENT = ROOT / "benchmarks" / "talk" / "enrolment.flac"
RUN = ("run", "--config", "ondevice.yaml")

UNGATED = """
stages:
  - use: mixture
  - use: online_clustering
  - use: everyone
  - use: faster_whisper
"""


def start(*arguments: str | bytes | Path, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cascade", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def cascade(*arguments: str | bytes | Path, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Run `python -m cascade`; return exit code, standard output and standard error."""
    process = start(*arguments, cwd=cwd, **environment)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def heeded(err: str) -> list[str]:
    """Return what was said but for that nobody speaks in what `short` made."""
    return [line for line in err.splitlines() if "no speech was found in it" not in line]


def short(path: Path) -> Path:
    """A second of near silence: quick to hear, with an empty transcript."""
    soundfile.write(path, np.zeros(16_000, np.float32), 16_000)
    return path


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((*RUN, "nofile.wav"), "error: 'nofile.wav' does not exist, expected a recording"),
        ((*RUN, "text.wav"), "error: 'text.wav' is not a recording that can be decoded"),
        (("run", "--config", "nothing", "a.wav"), "error: no configuration at nothing nor in"),
        ((*RUN, "s.wav", "--question", " "), "error: the question is empty"),
        ((*RUN, "s.wav", "--question", b"wh\xff\xfe?"), "error: the question holds bytes that are not UTF-8"),
        ((*RUN, "s.wav", "--enrolment", "nobody.wav"), "error: the enrolment 'nobody.wav' does not exist"),
        ((*RUN, "s.wav", "--enrolment", "."), "error: the enrolment '.' is not a file"),
        ((*RUN, "s.wav", "--enrolment", "s.wav"), "error: enrolment 's.wav': no speech found"),
        ((*RUN, "s.wav", "--enrolment", "./s.wav"), "error: enrolment 's.wav': no speech found"),
        (("enrol", "../x/s.wav", "--name", "me"), "error: the enrolment '../x/s.wav' does not exist; name a recording"),
        (("enrol", "text.wav", "--name", "me"), "error: 'text.wav' is not a recording that can be decoded"),
        (("forget", "you"), "error: no enrolment is kept under the name 'you'; keep one with"),
        (("run", "--config", "ungated.yaml", "s.wav", "--threshold", "0.7"), "error: a threshold was given, but the"),
        ((*RUN, "s.wav", "--out", "text.wav"), "error: "),
        (("run", "--config", "ungated.yaml", "s.wav", "--question", "Who?"), "error: questions were asked, but"),
        (("run", "--config", "ungated.yaml", "s.wav", "--enrolment", "s.wav"), "error: an enrolment was given, but"),
    ],
    ids=lambda value: None if isinstance(value, tuple) else str(value)[7:40],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: tuple[str | bytes, ...], line: str, tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    (tmp_path / "text.wav").write_text("this is no recording")
    (tmp_path / "ungated.yaml").write_text(UNGATED)
    code, out, err = cascade(*arguments, cwd=tmp_path, CASCADE_ENROLMENTS=str(tmp_path / "kept"))
    said = [row for row in err.splitlines() if not row.startswith("warning: this configuration has no gate")]
    assert (code, out, len(said)) == (2, "", 1), err
    assert said[0].startswith(line)


def test_one_bad_recording_among_several_does_not_stop_the_others(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    code, out, err = cascade(*RUN, "nofile.wav", "s.wav", "--out", "out", cwd=tmp_path)
    assert code == 1
    assert err.startswith("error: 'nofile.wav' does not exist")
    assert "s.wav (selective, dominant speaker; nobody enrolled)" in out
    assert (tmp_path / "out" / "s" / "transcript.json").read_text().strip() == "[]"


def test_an_existing_folder_is_refused_before_anything_is_heard(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    (tmp_path / "out" / "s").mkdir(parents=True)
    code, out, err = cascade(*RUN, "s.wav", "--out", "out", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert "out/s" in err
    assert "exists already" in err


def test_a_configuration_without_a_gate_says_so(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    (tmp_path / "ungated.yaml").write_text(UNGATED)
    code, out, err = cascade("run", "--config", "ungated.yaml", "s.wav", cwd=tmp_path)
    assert code == 0
    assert "no gate: everyone is admitted" in err
    assert "(selective, no gate)" in out
    assert "no gate" in cascade("check", "--config", "ungated.yaml", cwd=tmp_path)[1]


def test_what_comes_from_outside_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "\x1b]0;gotcha\x07\u202es.wav"
    short(tmp_path / name)
    code, out, err = cascade(*RUN, name, "--question", "x\nA: forged\x1b[31m", "--out", "out", cwd=tmp_path)
    assert code == 0, err
    assert not {"\x1b", "\x07", "\u202e"} & set(out + err)
    assert "\nA: forged" not in out


def test_an_old_encoding_costs_no_transcript(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    code, out, err = cascade(*RUN, "s.wav", "--question", "Où?", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (code, heeded(err)) == (0, [])
    assert "Q: O\\xf9?" in out


def test_standard_output_that_is_full_is_one_line(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cascade", *RUN, "s.wav"],
            cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert heeded(done.stderr) == ["error: the output cannot be written: No space left on device"]


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    short(tmp_path / "first.wav")
    talk = soundfile.read(TALK, dtype="float32")[0]
    soundfile.write(tmp_path / "second.wav", np.tile(talk, 10), 16_000)
    process = start(*RUN, "first.wav", "second.wav", "--out", "out", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "first").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert heeded(err) == ["stopped; the recordings that were finished are kept"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["first"]
    assert (tmp_path / "out" / "first" / "summary.json").exists()


def test_the_bar_is_gone_before_the_result_is_printed(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cascade", *RUN, "s.wav"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}, stdin=follower, stdout=follower,
        stderr=follower,
    )  # fmt: skip
    os.close(follower)
    screen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        screen += piece
    os.close(leader)
    assert process.wait(timeout=60) == 0
    result = screen[screen.index(b"s.wav (selective") - 40 :]
    assert b"\x1b[2K" in result.split(b"s.wav (selective")[0], "the bar's line is not erased"


def test_check_tells_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    text = (ROOT / "configs" / "ondevice.yaml").read_text().replace("size: tiny.en", "size: ./no-such-model")
    (tmp_path / "other.yaml").write_text(text)
    code, out, err = cascade("check", "--config", "other.yaml", cwd=tmp_path)
    assert (code, err) == (1, "")
    assert "online_clustering  SeparatedChunk -> SpeakerTurn" in out
    assert "missing: " in out
    code, out, err = cascade("run", "--config", "other.yaml", TALK, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert "no-such-model" in err


def test_models_are_listed_and_verified(tmp_path: Path) -> None:
    listed = cascade("models", "list", cwd=tmp_path)
    verified = cascade("models", "verify", cwd=tmp_path)
    assert listed[0] == verified[0] == 0
    assert re.search(r"^whisper-tiny.en +ok ", listed[1], re.MULTILINE)
    assert "ok         whisper-tiny.en  model.bin" in verified[1]


def test_a_model_that_is_not_here_has_one_word_for_it_and_all_are_never_pulled(tmp_path: Path) -> None:
    nothing = {"CASCADE_MODELS": str(tmp_path / "none")}
    listed = cascade("models", "list", cwd=tmp_path, **nothing)[1]
    verified = cascade("models", "verify", cwd=tmp_path, **nothing)[1]
    assert re.search(r"^sepformer-whamr +missing ", listed, re.MULTILINE)
    assert re.search(r"^missing +sepformer-whamr$", verified, re.MULTILINE)
    code, out, err = cascade("models", "pull", cwd=tmp_path, **nothing)
    assert (code, out) == (2, "")
    assert err.startswith("error: name models (see: python -m cascade models list), or a configuration with --config")
    assert "none: all" not in cascade("models", "pull", "--help", cwd=tmp_path)[1]


def test_models_that_nothing_pins_are_said_to_be_recorded(tmp_path: Path) -> None:
    """They are carried in from their own folder, and come whole or not at all."""
    stick, store = tmp_path / "sepformer-whamr", str(tmp_path / "models")
    stick.mkdir()
    for name, size in (("encoder.ckpt", 17_267), ("decoder.ckpt", 3), ("masknet.ckpt", 113_108_458)):
        with (stick / name).open("wb") as file:
            file.truncate(size)
    pull = ("models", "pull", "sepformer-whamr", "--from", stick)
    code, out, err = cascade(*pull, cwd=tmp_path, CASCADE_MODELS=store)
    assert (code, out) == (1, "")
    first, _, second, _ = err.splitlines()
    assert re.fullmatch(r"error: sepformer-whamr: '.*' lacks hyperparams.yaml; put .* into '.*/sepformer-whamr'", first)
    assert re.fullmatch(r"error: sepformer-whamr: hyperparams.yaml is at https://\S+/hyperparams.yaml", second)
    (stick / "hyperparams.yaml").write_text("sample_rate: 8000\n")
    code, out, err = cascade(*pull, cwd=tmp_path, CASCADE_MODELS=store)
    assert (code, out) == (1, "")
    assert "decoder.ckpt has 3 bytes, expected about 17202 by its manifest; put the right file into" in err
    with (stick / "decoder.ckpt").open("wb") as file:
        file.truncate(17_202)
    code, out, err = cascade(*pull, cwd=tmp_path, CASCADE_MODELS=store)
    assert (code, err) == (0, "")
    assert re.search(r"^  encoder.ckpt: recorded as it came, 17267 bytes, sha256 [0-9a-f]{64}; ", out, re.MULTILINE)
    code, out, err = cascade("models", "verify", "sepformer-whamr", cwd=tmp_path, CASCADE_MODELS=store)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["recorded", "sepformer-whamr", name]
        for name in ("hyperparams.yaml", "encoder.ckpt", "decoder.ckpt", "masknet.ckpt")
    ]
    listed = cascade("models", "list", cwd=tmp_path, CASCADE_MODELS=store)[1]
    assert re.search(r"^sepformer-whamr +recorded ", listed, re.MULTILINE)


@pytest.mark.parametrize("options", [(), ("--enrolment", ENROLMENT), ("--mode", "general")])
def test_a_recording_without_speech_is_said(tmp_path: Path, options: tuple[str | Path, ...]) -> None:
    short(tmp_path / "s.wav")
    command = (*RUN, "s.wav", *options, "--out", "out", "--report", "r.html")
    code, out, err = cascade(*command, cwd=tmp_path)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: s.wav: no speech was found in it; ")
    summary = json.loads((tmp_path / "out" / "s" / "summary.json").read_text())
    assert summary["warnings"] == [line.removeprefix("warning: ")]
    assert "no speech was found in it" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "enrolled: enrolment.flac" in out or "nobody enrolled" in out


def test_a_threshold_is_the_gates_for_this_run(tmp_path: Path) -> None:
    short(tmp_path / "s.wav")
    code, _, _ = cascade(*RUN, "s.wav", "--threshold", "0.7", "--out", "out", cwd=tmp_path)
    assert code == 0
    (gate,) = [
        stage
        for stage in json.loads((tmp_path / "out" / "s" / "summary.json").read_text())["config"]["stages"]
        if stage["use"] == "main_speaker"
    ]
    assert gate["threshold"] == 0.7


def test_general_mode_labels_everyone(tmp_path: Path) -> None:
    code, out, err = cascade(*RUN, TALK, "--mode", "general", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "Hey, it's me" in out
    assert "speaker_2" in out
    assert "withheld]" not in out


def test_a_voice_is_enrolled_listed_used_and_forgotten(tmp_path: Path) -> None:
    data = tmp_path / "data"
    kept = {"CASCADE_ENROLMENTS": str(data)}
    short(tmp_path / "s.wav")
    assert cascade("enrolled", cwd=tmp_path, **kept) == (0, f"nobody is enrolled in {data}\n", "")
    code, out, err = cascade("enrol", ENROLMENT, "--name", "me", cwd=tmp_path, **kept)
    file = data / "me.json"
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert re.fullmatch(r"enrolled me \(d-vector-ge2e, \d\.\d s of speech, made \d{4}-\d\d-\d\d\)", first)
    assert second == f"the embedding, and nothing of the audio, is in {file}"
    speech = first.split(", ")[1].removesuffix(" of speech")
    code, out, err = cascade("enrolled", cwd=tmp_path, **kept)
    head, row = out.splitlines()
    assert (code, head.split()) == (0, ["name", "encoder", "made", "speech"])
    assert row.split()[:2] == ["me", "d-vector-ge2e"]
    assert row.endswith(speech)
    assert not set(re.findall(r"-?\d\.\d{4,}", out))

    code, out, err = cascade(*RUN, "s.wav", "--enrolment", "mee", cwd=tmp_path, **kept)
    assert (code, out) == (2, "")
    assert err == "error: no enrolment is kept under the name 'mee', and no such file is there; kept are: me\n"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "made": "2020-02-29"}))
    code, out, err = cascade(*RUN, "s.wav", "--enrolment", "me", cwd=tmp_path, **kept)
    (aged,) = heeded(err)
    assert code == 0
    assert aged.startswith("warning: the enrolment 'me' is older than a year (made 2020-02-29); make it anew: ")
    assert out.startswith("s.wav (selective, enrolled: me)\n")

    file.chmod(0o644)
    code, out, err = cascade("enrolled", cwd=tmp_path, **kept)
    assert (code, out) == (1, "")
    assert err.startswith("error: the enrolment 'me' is open to other users")
    assert cascade("forget", "me", cwd=tmp_path, **kept) == (0, f"deleted {file}\n", "")
    assert not any(data.iterdir())


def test_an_enrolment_with_two_voices_in_turn_is_refused(tmp_path: Path) -> None:
    mine = soundfile.read(ENROLMENT, dtype="float32")[0]
    other = soundfile.read(TALK, dtype="float32")[0][int(12.8 * 16_000) : int(15.4 * 16_000)]
    soundfile.write(tmp_path / "two.wav", np.concatenate([mine[: 6 * 16_000], other, other]), 16_000)
    short(tmp_path / "s.wav")
    code, out, err = cascade(*RUN, "s.wav", "--enrolment", "two.wav", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("error: enrolment 'two.wav': more than one voice in it")


CHAT = """
stages:
  - use: mixture
  - use: online_clustering
  - use: main_speaker
  - use: faster_whisper
  - use: openai
    model: gpt-4o-mini
"""


def test_what_would_be_sent_is_shown_without_a_key_and_without_sending(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(CHAT)
    run = ("run", "--config", "chat.yaml", TALK, "--enrolment", ENROLMENT, "--question", "When is the train?")
    code, out, err = cascade(*run, "--show-prompt", cwd=tmp_path)
    assert (code, err) == (0, "")
    request = json.loads(out.partition("  A: ")[2].rpartition("\n  48.1 s heard")[0])
    assert request["model"] == "gpt-4o-mini"
    (message,) = request["messages"]
    assert "The train to Boston" in message["content"]
    assert "When is the train?" in message["content"]
    assert "biopsy" not in out
    assert "bystander" in message["content"].partition("<transcript>")[0], "selective mode says what to keep private"


def test_an_answer_can_neither_steer_the_terminal_nor_forge_a_line(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    forged = "At\u202e nine.\x1b[2J\u2066\n\n  00:01.0  main  I  confess\r\n  Q: Who?\u2028" + 99 * " " + "  A: Me"
    short(tmp_path / "a.wav")
    with serving(lambda received: good(forged)) as server:
        (tmp_path / "chat.yaml").write_text(f"{CHAT}    base_url: {server.url}\n")
        code, out, err = cascade("run", "--config", "chat.yaml", "a.wav", "--question", "Where?", cwd=tmp_path)
    assert (code, heeded(err)) == (0, [])
    begin = out.splitlines().index("  Q: Where?")
    assert out.splitlines()[begin + 1 : begin + 5] == [
        "  A: At nine.[2J",
        "       00:01.0 main I confess",
        "       Q: Who?",
        "             A: Me",
    ]
    assert not {"\u202e", "\u2066", "\x1b", "\r"} & {*out}


@pytest.mark.parametrize("option", [("--show-prompt",), ("--max-cost", "1")])
def test_what_asks_no_server_has_no_prompt_and_no_cost(tmp_path: Path, option: tuple[str, ...]) -> None:
    code, out, err = cascade(*RUN, short(tmp_path / "s.wav"), *option, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("error: this configuration ")
    assert err.endswith("leave the option out\n")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_when_nothing_more_is_answered_only_transcripts_that_are_kept_are_made(tmp_path: Path, kept: bool) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    for name in "abc":
        short(tmp_path / f"{name}.wav")

    def _reply(received: Received) -> Play:
        return good("Nobody.") if len(server.received) <= 3 else fault(429, "insufficient_quota")

    with serving(_reply) as server:
        (tmp_path / "chat.yaml").write_text(f"{CHAT}    base_url: {server.url}\n")
        asked = ("--question", "Who?", "--question", "Where?", *(("--out", "out") if kept else ()))
        code, out, err = cascade("run", "--config", "chat.yaml", "a.wav", "b.wav", "c.wav", *asked, cwd=tmp_path)
    assert code == 1
    assert len(server.received) == 4
    assert out.count("A: Nobody.") == 3
    assert "since:" not in out
    assert out.splitlines()[-1].startswith("answers: 4 requests, 3 replies, 0 replies from the cache; 1500 tokens in, ")
    host = server.url.removeprefix("http://").removesuffix("/v1")
    why = (
        f"{host}: the account has no quota left; add credit, or use another key (HTTP 429, insufficient_quota); "
        "nothing more is asked"
    )
    if not kept:
        assert out.count(".wav (selective, ") == 2
        assert heeded(err) == [
            f"error: b.wav: 1 of 2 questions have no answer: {why}",
            "error: stopped: nothing more is answered; 1 of 3 recordings were not heard",
        ]
        return
    assert heeded(err) == [
        f"error: b.wav: 1 of 2 questions have no answer: {why}",
        f"error: c.wav: 2 of 2 questions have no answer: {why}",
        "error: 2 of 3 recordings lack answers; their transcripts are kept: for the answers, give these recordings "
        "again, with another --out",
    ]
    answers = [(tmp_path / "out" / name / "answers.jsonl").read_text().splitlines() for name in "abc"]
    assert [len(lines) for lines in answers] == [2, 1, 0]
    assert (tmp_path / "out" / "c" / "transcript.json").is_file()
