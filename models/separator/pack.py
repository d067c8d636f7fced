"""Pack the banks and the rooms for training on another machine: one file, with the speech as Opus.

    python models/separator/pack.py --corpus CORPUS [--corpus CORPUS]... --rooms ROOMS --out PACK.tar [--rooms-of N]

There, `mkdir data && tar -xf PACK.tar -C data` gives data/corpus and data/rooms, which train.py takes. Only what
training needs is packed, the train and valid splits, and the first N rooms of each (default 150). An hour of speech
takes some 14 MB. Nothing is lost between a pack and the one before: what is spoken meanwhile comes with the next one.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from faults import told
from mixtures import read_rooms

from corpus import Split, Spoken, positive, read_index, to_line  # isort: skip
from mixing import to_opus  # isort: skip

from cascade.audio import read_audio
from cascade.errors import AudioError

PACKED: Final = ("train", "valid")


def packed_lines(corpora: Sequence[Path], split: str) -> Iterator[tuple[Spoken, bytes]]:
    """Yield a split's lines with their speech as Opus, each named for its place in the pack.

    Raises:
        AudioError: A file can't be read.
    """
    for number, corpus in enumerate(corpora):
        for line in read_index(corpus / "speech" / f"{split}.jsonl"):
            name = PurePosixPath("speech", split, line.voice, f"{number}_{Path(line.file).stem}.opus")
            yield replace(line, file=str(name)), to_opus(read_audio(corpus / line.file))


def first_rooms(folder: Path, split: Split, count: int) -> bytes:
    """The first so many rooms of a split, as such a file.

    Raises:
        ValueError: There is none.
        OSError: The file can't be read.
    """
    buffer, rooms = io.BytesIO(), read_rooms(folder, split)
    np.savez_compressed(buffer, allow_pickle=False, near=rooms.near[:count], far=rooms.far[:count])
    return buffer.getvalue()


def contents(corpora: Sequence[Path], rooms: Path, rooms_of: int) -> Iterator[tuple[str, bytes]]:
    """Yield all that is packed: (name, content).

    Raises:
        ValueError: A split has no speech.
        OSError: A file can't be read.
    """
    for split in PACKED:
        lines = list[Spoken]()
        for line, content in packed_lines(corpora, split):
            lines.append(line)
            yield f"corpus/{line.file}", content
        if not lines:
            raise ValueError(f"no speech for {split} in {', '.join(map(str, corpora))}: run speech.py first")
        yield f"corpus/speech/{split}.jsonl", "".join(map(to_line, lines)).encode()
        yield f"rooms/{split}.npz", first_rooms(rooms, split, rooms_of)


def pack(corpora: Sequence[Path], rooms: Path, rooms_of: int, out: Path) -> int:
    """Write the pack so that it is there whole or not at all; returns its size in bytes."""
    part = out.with_name(f".{out.name}")
    try:
        with tarfile.open(part, "w") as archive:
            for name, content in contents(corpora, rooms, rooms_of):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out.stat().st_size


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--corpus", type=Path, action="append", required=True, metavar="CORPUS", help="a bank")
    parser.add_argument("--rooms", type=Path, required=True, metavar="ROOMS", help="the rooms")
    parser.add_argument("--out", type=Path, required=True, metavar="PACK.tar", help="what to write")
    parser.add_argument("--rooms-of", type=positive, default=150, metavar="N", help="rooms of a split (default 150)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        size = pack(parsed.corpus, parsed.rooms, parsed.rooms_of, parsed.out)
        print(f"{parsed.out}: {size / 2**20:.1f} MiB")
    except (ValueError, OSError, AudioError) as error:
        print(f"pack.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
