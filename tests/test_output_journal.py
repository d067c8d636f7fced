"""What a killed, damaged, full or shared journal still knows, and what it says."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import OutputError
from cascade.output.journal import JOURNAL, forgetful, locked, open_journal, read_journal
from tests.test_output_recordings import full_disk

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.dictionaries(st.sampled_from("abc"), st.text() | st.integers() | st.none(), max_size=3),
    max_size=6,
)


def write(out: Path, entries: dict[str, dict[str, object]]) -> None:
    with open_journal(out) as journal:
        for key, entry in entries.items():
            journal.append(key, entry)


def read(out: Path, keys: dict[str, dict[str, object]]) -> dict[str, object]:
    with open_journal(out) as journal:
        return {key: dict(journal[key]) for key in keys if key in journal}


@given(ENTRIES)
def test_what_was_appended_is_there_when_it_is_opened_again(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, dict[str, object]]
) -> None:
    out = tmp_path_factory.mktemp("journal")
    write(out, entries)
    assert read(out, entries) == entries


@given(ENTRIES, st.data())
def test_wherever_it_is_cut_off_whole_lines_stay_and_the_rest_can_be_done_again(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, dict[str, object]], data: st.DataObject
) -> None:
    out = tmp_path_factory.mktemp("journal")
    write(out, entries)
    path = out / JOURNAL
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = read(out, entries)
    assert list(kept) == list(entries)[: whole[:cut].count(b"\n")]
    assert path.read_bytes() == whole[: whole[:cut].rfind(b"\n") + 1]
    write(out, {key: entry for key, entry in entries.items() if key not in kept})
    assert path.read_bytes() == whole
    assert read(out, entries) == entries


@pytest.mark.parametrize("damage", [b"\x00\xff{", b"[1, 2]", b"{}", b"17", b"[" * 5000, b""])
def test_a_damaged_line_is_said_and_costs_only_itself(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    entries: dict[str, dict[str, object]] = {"one": {"a": 1}, "two": {"a": 2}, "three": {"a": 3}}
    write(tmp_path, entries)
    lines = (tmp_path / JOURNAL).read_bytes().split(b"\n")
    (tmp_path / JOURNAL).write_bytes(b"\n".join([lines[0], damage, *lines[2:]]))
    assert read(tmp_path, entries) == {"one": {"a": 1}, "three": {"a": 3}}
    assert caplog.messages == [f"{JOURNAL}: line 2 is damaged; what it held is done again"]


def test_the_later_entry_of_a_key_holds(tmp_path: Path) -> None:
    write(tmp_path, {"key": {"a": 1}})
    write(tmp_path, {"key": {"a": 2}})
    assert read(tmp_path, {"key": {}}) == {"key": {"a": 2}}


def test_half_a_character_is_kept(tmp_path: Path) -> None:
    write(tmp_path, {"key": {"reply": "\ud83d and so on"}})
    assert read(tmp_path, {"key": {}}) == {"key": {"reply": "\ud83d and so on"}}


def test_it_is_private(tmp_path: Path) -> None:
    write(tmp_path, {"key": {"a": 1}})
    assert stat.S_IMODE((tmp_path / JOURNAL).stat().st_mode) == 0o600


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: journal.append(str(n), {"text": "x" * 5000}), range(100)))
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(map(str, range(100)))


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append("one", {"a": 1})
        before = (tmp_path / JOURNAL).read_bytes()
        with full_disk(len(before) + 10), pytest.raises(OutputError, match="make room, then give the same command"):
            journal.append("two", {"text": "x" * 500})
        assert "two" not in journal
        assert (tmp_path / JOURNAL).read_bytes() == before
        journal.append("two", {"a": 2})
    assert read(tmp_path, {"one": {}, "two": {}}) == {"one": {"a": 1}, "two": {"a": 2}}


def test_a_forgetful_journal_remembers_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = forgetful()
    journal.append("key", {"a": 1})
    assert journal["key"] == {"a": 1}
    assert not list(tmp_path.iterdir())


def test_an_unreadable_journal_is_one_line(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(OutputError, match=r"journal.jsonl' cannot be written: Is a directory; give another --out$"):
        write(tmp_path, {})


# --- the lock ---------------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from cascade.output.journal import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(out: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_and_a_killed_one_gives_the_folder_back(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with holder(out) as first:
        with pytest.raises(OutputError, match=r"another run is at work in '.*out'; wait until it ends"):
            locked(out).__enter__()
        first.kill()
    with locked(out):
        pass


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not a folder"), locked(tmp_path / "file"):
        pass


def sealed(line: str) -> bytes:
    """Return a line with a checksum that is right for it."""
    return (line[:-1] + f', "crc32": "{zlib.crc32(line.encode() + NEWLINE):08x}"}}').encode() + NEWLINE


NEWLINE = b"\n"


def test_a_line_is_sealed_here_as_the_journal_seals_it(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(sealed('{"key": "one", "a": 1}'))
    assert read(tmp_path, {"one": {}}) == {"one": {"a": 1}}


@pytest.mark.parametrize(
    "line",
    [
        '{"key": "k", "a": NaN}',
        '{"key": "k", "a": 1e999}',
        '{"key": "k", "a": -Infinity}',
        '{"a": 1}',
        '{"key": 3}',
        '{"key": ["k"]}',
        '{"key": null}',
    ],
)
def test_a_line_that_no_run_writes_is_damaged_whatever_its_checksum_says(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {"one": {"a": 1}})
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(sealed(line))
    assert read(tmp_path, {"one": {}, "k": {}}) == {"one": {"a": 1}}
    assert list(read_journal(tmp_path)) == ["one"]
    assert set(caplog.messages) == {f"{JOURNAL}: line 2 is damaged; what it held is done again"}


def test_an_entry_that_is_not_known_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, {"one": {"a": 1}, "two": {"b": 1}})
    with open_journal(tmp_path, lambda entry: "a" in entry) as journal:
        assert "one" in journal
        assert "two" not in journal


@pytest.mark.parametrize("leads_to", ["file", "nothing", "pipe"])
def test_a_journal_is_a_file_of_its_own_folder(tmp_path: Path, leads_to: str) -> None:
    mine, out = tmp_path / "mine.txt", tmp_path / "out"
    out.mkdir()
    if leads_to == "file":
        mine.write_text("mine\n")
    if leads_to == "pipe":
        os.mkfifo(out / JOURNAL)
    else:
        (out / JOURNAL).symlink_to(mine)
    with pytest.raises(OutputError, match=r"link to another place|it is no file"), open_journal(out):
        pass
    with pytest.raises(OutputError, match=r"link to another place|it is no file"):
        read_journal(out)
    assert mine.exists() is (leads_to == "file")
    assert leads_to != "file" or mine.read_text() == "mine\n"


def test_a_lock_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.txt", tmp_path / "out"
    out.mkdir()
    mine.write_text("mine")
    (out / ".lock").symlink_to(mine)
    with pytest.raises(OutputError, match="is a link to another place"), locked(out):
        pass
    assert mine.read_text() == "mine"
