"""Kept enrolments: what is in the file, who may read it, and what is refused."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import subprocess
import sys
import unicodedata
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.errors import EnrolmentError, OutputError
from cascade.output.enrolments import (
    FORMAT,
    EncoderVersion,
    Enrolments,
    KeptEnrolment,
    check_dimension,
    check_encoder,
    find,
    is_name,
    read,
)

ENCODER = EncoderVersion(name="tones", sha256="ab" * 32, dimension=3)
KEPT = KeptEnrolment(
    format=FORMAT,
    made=date(2026, 11, 30),
    speech_s=8.9,
    encoder=ENCODER,
    embedding=(0.48, -0.64, 0.6),
)


@pytest.fixture
def store(tmp_path: Path) -> Enrolments:
    return Enrolments(tmp_path / "data" / "enrolments")


@pytest.fixture
def mine(store: Enrolments) -> Path:
    return store.keep("me", KEPT, replace=False)


def refusal(path: Path) -> str:
    with pytest.raises(EnrolmentError) as caught:
        read(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_what_is_kept_is_read_again(store: Enrolments, mine: Path) -> None:
    assert store.read("me") == read(mine) == KEPT


def test_nobody_else_may_read_it(store: Enrolments, mine: Path) -> None:
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_a_file_holds_what_is_documented_and_nothing_else(mine: Path) -> None:
    assert json.loads(mine.read_text()) == {
        "format": 2,
        "made": "2026-11-30",
        "speech_s": 8.9,
        "encoder": {"name": "tones", "sha256": "ab" * 32, "dimension": 3},
        "embedding": [0.48, -0.64, 0.6],
    }


def test_an_embedding_is_not_shown() -> None:
    assert "0.64" not in repr(KEPT) + str(KEPT)
    assert str(KEPT) == "tones, 8.9 s of speech, made 2026-11-30"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.floats(0.125, 1, width=32), min_size=1, max_size=300))
def test_every_number_comes_back_as_it_was(store: Enrolments, drawn: list[float]) -> None:
    encoder = ENCODER.model_copy(update={"dimension": len(drawn)})
    embedding = tuple(number / math.hypot(*drawn) for number in drawn)
    kept = KEPT.model_copy(update={"embedding": embedding, "encoder": encoder})
    store.keep("me", kept, replace=True)
    assert store.read("me") == kept


def test_one_that_is_kept_is_replaced_only_when_that_is_asked(store: Enrolments, mine: Path) -> None:
    other = KEPT.model_copy(update={"speech_s": 5.0})
    with pytest.raises(EnrolmentError, match="kept under the name 'me' already; add --replace"):
        store.keep("me", other, replace=False)
    assert store.read("me") == KEPT
    store.keep("me", other, replace=True)
    assert store.read("me") == other
    assert list(store.folder.iterdir()) == [mine]


def test_a_write_that_fails_leaves_what_was_there(store: Enrolments, mine: Path) -> None:
    broken = KEPT.model_copy(update={"speech_s": object()})
    with pytest.raises(Exception, match="serialize"):
        store.keep("me", broken, replace=True)
    assert store.read("me") == KEPT
    assert list(store.folder.iterdir()) == [mine]


@pytest.mark.parametrize("name", ["", "-x", "..", "../me", "a/b", "me.json", "a b", "x" * 41, "me\n", "*"])
def test_a_name_is_no_path_and_no_pattern(store: Enrolments, name: str) -> None:
    assert not is_name(name)
    with pytest.raises(EnrolmentError, match="letters, digits"):
        store.keep(name, KEPT, replace=True)
    with pytest.raises(EnrolmentError, match="no enrolment is kept"):
        store.forget(name)


def test_a_name_may_be_of_any_script(store: Enrolments) -> None:
    names = ["me", "Zoë", "李-2", "_", "हिन्दी", "สมชาย", "x" * 40]
    for name in names:
        store.keep(name, KEPT, replace=False)
        assert store.read(name) == KEPT
    assert store.names() == sorted(names)


@pytest.mark.parametrize(("kept", "asked"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_letter_with_an_accent_may_be_spelt_either_way(store: Enrolments, kept: Any, asked: Any) -> None:
    name = "Zoë"
    path = store.keep(unicodedata.normalize(kept, name), KEPT, replace=False)
    assert path.name == f"{unicodedata.normalize('NFC', name)}.json"
    path.rename(path.with_name(f"{unicodedata.normalize(kept, name)}.json"))  # as another system may have it
    assert store.read(unicodedata.normalize(asked, name)) == KEPT
    assert store.names() == [name]
    with pytest.raises(EnrolmentError, match="add --replace"):
        store.check_free(unicodedata.normalize(asked, name), replace=False)
    assert len(store.forget(unicodedata.normalize(asked, name))) == 1


def test_of_two_that_are_kept_at_once_the_first_stays(store: Enrolments) -> None:
    """Both find the name free, and hear; the second is refused when it is written."""

    class Late(Enrolments):
        def check_free(self, name: str, *, replace: bool) -> None:
            """Find it free."""

    store.keep("me", KEPT, replace=False)
    with pytest.raises(EnrolmentError, match="kept under the name 'me' already; add --replace"):
        Late(store.folder).keep("me", KEPT.model_copy(update={"speech_s": 5.0}), replace=False)
    assert store.read("me") == KEPT
    assert len(list(store.folder.iterdir())) == 1


def test_a_folder_that_is_open_to_others_is_said(store: Enrolments, caplog: pytest.LogCaptureFixture) -> None:
    store.warn_if_open()
    store.check_writable()
    store.warn_if_open()
    assert caplog.messages == []
    store.folder.chmod(0o777)
    store.warn_if_open()
    assert caplog.messages == [
        f"'{store.folder}' is open to other users (mode 777, expected 700); run: chmod 700 '{store.folder}'"
    ]


def test_a_place_that_cannot_be_written_is_said_before_anything_is_heard(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be written: .*; set CASCADE_ENROLMENTS"):
        Enrolments(tmp_path / "file").check_writable()
    with pytest.raises(OutputError, match=r"file cannot be looked into: .*; set CASCADE_ENROLMENTS"):
        Enrolments(tmp_path / "file").names()
    assert Enrolments(tmp_path / "none").names() == []


def test_a_folder_that_cannot_be_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be written: .*; set CASCADE_ENROLMENTS"):
        Enrolments(tmp_path / "file" / "enrolments").keep("me", KEPT, replace=False)


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_what_is_forgotten_is_gone_and_others_stay(store: Enrolments, mine: Path) -> None:
    you = store.keep("you", KEPT, replace=False)
    assert store.forget("me") == [mine]
    assert list(store.folder.iterdir()) == [you]
    with pytest.raises(EnrolmentError, match=r"^no enrolment is kept under the name 'me'; kept are: you$"):
        store.forget("me")


def test_what_is_forgotten_is_a_name_and_never_a_file(store: Enrolments, tmp_path: Path) -> None:
    (tmp_path / "me.wav").touch()
    for name in ("you", str(tmp_path / "me.wav")):
        with pytest.raises(EnrolmentError) as caught:
            store.forget(name)
        fix = "keep one with: python -m cascade enrol RECORDING --name NAME"
        assert str(caught.value) == f"no enrolment is kept under the name '{name}'; {fix}"


def test_what_a_crash_left_of_writing_is_forgotten_too(store: Enrolments, mine: Path) -> None:
    for name in (".me.abc.partial", ".me2.abc.partial"):
        (store.folder / name).touch()
    assert set(store.forget("me")) == {mine, store.folder / ".me.abc.partial"}
    assert [path.name for path in store.folder.iterdir()] == [".me2.abc.partial"]


WRITING = """
import sys
from pathlib import Path
from cascade.output.files import in_use

with in_use(Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


def test_what_was_being_written_when_its_process_was_killed_is_deleted(store: Enrolments, mine: Path) -> None:
    left = store.folder / ".me.abc.partial"
    left.touch(0o600)
    root = str(Path(__file__).resolve().parents[1])
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITING, str(left)],
        env={**os.environ, "PYTHONPATH": root}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with writing:
        assert writing.stdout is not None
        assert writing.stdout.readline() == b"here\n"
        assert store.clear() == []
        writing.send_signal(signal.SIGKILL)
    assert store.clear() == [left]
    assert list(store.folder.iterdir()) == [mine]


def test_one_that_is_damaged_can_be_forgotten(store: Enrolments, mine: Path) -> None:
    mine.write_text("nonsense")
    assert store.forget("me") == [mine]


# --- what is refused --------------------------------------------------------------------------------------------------


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(KEPT.model_dump_json()), **fields})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '"\udc80"',
        changed(embedding=[]),
        changed(embedding=[0, 0, 0]),
        changed(embedding=[0.6, 0.8]),
        changed(embedding=[0.6, 0.8, 1e300]),
        changed(embedding=[0.6, 0.8, "0"]),
        changed(embedding=[0.6, 0.8, float("nan")]),
        changed(embedding=[1e-300, 0, 0]),
        changed(embedding=[0.01, 0, 0]),
        changed(embedding=[1e6, 1e6, 1e6]),
        changed(embedding=[12, 16, 0]),
        changed(level_db=-1e6),
        changed(speech_s=-1),
        changed(speech_s=1e308),
        changed(encoder={"name": "t" * 256, "sha256": "ab" * 32, "dimension": 3}),
        changed(encoder={"name": "tones", "sha256": "ab" * 32, "dimension": None}),
        changed(made="yesterday"),
        changed(encoder={"name": "tones", "sha256": "abc"}),
        changed(encoder=None),
        changed(audio="UklGRg=="),
        " " * 1_000_001,
    ],
    ids=range(25),
)
def test_one_that_is_damaged_is_refused_with_what_makes_it_anew(mine: Path, content: str) -> None:
    mine.write_bytes(content.encode(errors="surrogateescape"))
    said = refusal(mine)
    assert said.startswith(f"the enrolment 'me' ({mine}) is damaged; ")
    assert said.endswith("python -m cascade enrol RECORDING --name me --replace --config CONFIG")


@pytest.mark.parametrize("form", [0, 1, 3, "2"])
def test_another_format_is_refused_with_what_makes_it_anew(mine: Path, form: object) -> None:
    mine.write_text(changed(format=form, more="than is known here"))
    said = refusal(mine)
    assert "is not of format 2, the only one known here; make it anew: python -m cascade enrol" in said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_one_that_others_may_read_or_change_is_refused(mine: Path, mode: int) -> None:
    mine.chmod(mode)
    assert refusal(mine) == (
        f"the enrolment 'me' is open to other users (mode {mode:o}, expected 600), and a voice's embedding is "
        f"biometric data; run: chmod 600 '{mine}'"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")
def test_one_of_another_user_is_refused(mine: Path) -> None:
    os.chown(mine, 12345, -1)
    assert "belongs to another user, who may have put another voice in it; remove it, and make it anew" in refusal(mine)


def test_what_is_no_file_is_said_to_be_none(store: Enrolments, mine: Path) -> None:
    for name in ("folder", "link", "loop", "pipe"):
        path = store.file(name)
        if name == "folder":
            path.mkdir()
        elif name == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(store.folder / "nothing" if name == "link" else path)
        what = {"folder": "a folder", "pipe": "no file"}.get(name, "a link to nothing")
        said = f"no enrolment can be under the name '{name}': '{path}' is {what}; remove it"
        assert refusal(path) == said
        with pytest.raises(EnrolmentError) as caught:
            store.read("you")
        assert str(caught.value).endswith("; kept are: me")
        if name == "folder":
            with pytest.raises(EnrolmentError) as caught:
                store.forget("folder")
            assert str(caught.value) == said
            with pytest.raises(EnrolmentError) as caught:
                store.keep("folder", KEPT, replace=True)
            assert str(caught.value) == said
        else:
            assert store.forget(name) == [path]


def test_a_path_is_no_name_and_names_of_another_folder_are_not_told(store: Enrolments, mine: Path) -> None:
    other = Enrolments(store.folder.parent / "others")
    other.keep("you", KEPT, replace=False)
    with pytest.raises(EnrolmentError, match=r"under the name '../others/you'; kept are: me$"):
        store.forget("../others/you")
    assert other.read("you") == KEPT


@pytest.mark.parametrize("dimension", [2, 4])
def test_one_with_another_number_of_numbers_than_its_encoder_gives_is_damaged(mine: Path, dimension: int) -> None:
    gives = ENCODER.model_copy(update={"dimension": dimension})
    with pytest.raises(EnrolmentError, match="is damaged; make it anew"):
        check_encoder(mine, KEPT, gives)
    with pytest.raises(EnrolmentError, match="is damaged; make it anew"):
        check_dimension(mine, KEPT, [gives])
    check_encoder(mine, KEPT, ENCODER.model_copy(update={"dimension": None}))
    check_dimension(mine, KEPT, [gives.model_copy(update={"sha256": "cd" * 32})])


def test_where_nothing_is_kept_it_is_said_how(store: Enrolments) -> None:
    assert refusal(store.file("me")) == (
        "no enrolment is kept under the name 'me', and no such file is there; "
        "keep one with: python -m cascade enrol RECORDING --name NAME"
    )


@pytest.mark.parametrize("encoder", [EncoderVersion(name="tones", sha256="cd" * 32), None])
def test_another_encoder_is_refused_with_what_makes_it_anew(mine: Path, encoder: EncoderVersion | None) -> None:
    with pytest.raises(
        EnrolmentError, match=r"of the speaker encoder tones \(abab.*; make it anew: .* --name me --rep"
    ):
        check_encoder(mine, KEPT, encoder)


def test_an_encoder_is_told_by_its_files_not_by_its_name(mine: Path) -> None:
    check_encoder(mine, KEPT, EncoderVersion(name="renamed", sha256=ENCODER.sha256))


# --- which file is meant ----------------------------------------------------------------------------------------------


def test_a_file_wins_over_a_name_and_a_folder_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_ENROLMENTS", str(tmp_path / "kept"))
    here = tmp_path / "here"
    (here / "you").mkdir(parents=True)
    kept = tmp_path / "kept"
    assert (find("me", here), find("you", here)) == (kept / "me.json", kept / "you.json")
    (here / "me").touch()
    assert find("me", here) == here / "me"


@pytest.mark.parametrize("given", ["me.wav", "./me.json", "voices/me", "/a/me", "."])
def test_what_is_no_name_is_a_path(given: str, tmp_path: Path) -> None:
    assert find(given, tmp_path) == tmp_path / given


def test_they_are_in_the_users_data_folder_or_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_ENROLMENTS", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Enrolments.usual().folder.parts[-2:] == ("cascade", "enrolments")
    monkeypatch.setenv("CASCADE_ENROLMENTS", "~/elsewhere")
    assert Enrolments.usual().folder == Path.home() / "elsewhere"
