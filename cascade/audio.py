"""File or pipe -> AudioChunk: decoding, downmixing, resampling; and SampleBuffer, the one buffer that stages use.

A recording passes through a row of generators, each of which holds a block at a time:

    bytes -> decoder -> mono blocks at the file's rate -> checked -> 16 kHz in [-1, 1] -> chunks of equal length

Two decoders share the work. soundfile reads what is stored sample by sample (wav, aiff, w64, caf, au): it is exact and
fast. PyAV reads everything that is made of packets (mp3, flac, ogg, opus, m4a, webm, video) and all pipes: where
libsndfile stops at the first damaged packet of an mp3 or flac and drops the rest, FFmpeg goes on behind it, and it can
read what cannot be rewound. Nothing of the audio is ever written to disk.
"""

from __future__ import annotations

import io
import logging
import math
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cascade.errors import AudioError
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, Span, concatenate, seconds

if TYPE_CHECKING:
    import av
    import soundfile

_log = logging.getLogger(__name__)

_BLOCK_FRAMES: Final = 1 << 14
"""Frames that soundfile decodes at once: 0.4 s at 44.1 kHz."""

_SAMPLED: Final = (b"RIFF", b"RIFX", b"RF64", b"FORM", b"riff", b"caff", b".snd")
"""How the containers begin that soundfile is asked to read: wav (three kinds), aiff, w64, caf, au."""

_LOUDEST: Final = 100.0
"""Samples beyond this multiple of full scale (40 dB) are integers stored as floats, or damage, never sound."""

_OFFSET: Final = 0.01
"""How far samples may lie off zero on average, of full scale. Where it is more, and more than the sound's root mean
square, speech is found less well or not at all; no sound card does it that works."""

_RATES: Final = range(1_000, 768_001)
"""Sample rates, in Hz, that a recording may have; others come from a damaged header."""

_STREAMED_SIZE: Final = 0x7FFF_0000
"""Sizes from here on in a 32-bit header mean "unknown": ffmpeg writes 0xFFFFFFFF, sox and arecord about 2**31."""

_SLACK_BYTES: Final = 64
"""Writers disagree by a few bytes on what the size in a header covers."""

_POOL_BYTES: Final = 512 * 2**20
"""The most that is held in memory of a piped recording that can only be decoded by jumping around in it."""

_CANCELLED: Final = 0.01
"""Less than this share of the channels' energy in their mean is no sound that happens to differ between them, of which
a half or a quarter is left, but the same sound turned over in one of them."""

_GAP_S: Final = 0.02
"""Packets whose time is this much behind what came before tell of others between that are lost; less is rounding."""

_MP3_PACKET_BYTES: Final = 1441
"""The most that a frame of an mp3 can take (320 kbit/s at 32 kHz, padded); a longer packet holds damage too."""

_UNANNOUNCED_GAP_S: Final = 60.0
"""Where no length is announced, a longer gap is a clock that was set, and no sound that was lost."""

_OGG_PAGE_BYTES: Final = 27 + 255 + 255 * 255
"""The most that a page of ogg can take."""

_NO_PROTOCOL: Final = {"protocol_whitelist": "none"}
"""Keeps FFmpeg from opening anything but the bytes it is handed: a playlist or SDP file would make it open others."""

_FORMATS: Final = "wav, flac, mp3, m4a, ogg, opus or webm"


class SampleBuffer:
    """Audio (n_samples,) between two absolute positions of the stream; grows at its end, shrinks at its start.

    Appending costs amortised O(1) a sample, and the memory is at most four times what is kept (or a second).
    """

    _LEAST = SAMPLE_RATE
    """Samples of room below which shrinking is not worth while."""

    def __init__(self, start: int = 0) -> None:
        """Make an empty buffer whose first sample will stand at position `start`."""
        self._start = self._end = start
        self._room: Samples = np.empty(self._LEAST, np.float32)
        self._first = 0  # where in the room the sample at `start` lies

    @property
    def start(self) -> int:
        """Position of the first sample that is kept."""
        return self._start

    @property
    def end(self) -> int:
        """Position just behind the last sample."""
        return self._end

    def __len__(self) -> int:
        return self._end - self._start

    def append(self, samples: Samples, span: Span | None = None) -> None:
        """Add samples (n_samples,) at the end; a span, when given, must begin there and be as long as they are.

        Raises:
            ValueError: samples are not float32 (n_samples,), or span leaves a gap, overlaps, or has another length.
        """
        if samples.dtype != np.float32 or samples.ndim != 1:
            raise ValueError(f"expected float32 samples (n_samples,), got {samples.dtype} of shape {samples.shape}")
        if span is not None:
            self._check_follows(span, len(samples))
        self._make_room(len(samples))
        last = self._first + len(self)
        self._room[last : last + len(samples)] = samples
        self._end += len(samples)

    def take(self, span: Span) -> Samples:
        """Return a copy of the samples (n_samples,) in span.

        Raises:
            ValueError: the buffer does not hold all of span.
        """
        return self.view(span).copy()

    def view(self, span: Span) -> Samples:
        """Return the samples (n_samples,) in span, which never change, and are not to be written to.

        All views share the room that they lie in, and keep the whole of it.

        Raises:
            ValueError: the buffer does not hold all of span.
        """
        if span.start < self._start or span.end > self._end:
            raise ValueError(
                f"samples [{span.start}, {span.end}) were asked for, the buffer holds [{self._start}, {self._end})"
            )
        offset = self._first - self._start
        shown = self._room[span.start + offset : span.end + offset]
        shown.flags.writeable = False
        return shown

    def drop_before(self, position: int) -> None:
        """Forget all samples before position; one outside what is kept drops nothing, or all of it."""
        position = min(max(position, self._start), self._end)
        self._first += position - self._start
        self._start = position
        if len(self._room) > self._LEAST and 4 * len(self) < len(self._room):
            self._move(2 * len(self))

    def _check_follows(self, span: Span, n_samples: int) -> None:
        if len(span) != n_samples:
            raise ValueError(f"{n_samples} samples came with the span [{span.start}, {span.end}) of {len(span)}")
        if span.start != self._end:
            fault = "a gap" if span.start > self._end else "an overlap"
            raise ValueError(f"{fault}: samples from {span.start} on came, those from {self._end} on were expected")

    def _make_room(self, n_samples: int) -> None:
        needed = len(self) + n_samples
        if self._first + needed > len(self._room):
            self._move(2 * needed)

    def _move(self, room: int) -> None:
        """Move what is kept to the start of an array that holds `room` samples."""
        fresh = np.empty(max(room, self._LEAST), np.float32)
        fresh[: len(self)] = self._room[self._first : self._first + len(self)]
        self._room, self._first = fresh, 0


def open_audio(source: Path | str, *, block_s: float = 0.1) -> Iterator[AudioChunk]:
    """Decode a recording into chunks of 16 kHz mono audio with contiguous spans from 0.

    Channels are averaged, and what exceeds full scale is clipped to [-1, 1]. A recording that is cut off or damaged
    gives what can be decoded of it, and one line in the log of `cascade.audio`. Errors come with the first chunk that
    is asked for, a NaN when it is reached.

    Args:
        source: a file of any kind that soundfile or FFmpeg know, or "-" for standard input.
        block_s: length of each chunk but the last, in seconds.

    Raises:
        AudioError: source cannot be read, holds no audio, or holds numbers that are no sound.
        ValueError: block_s is shorter than a sample.
    """
    size = seconds(block_s)
    if size < 1:
        raise ValueError(f"block_s must be at least one sample (1/{SAMPLE_RATE} s), got {block_s}")
    return _chunks(source, size)


def read_audio(source: Path | str, *, limit_s: float | None = None) -> Samples:
    """Return a whole recording, or its first limit_s seconds, as 16 kHz mono samples (n_samples,) in [-1, 1].

    Raises:
        AudioError: source cannot be read, holds no audio, or holds numbers that are no sound.
        ValueError: limit_s is negative.
    """
    if limit_s is not None and limit_s < 0:
        raise ValueError(f"limit_s must not be negative, got {limit_s}")
    limit = None if limit_s is None else seconds(limit_s)
    parts: list[Samples] = []
    with closing(_chunks(source, SAMPLE_RATE)) as chunks:
        for chunk in chunks:
            parts.append(chunk.mixture)
            if limit is not None and chunk.span.end >= limit:
                break
    return concatenate(parts)[:limit]


def announced_duration_s(source: Path | str) -> float | None:
    """Return the length in seconds that a recording announces, for progress bars only; None if it is not known.

    Nothing is read from standard input. A recording that cannot be opened is None too: open_audio says why.
    """
    if str(source) == "-" or not Path(source).is_file():
        return None
    try:
        with _opened(source) as reader, _open_container(reader) as container:
            return container.duration / 1_000_000 if container.duration else None
    except AudioError:
        return None


def _chunks(source: Path | str, size: int) -> Generator[AudioChunk, None, None]:
    with _opened(source) as reader:
        yield from _cut(_resampled(_checked(_decoded(reader), reader.label), reader.label), size)


def _cut(pieces: Iterable[Samples], size: int) -> Iterator[AudioChunk]:
    """Cut audio into chunks of `size` samples; the last one is what is left."""
    buffer = SampleBuffer()
    for piece in pieces:
        buffer.append(piece)
        while len(buffer) >= size:
            yield _chunk(buffer, Span(buffer.start, buffer.start + size))
    if len(buffer):
        yield _chunk(buffer, Span(buffer.start, buffer.end))


def _chunk(buffer: SampleBuffer, span: Span) -> AudioChunk:
    chunk = AudioChunk(span, buffer.take(span))
    buffer.drop_before(span.end)
    return chunk


# --- reading bytes ---------------------------------------------------------------------------------------------------


class _Reader:
    """An open file as decoders may see it: without its name, and with its faults kept.

    A name can mean a format to libsndfile and a protocol to FFmpeg. An exception inside a decoder's callback would be
    lost or printed; so `read` reports the end of the file instead, and `check` raises the exception afterwards.
    """

    def __init__(self, raw: BinaryIO, label: str) -> None:
        self.label = label
        self._raw = raw
        self._fault: BaseException | None = None
        self.strayed = 0
        """How often a decoder wanted to go where nothing can be."""
        self._seekable = raw.seekable() and raw.tell() == 0
        # A pipe hands over what it has (read1), so that live audio does not wait for a full block.
        self._read: Callable[[int], bytes] = raw.read if self._seekable else getattr(raw, "read1", raw.read)
        self._pending = b""
        self._count = 0
        self.head = self._sniff(2048)
        if not self._seekable and _jumps(self.head):
            self._pool()

    def read(self, size: int) -> bytes:
        """Return at most size bytes; none at the end of the file and after a fault."""
        if self._fault is not None:
            return b""
        try:
            if self._pending:
                data, self._pending = self._pending[:size], self._pending[size:]
            else:
                data = self._read(size)
        except BaseException as fault:  # KeyboardInterrupt too: see the class
            self._fault = fault
            return b""
        self._count += len(data)
        return data

    def seekable(self) -> bool:
        """Tell whether the file can be rewound."""
        return self._seekable

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move as io.IOBase.seek does; -1, as C has it, when damage sends a decoder where nothing can be."""
        try:
            return self._raw.seek(offset, whence)
        except (OSError, ValueError):
            self.strayed += 1
            return -1

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._raw.tell()

    def check(self) -> None:
        """Raise what went wrong while a decoder was reading."""
        if isinstance(self._fault, OSError):
            raise AudioError(f"{self.label} could not be read to its end: {self._fault.strerror or self._fault}")
        if self._fault is not None:
            raise self._fault

    def missing(self) -> float:
        """Return the share of the bytes that the header of a wav or aiff announces but that are not there."""
        announced = _announced_bytes(self.head)
        if not announced:
            return 0.0
        there = self.size() if self._seekable else self._count_up_to(announced)
        return 1 - there / announced if announced - there > _SLACK_BYTES else 0.0

    def breaks_off(self) -> bool:
        """Tell whether a file ends within a page of ogg; its pages tell their length, the file does not."""
        if not self._seekable or self.head[:4] != b"OggS":
            return False
        size, here = self.size(), self.tell()
        self.seek(max(0, size - _OGG_PAGE_BYTES))
        page = b""
        while block := self.read(_OGG_PAGE_BYTES):
            page += block
        self.seek(here)
        page = page[max(0, page.rfind(b"OggS")) :]
        n_segments = page[26] if len(page) > 26 else 0
        return len(page) < 27 + n_segments + sum(page[27 : 27 + n_segments])

    def size(self) -> int:
        """Return the length in bytes of a file that can be rewound; the position stays."""
        here = self.tell()
        end = self.seek(0, io.SEEK_END)
        self.seek(here)
        return end

    def _sniff(self, size: int) -> bytes:
        head = b""
        while len(head) < size and (data := self.read(size - len(head))):
            head += data
        if self._seekable:
            self.seek(0)
        else:
            self._pending = head
        self._count = 0
        return head

    def _pool(self) -> None:
        data = bytearray()
        while block := self.read(1 << 16):
            data += block
            if len(data) > _POOL_BYTES:
                raise AudioError(
                    f"{self.label} is an m4a, mp4 or caf of more than {_POOL_BYTES >> 20} MB whose index does not come "
                    "first, which cannot be decoded from a pipe; give the file's name instead"
                )
        self._raw, self._seekable = io.BytesIO(data), True
        self._read = self._raw.read

    def _count_up_to(self, announced: int) -> int:
        while self._count < announced and self.read(1 << 16):
            pass  # the decoder stops behind the samples; what follows them belongs to the file too
        return self._count


def _jumps(head: bytes) -> bool:
    """Tell whether a file that begins like this can only be decoded by jumping around in it.

    An mp4 or m4a can be streamed when its index (moov) stands before the sound, thus right behind the ftyp box.
    """
    behind = int.from_bytes(head[:4], "big")
    return head[:4] == b"caff" or (head[4:8] == b"ftyp" and head[behind + 4 : behind + 8] != b"moov")


def _announced_bytes(head: bytes) -> int:
    """Return the length in bytes that a RIFF or IFF header gives to its file, or 0 where it gives none."""
    order = {b"RIFF": "little", b"RIFX": "big", b"FORM": "big"}.get(head[:4])
    if order is None:
        return 0
    size = int.from_bytes(head[4:8], "little" if order == "little" else "big")
    return size + 8 if 0 < size < _STREAMED_SIZE else 0


@contextmanager
def _opened(source: Path | str) -> Iterator[_Reader]:
    """Open a file, or lend standard input, which stays open.

    Raises:
        AudioError: there is no such file, it may not be read, or it is empty.
    """
    if str(source) == "-":
        yield _filled(_standard_input(), "standard input")
        return
    label = repr(str(source))
    if not str(source):
        raise AudioError(f"{label} is empty, expected the name of a recording")
    try:
        if Path(source).is_dir():
            raise AudioError(f"{label} is a directory, expected a recording; give the file in it")
        raw = Path(source).open("rb")  # noqa: SIM115 (an error of the with block below is not this one)
    except FileNotFoundError:
        raise AudioError(f"{label} does not exist, expected a recording; check its name and folder") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AudioError(f"{label} cannot be opened: {reason}; expected a recording that may be read") from None
    with raw:
        yield _filled(raw, label)


def _standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.isatty():
        raise AudioError("standard input is no recording; send one in, as in: cascade run - < talk.wav")
    return sys.stdin.buffer


def _filled(raw: BinaryIO, label: str) -> _Reader:
    reader = _Reader(raw, label)
    reader.check()
    if not reader.head:
        raise AudioError(f"{label} is empty (0 bytes), expected a recording such as {_FORMATS}")
    return reader


# --- decoding --------------------------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Mono samples (n_samples,) at rate, in Hz."""

    rate: int
    samples: Samples


@dataclass(slots=True)
class _Heard:
    """What a decoder made of a recording, for the notices at its end; times in seconds.

    filled_s is the silence that was put in for what was lost, uncounted_s what packets' times leave out, energy the sum
    of squares of the channels' mean, and energy_of_channels the mean of the channels' sums.
    """

    decoded_s: float = 0.0
    filled_s: float = 0.0
    uncounted_s: float = 0.0
    expected_s: float = 0.0
    faults: int = 0
    energy: float = 0.0
    energy_of_channels: float = 0.0

    def downmix(self, planes: Samples) -> Samples:
        """Average the channels: (n_channels, n_samples) -> (n_samples,)."""
        if len(planes) == 1:
            return np.ascontiguousarray(planes[0])
        mean: Samples = planes.mean(axis=0, dtype=np.float32)
        self.energy += float(np.square(mean, dtype=np.float64).sum())
        self.energy_of_channels += float(np.square(planes, dtype=np.float64).sum()) / len(planes)
        return mean

    def lost_before(self, time_s: float, announced_s: float | None) -> float:
        """Return how many seconds are lost before a frame at time_s; 0 where its time cannot be right."""
        gap_s = time_s - self.decoded_s - self.filled_s
        possible = gap_s < _UNANNOUNCED_GAP_S if announced_s is None else time_s < announced_s
        return gap_s if gap_s > _GAP_S and possible else 0.0

    def report(self, reader: _Reader) -> None:
        """Write a line to the log for each fault of the whole recording."""
        self._report_loss(reader)
        if self.energy < _CANCELLED * self.energy_of_channels:
            _log.warning(
                "%s: the channels cancel each other out, and little is heard of them together; give one channel",
                reader.label,
            )

    def _report_loss(self, reader: _Reader) -> None:
        """Say when part of the recording is not there or could not be decoded."""
        missing = reader.missing()
        if missing:
            _log.warning(
                "%s is cut off: %.1f %% of what its header announces is not there; the %.2f s that are there are used",
                *(reader.label, 100 * missing, self.decoded_s),
            )
        elif (faults := self.faults + reader.strayed) or self.expected_s - self.decoded_s > 0.25 or self.filled_s:
            _log.warning(
                "%s is damaged or cut off: %.2f s of %.2f s could be decoded (%d faults) and are used; "
                "%.2f s of silence keep the time",
                *(reader.label, self.decoded_s, max(self.expected_s, self.decoded_s), faults, self.filled_s),
            )
        elif reader.breaks_off():
            _log.warning("%s is cut off; the %.2f s that are there are used", reader.label, self.decoded_s)


def _decoded(reader: _Reader) -> Iterator[_Block]:
    file = _open_sampled(reader)
    if file is None:
        yield from _decode_packets(reader)
    else:
        yield from _decode_samples(file, reader)


def _open_sampled(reader: _Reader) -> soundfile.SoundFile | None:
    """Open reader with soundfile, or return None where PyAV is the one to read it."""
    import soundfile

    if not reader.seekable() or reader.head[:4] not in _SAMPLED:
        return None
    try:
        file = soundfile.SoundFile(reader)
    except soundfile.LibsndfileError:
        reader.seek(0)
        return None
    # mp3 in a wav is made of packets; and libsndfile believes the "0 samples" of a wav that was never closed.
    unclosed = file.frames == 0 and reader.size() - _announced_bytes(reader.head) > _SLACK_BYTES
    if unclosed or file.subtype.startswith("MPEG"):
        file.close()
        reader.seek(0)
        return None
    return file


def _decode_samples(file: soundfile.SoundFile, reader: _Reader) -> Iterator[_Block]:
    import soundfile

    heard = _Heard(expected_s=file.frames / max(file.samplerate, 1))
    with file:
        while True:
            try:
                block = file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError:
                heard.faults += 1
                break
            if not len(block):
                break
            heard.decoded_s += len(block) / file.samplerate
            yield _Block(file.samplerate, heard.downmix(block.T))
    reader.check()
    heard.report(reader)


def _decode_packets(reader: _Reader) -> Iterator[_Block]:
    heard = _Heard()
    with _open_container(reader) as container:
        stream = _audio_stream(container, reader.label)
        if stream.duration and stream.time_base and _knows_its_length(container.format.name, reader.head):
            heard.expected_s = float(stream.duration * stream.time_base)
        announced_s = container.duration / 1_000_000 if container.duration else None
        origin_s: float | None = None
        for frame in _frames(container, stream, heard):
            if frame.time is not None:
                origin_s = frame.time if origin_s is None else origin_s
                time_s = frame.time - origin_s + heard.uncounted_s
                heard.expected_s = max(heard.expected_s, time_s + frame.samples / frame.sample_rate)
                lost_s = heard.lost_before(time_s, announced_s)
                yield from _silence(round(lost_s * frame.sample_rate), frame.sample_rate)
                heard.filled_s += lost_s
            heard.decoded_s += frame.samples / frame.sample_rate
            yield _Block(frame.sample_rate, heard.downmix(_planes(frame)))
    reader.check()
    if heard.faults and not heard.decoded_s:
        raise AudioError(
            f"{reader.label} has the form of a recording ({container.format.name}), but none of its sound can be "
            "decoded; the file is damaged, encrypted or of a kind that FFmpeg does not know: export it again as wav"
        )
    heard.report(reader)


def _silence(n_samples: int, rate: int) -> Iterator[_Block]:
    """Yield silence, a block at a time."""
    for start in range(0, n_samples, _BLOCK_FRAMES):
        yield _Block(rate, np.zeros(min(_BLOCK_FRAMES, n_samples - start), np.float32))


def _knows_its_length(format_name: str, head: bytes) -> bool:
    """Tell whether the duration that FFmpeg gives stood in the header; it guesses others from the bit rate."""
    return format_name.startswith(("flac", "mov")) or (format_name == "mp3" and (b"Xing" in head or b"Info" in head))


def _open_container(reader: _Reader) -> av.container.InputContainer:
    import av

    try:
        # Tags are not needed, and old ones are seldom the UTF-8 that PyAV insists on.
        return av.open(reader, "r", options=_NO_PROTOCOL, metadata_errors="ignore")
    except (av.FFmpegError, OSError, ValueError) as error:
        reader.check()
        reason = getattr(error, "strerror", None) or "unknown format"
        raise AudioError(
            f"{reader.label} is not a recording that can be decoded ({reason[0].lower()}{reason[1:]}); expected audio "
            f"such as {_FORMATS}: check that it is the right file, and whole"
        ) from None


def _audio_stream(container: av.container.InputContainer, label: str) -> av.AudioStream:
    """Return the first audio stream, which a player would play."""
    if not container.streams.audio:
        kinds = ", ".join(sorted({stream.type or "unknown" for stream in container.streams})) or "nothing"
        raise AudioError(
            f"{label} holds no sound ({container.format.name} with {kinds}); expected audio such as {_FORMATS}"
        )
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise AudioError(
            f"{label} holds sound ({container.format.name}) of a kind that FFmpeg does not know: export it as wav"
        )
    return stream


def _frames(container: av.container.InputContainer, stream: av.AudioStream, heard: _Heard) -> Iterator[av.AudioFrame]:
    """Decode packet after packet; skip those that are damaged, and stop where the container itself breaks off."""
    import av

    packets = container.demux(stream)
    uncounted = _Uncounted() if container.format.name == "mp3" else None
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:
            heard.faults += 1
            return
        if packet is None:
            return
        try:
            frames = packet.decode()
            damaged = False
        except av.FFmpegError:
            frames, damaged = [], True
            heard.faults += 1
        yield from (frame for frame in frames if isinstance(frame, av.AudioFrame) and frame.sample_rate > 0)
        if uncounted is not None:
            heard.uncounted_s += uncounted.seconds_of(packet, damaged)


class _Uncounted:
    """How much sound was in the packets of an mp3 beyond one frame each.

    The frames of an mp3 carry no time, so that FFmpeg counts packets; but it makes one packet of all damaged bytes up
    to the next good frame. How many frames those were can only be told by the size of the packets before. The tags
    (ID3) that stand between joined recordings look like damage too, but were never sound.
    """

    _MEMORY = 100
    """Packets (2.6 s at 44.1 kHz) whose mean size counts."""

    def __init__(self) -> None:
        self._n_packets = 0
        self._size = 0.0
        self._tag = range(0)

    def seconds_of(self, packet: av.Packet[Any], damaged: bool) -> float:
        """Return the seconds of sound that were in a packet beyond its first frame; negative if not even that was."""
        if not (damaged or packet.size > _MP3_PACKET_BYTES):
            if packet.size:
                self._n_packets = min(self._n_packets + 1, self._MEMORY)
                self._size += (packet.size - self._size) / self._n_packets
            return 0.0
        if not self._size or packet.duration is None or packet.time_base is None:
            return 0.0
        n_tag = self._n_of_tag(packet)
        n_frames = max(0 if n_tag else 1, round((packet.size - n_tag) / self._size))
        return (n_frames - 1) * float(packet.duration * packet.time_base)

    def _n_of_tag(self, packet: av.Packet[Any]) -> int:
        """Return how many bytes of a packet belong to a tag that begins in it, or began in one before."""
        if packet.pos is None:
            return 0
        data = bytes(packet)
        at = data.find(b"ID3")
        if at >= 0 and len(data) >= at + 10:
            size = sum(
                (byte & 127) << shift for byte, shift in zip(data[at + 6 : at + 10], (21, 14, 7, 0), strict=True)
            )
            self._tag = range(packet.pos + at, packet.pos + at + 10 + size)
        start, stop = max(packet.pos, self._tag.start), min(packet.pos + packet.size, self._tag.stop)
        return max(0, stop - start)


def _planes(frame: av.AudioFrame) -> Samples:
    """Return a frame of any sample format as float32 (n_channels, n_samples) with full scale 1."""
    data: NDArray[Any] = frame.to_ndarray()
    if not frame.format.is_planar:
        data = data.reshape(-1, len(frame.layout.channels)).T
    if data.dtype.kind == "f":
        return data.astype(np.float32)
    full_scale = 2.0 ** (8 * data.dtype.itemsize - 1)
    middle = full_scale if data.dtype.kind == "u" else 0.0
    return (data.astype(np.float32) - np.float32(middle)) / np.float32(full_scale)


# --- checking and resampling -----------------------------------------------------------------------------------------


def _checked(blocks: Iterable[_Block], label: str) -> Iterator[_Block]:
    """Pass on what can be sound.

    A NaN is an error and not a zero: it shows that the program which wrote the file failed, and its neighbours are then
    worth as little. Turned into silence it would take words out of the transcript without a trace.

    Raises:
        AudioError: a sample is NaN, infinite or absurdly large, or the rate is none that recordings have.
    """
    time_s = total_s = square_s = 0.0
    for rate, samples in blocks:
        if rate not in _RATES:
            raise AudioError(
                f"{label} claims a sample rate of {rate} Hz, expected {_RATES[0]} to {_RATES[-1]} Hz: its header is "
                "damaged; export it again"
            )
        wrong = np.flatnonzero(~(np.abs(samples) <= _LOUDEST))  # a comparison with NaN is false
        if len(wrong):
            kind = "far above full scale" if np.isfinite(samples[wrong[0]]) else "not a finite number"
            raise AudioError(
                f"{label} holds a sample that is {kind} at {time_s + wrong[0] / rate:.3f} s; expected samples in "
                "[-1, 1]: export the recording again, as 16-bit wav"
            )
        time_s += len(samples) / rate
        total_s += float(samples.sum(dtype=np.float64)) / rate
        square_s += float(np.square(samples, dtype=np.float64).sum()) / rate
        yield _Block(rate, samples)
    offset = total_s / time_s if time_s else 0.0
    deviation = math.sqrt(max(0.0, square_s / time_s - offset**2)) if time_s else 0.0
    if abs(offset) > max(_OFFSET, deviation):
        _log.warning(
            "%s: its samples lie %+.2f of full scale off zero on average, and speech may not be found in it; take that "
            "offset out, with a high-pass at 20 Hz",
            label,
            offset,
        )


def _resampled(blocks: Iterable[_Block], label: str) -> Iterator[Samples]:
    """Bring blocks to 16 kHz and into [-1, 1]; the rate may change on the way, as it does in joined streams."""
    rate, convert = SAMPLE_RATE, _converter(SAMPLE_RATE)
    for block in blocks:
        if block.rate != rate:
            yield convert(np.zeros(0, np.float32), True)
            rate, convert = block.rate, _converter(block.rate)
        yield convert(block.samples, False)
    yield convert(np.zeros(0, np.float32), True)


def _converter(rate: int) -> Callable[[Samples, bool], Samples]:
    """Return a function that resamples from rate to 16 kHz without delay: (samples, is_last) -> samples, clipped.

    Clipping comes last, since a resampler overshoots at steps.
    """
    if rate == SAMPLE_RATE:
        return lambda samples, _: np.clip(samples, -1.0, 1.0)
    import soxr

    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
    return lambda samples, last: np.clip(stream.resample_chunk(samples, last=last), -1.0, 1.0)
