from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from cascade.errors import ModelError
from cascade.output.models import Entry, Growing, Recorded, Store, sha256_of, shown_size

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RECORDED = Recorded(SHA256, len(CONTENT))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "models")


def test_nothing_is_made_by_looking(store: Store) -> None:
    assert store.entry("a-model", "main") == Entry()
    assert len(store.growing("a-model", "main", "sub/file.bin")) == 0
    store.check_room(0)
    assert not store.root.exists()


# --- files on their way -----------------------------------------------------------------------------------------------


def test_a_file_grows_takes_its_place_and_leaves_nothing_behind(store: Store) -> None:
    growing = store.growing("a-model", "main", "sub/file.bin")
    growing.append(b"wei")
    growing.append(b"ghts")
    assert len(growing) == len(CONTENT)
    store.place("a-model", "main", {"sub/file.bin": growing}, Entry())
    assert (store.folder("a-model", "main") / "sub" / "file.bin").read_bytes() == CONTENT
    assert not list((store.root / ".partial").rglob("*"))
    assert not store.lock_file.exists()  # there is nothing to record


def test_files_are_recorded_after_they_have_their_places(store: Store) -> None:
    there, gone = (store.growing("a-model", "main", name) for name in ("there", "gone"))
    there.append(CONTENT)
    entry = Entry(None, {"there": RECORDED, "gone": RECORDED})
    with pytest.raises(ModelError, match="cannot be written"):
        store.place("a-model", "main", {"there": there, "gone": gone}, entry)
    assert store.entry("a-model", "main") == Entry()
    gone.append(CONTENT)
    store.place("a-model", "main", {"gone": gone}, entry)
    assert store.entry("a-model", "main") == entry


def test_what_is_on_its_way_is_forgotten_by_model_and_revision(store: Store) -> None:
    kept, other, gone = (store.growing(*where, "a") for where in (("one", "1"), ("two", "1"), ("one", "2")))
    for growing in (kept, other, gone):
        growing.append(CONTENT)
    store.forget("one", "2")
    assert [len(growing) for growing in (kept, other, gone)] == [7, 7, 0]
    store.forget("one")
    store.forget("none")
    assert [len(growing) for growing in (kept, other)] == [0, 7]


def test_a_file_replaces_what_was_there(store: Store) -> None:
    place = store.folder("a-model", "main") / "file.bin"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"old")
    growing = store.growing("a-model", "main", "file.bin")
    growing.append(CONTENT)
    store.place("a-model", "main", {"file.bin": growing}, Entry())
    assert place.read_bytes() == CONTENT


def test_a_file_is_copied(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT)
    growing = store.growing("a-model", "main", "file.bin")
    growing.append(b"a longer beginning of something else")
    growing.copy(tmp_path / "file.bin")
    assert growing.path.read_bytes() == CONTENT
    with pytest.raises(ModelError, match=r"none.bin cannot be read; make it readable and run the same command again"):
        growing.copy(tmp_path / "none.bin")


# --- no room ----------------------------------------------------------------------------------------------------------


def test_no_room_is_said_before_anything_is_fetched(store: Store, tmp_path: Path) -> None:
    asked: list[Path] = []

    def free(folder: Path) -> int:
        asked.append(folder)
        return 10**9

    store.check_room(10**9, free)
    with pytest.raises(ModelError) as error:
        store.check_room(3 * 10**9, free)
    assert str(error.value) == (
        f"3.00 GB more do not fit onto the disk of {store.root}, which has 1.00 GB left; free some space, or set "
        "CASCADE_MODELS to a folder on a larger disk; the same command goes on"
    )
    assert asked == [tmp_path, tmp_path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a disk that is always full; Linux has it")
def test_a_disk_that_fills_up_is_one_line(store: Store) -> None:
    growing = store.growing("a-model", "main", "file.bin")
    growing.path.parent.mkdir(parents=True)
    growing.path.symlink_to("/dev/full")
    with pytest.raises(ModelError) as error:
        growing.append(CONTENT)
    assert str(error.value) == (
        f"the disk of {growing.path.parent} is full; free some space, or set CASCADE_MODELS to a folder on a larger "
        "disk; the same command goes on"
    )


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file, not a folder")
    store = Store(tmp_path / "models")
    expected = r"models.* cannot be written: .*; set CASCADE_MODELS to a folder that can"
    with pytest.raises(ModelError, match=expected):
        store.growing("a-model", "main", "file.bin").append(CONTENT)
    with pytest.raises(ModelError, match=expected):
        store.record("a-model", "main", Entry())


# --- the lock file ----------------------------------------------------------------------------------------------------


def test_what_is_recorded_is_read_again(store: Store) -> None:
    entry = Entry("1" * 40, {"sub/file.bin": RECORDED})
    store.record("a-model", "main", entry)
    store.record("another", "main", Entry())
    assert store.entry("a-model", "main") == entry
    assert store.entry("a-model", "other-revision") == Entry()
    assert store.entry("another", "main") == Entry()
    written = json.loads(store.lock_file.read_text())
    assert written["a-model/main"]["files"] == {"sub/file.bin": {"sha256": SHA256, "size": 7}}


def test_two_at_once_lose_nothing(store: Store) -> None:
    def work(number: int) -> None:
        for turn in range(10):
            store.record(f"model-{number}-{turn}", "main", Entry(str(turn)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(store.lock_file.read_text())) == 40


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"a-model/main": 1}',
        '{"a-model/main": null}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": 1}}}}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": 0, "sha256": "SHA"}}}}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": "7", "sha256": "SHA"}}}}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": true, "sha256": "SHA"}}}}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": 7, "sha256": "none"}}}}',
        '{"a-model/main": {"commit": null, "files": {"a": {"size": 7, "sha256": 7}}}}',
        '{"a-model/main": {"commit": "../elsewhere", "files": {}}}',
        '{"a-model/main": {"commit": 7, "files": {}}}',
    ],
)
def test_a_spoilt_lock_file_is_refused(store: Store, text: str) -> None:
    store.root.mkdir()
    store.lock_file.write_text(text.replace("SHA", SHA256))
    with pytest.raises(ModelError, match="is not the lock file that cascade wrote; put the right one back, or delete"):
        store.entry("a-model", "main")


def test_one_waits_for_the_other(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with store.pulling("a-model"):
            inside.set()
            leave.wait(10)
            order.append("first")

    def second() -> None:
        with store.pulling("a-model"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    threads[1].join(0.2)
    with store.pulling("another"):  # which does not wait
        leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "second"]
    assert caplog.messages == ["another process is at work on a-model; waiting for it"]


def test_a_file_that_is_not_there_has_no_sha256(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="none cannot be read: No such file or directory; make it readable"):
        sha256_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("size", "shown"), [(444, "0.4 kB"), (17_272, "17.3 kB"), (113_108_458, "113.1 MB"), (3_087_284_237, "3.09 GB")]
)
def test_sizes_as_people_say_them(size: int, shown: str) -> None:
    assert shown_size(size) == shown


def test_discarding_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    Growing(tmp_path / "none").discard()
