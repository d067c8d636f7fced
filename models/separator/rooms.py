"""Make the rooms that the separator learns in: how each sounds from near its microphone, and from afar.

    python models/separator/rooms.py --out ROOMS [--train N] [--valid N] [--test N] [--seed S]

Writes ROOMS/SPLIT.npz, with responses by the image-source method as float16, without the way from mouth to microphone:

    near (n_rooms, 2, n_taps)    from 0.2 to 1 m, where a main speaker is
    far (n_rooms, 4, n_taps)     from 1.5 to 5 m, where bystanders are

No room is in two splits. A split that is there already is made anew where it has fewer rooms. Needs cascade itself, and
`pip install pyroomacoustics scipy`.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its programs find each other there, and this one finds them

from corpus import (  # noqa: E402
    BYSTANDER_M,
    MAX_ORDER,
    ROOM_M,
    SPLITS,
    Respond,
    Split,
    draw,
    draw_place,
    draw_room,
    natural,
    positive,
    write_whole,
)
from faults import told  # noqa: E402
from mixing import Impulse, Room, impulse_response  # noqa: E402
from mixtures import read_rooms  # noqa: E402

from cascade.types import seconds  # noqa: E402

NEAR, FAR = 2, 4  # places in each room
NEAR_M: Final = (0.2, 1.0)
RING: Final = 0.03  # m; how exactly somebody near is as far away as was drawn
N_TAPS: Final = seconds(0.5)  # by then the longest has fallen by 43 dB

Responses: TypeAlias = npt.NDArray[np.float16]


def respond_in(room: Room, position: tuple[float, float], distance_m: float) -> Impulse:
    """The way from a place in a room to its microphone, (n_taps,)."""
    return impulse_response(room, position, distance_m, MAX_ORDER)


def make_room(split: Split, seed: int, number: int, respond: Respond) -> Responses:
    """Draw a room; returns its responses, the near ones first: (NEAR + FAR, N_TAPS), each with its peak at 1."""
    rng = np.random.default_rng([seed, SPLITS.index(split), number])
    room = draw_room(ROOM_M, rng)
    nears_m = [draw(NEAR_M, rng) for _ in range(NEAR)]
    places = [draw_place(room, (near_m - RING, near_m + RING), rng) for near_m in nears_m]
    places += [draw_place(room, BYSTANDER_M, rng) for _ in range(FAR)]
    responses = np.zeros((NEAR + FAR, N_TAPS), dtype=np.float16)
    for row, (position, distance_m) in zip(responses, places, strict=True):
        response = respond(room, position, distance_m)[:N_TAPS]
        row[: len(response)] = response / np.abs(response).max()
    return responses


def make_rooms(split: Split, count: int, seed: int, respond: Respond, out: Path) -> None:
    """Make a split's rooms, unless so many are there.

    Raises:
        ValueError: What is there isn't a split's file.
        OSError: The file can't be written.
    """
    path = out / f"{split}.npz"
    if path.is_file() and len(read_rooms(out, split).near) >= count:
        return
    rooms = []
    for number in range(count):
        rooms.append(make_room(split, seed, number, respond))
        if (number + 1) % 20 == 0 or number + 1 == count:
            print(f"{split}: {number + 1} of {count} rooms", flush=True)
            write_rooms(path, np.stack(rooms))


def write_rooms(path: Path, responses: Responses) -> None:
    """Write responses (n_rooms, NEAR + FAR, n_taps) as a split's file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, near=responses[:, :NEAR], far=responses[:, NEAR:])
    write_whole(path, buffer.getvalue())


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True, metavar="ROOMS", help="where the files go")
    parser.add_argument("--train", type=positive, default=400, metavar="N", help="rooms (default 400)")
    parser.add_argument("--valid", type=positive, default=40, metavar="N", help="rooms (default 40)")
    parser.add_argument("--test", type=positive, default=40, metavar="N", help="rooms (default 40)")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="of all that is drawn (default 0)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, respond: Callable[..., Impulse] = respond_in) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        for split in reversed(SPLITS):
            make_rooms(split, getattr(parsed, split), parsed.seed, respond, parsed.out)
    except ModuleNotFoundError as error:
        print(f"rooms.py: {error.name} isn't installed; pip install pyroomacoustics scipy", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"rooms.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
