"""audio.py: whatever the file, the same sound comes out; whatever the fault, one line says so."""

from __future__ import annotations

import io
import logging
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import SampleBuffer, open_audio, read_audio
from cascade.errors import AudioError
from cascade.types import SAMPLE_RATE, Samples, Span, concatenate

ROOT = Path(__file__).resolve().parents[1]
LSB = 1 / 32768


def tone(rate: int = SAMPLE_RATE, duration_s: float = 1.0, frequency: float = 1000.0) -> Samples:
    """A sine of amplitude 0.5."""
    times = np.arange(round(rate * duration_s)) / rate
    return (0.5 * np.sin(2 * np.pi * frequency * times)).astype(np.float32)


def wav(samples: Samples, rate: int = SAMPLE_RATE, subtype: str = "PCM_16", kind: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


@cache
def coded(container: str, codec: str, rate: int = 48_000, duration_s: float = 2.0, movflags: str = "") -> bytes:
    """A stereo tone, coded by PyAV; skips the test when this build of FFmpeg lacks the encoder."""
    if codec not in av.codecs_available:
        pytest.skip(f"this build of PyAV has no encoder {codec}")
    pcm = np.repeat((32767 * tone(rate, duration_s)).astype(np.int16), 2)[None]
    options = {"movflags": movflags} if movflags else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coded"
        with av.open(str(path), "w", format=container, options=options) as out:
            stream: Any = out.add_stream(codec, rate=rate)
            stream.layout = "stereo"
            frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="stereo")
            frame.rate, frame.pts = rate, 0
            context = stream.codec_context
            context.open(strict=False)
            fit = av.AudioResampler(context.format, "stereo", rate, frame_size=context.frame_size or 1024)
            for piece in [*fit.resample(frame), *fit.resample(None), None]:
                out.mux(stream.encode(piece))
        return path.read_bytes()


def stored(folder: Path, data: bytes, name: str = "talk") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def similarity(heard: Samples, expected: Samples, shift: int = 0) -> float:
    """Correlation of the middle of both, heard being moved by shift samples."""
    length = min(len(heard), len(expected))
    middle = slice(800, length - 800)
    return float(np.corrcoef(np.roll(heard[:length], shift)[middle], expected[:length][middle])[0, 1])


def piped(data: bytes, program: str) -> str:
    """Run a line of Python on `read_audio("-")`, as y, with data on a pipe as standard input."""
    code = f"import numpy as np; from cascade.audio import *; y = read_audio('-'); print({program})"
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, cwd=ROOT, timeout=60, check=False
    )
    return (done.stdout + done.stderr).decode()


class TestSampleBuffer:
    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 9000), st.integers(-100, 30_000), st.integers(0, 9000)), max_size=20))
    def test_equals_one_big_array_however_it_is_cut(self, steps: list[tuple[int, int, int]]) -> None:
        whole = np.arange(sum(n for n, _, _ in steps), dtype=np.float32)
        buffer, end, start = SampleBuffer(), 0, 0
        for n_samples, drop, width in steps:
            buffer.append(whole[end : end + n_samples], Span(end, end + n_samples))
            end += n_samples
            assert (buffer.start, buffer.end, len(buffer)) == (start, end, end - start)
            span = Span(max(start, end - width), end)
            assert np.array_equal(buffer.take(span), whole[span.start : span.end])
            buffer.drop_before(drop)
            start = min(max(start, drop), end)
            assert np.array_equal(buffer.take(Span(start, end)), whole[start:end])

    def test_what_was_taken_stays_as_it_was(self) -> None:
        buffer = SampleBuffer()
        buffer.append(np.ones(10, np.float32))
        taken = buffer.take(Span(0, 10))
        buffer.drop_before(10)
        for _ in range(10):
            buffer.append(np.zeros(SAMPLE_RATE, np.float32))
            buffer.drop_before(buffer.end)
        assert np.array_equal(taken, np.ones(10))

    def test_what_was_viewed_stays_as_it_was_and_cannot_be_written_to(self) -> None:
        buffer = SampleBuffer()
        buffer.append(np.ones(10, np.float32))
        views = [buffer.view(Span(0, 10)), buffer.view(Span(2, 4))]
        assert np.shares_memory(views[0], views[1])
        for _ in range(10):
            buffer.append(np.zeros(SAMPLE_RATE, np.float32))
            buffer.drop_before(buffer.end)
        assert [view.tolist() for view in views] == [[1] * 10, [1] * 2]
        with pytest.raises(ValueError, match="read-only"):
            views[0][:] = 0

    def test_what_was_taken_may_be_written_to(self) -> None:
        buffer = SampleBuffer()
        buffer.append(np.ones(10, np.float32))
        buffer.take(Span(0, 10))[:] = 0
        assert np.array_equal(buffer.take(Span(0, 10)), np.ones(10))

    @pytest.mark.parametrize(
        ("span", "message"),
        [
            (Span(11, 15), "a gap: samples from 11 on came, those from 10 on were expected"),
            (Span(9, 13), "an overlap: samples from 9 on came, those from 10 on were expected"),
            (Span(10, 15), r"4 samples came with the span \[10, 15\) of 5"),
        ],
    )
    def test_refuses_what_does_not_follow(self, span: Span, message: str) -> None:
        buffer = SampleBuffer(10)
        with pytest.raises(ValueError, match=message):
            buffer.append(np.zeros(4, np.float32), span)
        assert (buffer.start, buffer.end) == (10, 10)

    @pytest.mark.parametrize("samples", [np.zeros(4), np.zeros((2, 2), np.float32)])
    def test_refuses_other_arrays(self, samples: Any) -> None:
        with pytest.raises(ValueError, match="expected float32 samples"):
            SampleBuffer().append(samples)

    @pytest.mark.parametrize("span", [Span(4, 6), Span(6, 16)])
    def test_refuses_to_give_what_it_does_not_hold(self, span: Span) -> None:
        buffer = SampleBuffer(5)
        buffer.append(np.zeros(10, np.float32))
        with pytest.raises(ValueError, match=r"the buffer holds \[5, 15\)"):
            buffer.take(span)

    def test_memory_follows_what_is_kept(self) -> None:
        second = np.zeros(SAMPLE_RATE, np.float32)
        buffer = SampleBuffer()
        tracemalloc.start()
        for _ in range(600):
            buffer.append(second)
            buffer.drop_before(buffer.end - SAMPLE_RATE)
        streamed = tracemalloc.get_traced_memory()[1]
        buffer.append(np.concatenate([second] * 600))
        buffer.drop_before(buffer.end - 100)
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert streamed < 12 * second.nbytes
        assert left < 3 * second.nbytes

    def test_appending_is_linear(self) -> None:
        def took(n_appends: int) -> float:
            buffer, piece, began = SampleBuffer(), np.zeros(160, np.float32), time.process_time()
            for _ in range(n_appends):
                buffer.append(piece)
            return time.process_time() - began

        # Joining everything anew at each push would take 256 times as long, not 16 times.
        assert took(16_000) < 100 * max(took(1000), 0.001)


class TestChunks:
    @settings(max_examples=30, deadline=None)
    @given(
        st.integers(0, 30_000),
        st.sampled_from([8000, 16_000, 44_100]),
        st.floats(0.001, 1.0),
    )
    def test_block_length_changes_nothing_but_the_cuts(
        self, tmp_path_factory: pytest.TempPathFactory, n_samples: int, rate: int, block_s: float
    ) -> None:
        sound = np.random.default_rng(n_samples).uniform(-0.9, 0.9, n_samples).astype(np.float32)
        path = stored(tmp_path_factory.getbasetemp(), wav(sound, rate))
        chunks = list(open_audio(path, block_s=block_s))
        assert np.array_equal(concatenate([chunk.mixture for chunk in chunks]), read_audio(path))
        assert all(before.span.end == after.span.start for before, after in pairwise(chunks))
        assert all(len(chunk.span) == round(block_s * SAMPLE_RATE) for chunk in chunks[:-1])
        assert not chunks or (chunks[0].span.start == 0 and 0 < len(chunks[-1].span) <= round(block_s * SAMPLE_RATE))

    @pytest.mark.parametrize("block_s", [0.0, -1.0, 1e-6])
    def test_block_shorter_than_a_sample_is_refused_at_once(self, block_s: float) -> None:
        with pytest.raises(ValueError, match="block_s must be at least one sample"):
            open_audio("never opened", block_s=block_s)

    @pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 800])
    @pytest.mark.parametrize("kind", ["WAV", "FLAC"])
    def test_next_to_nothing_is_valid(self, tmp_path: Path, n_samples: int, kind: str) -> None:
        if (kind, n_samples) == ("FLAC", 0):
            pytest.skip("libsndfile writes a FLAC of 0 samples as a file of 0 bytes")
        chunks = list(open_audio(stored(tmp_path, wav(tone()[:n_samples], kind=kind))))
        assert [chunk.span for chunk in chunks] == ([Span(0, n_samples)] if n_samples else [])

    def test_limit(self, tmp_path: Path) -> None:
        path = stored(tmp_path, wav(tone(duration_s=3)))
        assert np.array_equal(read_audio(path, limit_s=1.25), read_audio(path)[:20_000])
        assert len(read_audio(path, limit_s=0)) == 0
        assert len(read_audio(path, limit_s=9)) == 48_000
        with pytest.raises(ValueError, match="limit_s must not be negative"):
            read_audio(path, limit_s=-1)

    def test_memory_does_not_grow_with_the_recording(self, tmp_path: Path) -> None:
        def peak(duration_s: float) -> int:
            path = stored(tmp_path, wav(np.tile(tone(8000), (round(duration_s), 1)).reshape(-1), 8000))
            tracemalloc.start()
            for _ in open_audio(path):
                pass
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

        peak(1)  # imports
        assert peak(300) < 1.5 * peak(30)

    def test_file_is_closed_when_the_listener_stops(self, tmp_path: Path) -> None:
        for data in (wav(tone(duration_s=3)), coded("mp4", "aac")):
            chunks: Any = open_audio(stored(tmp_path, data))
            next(chunks)
            chunks.close()  # an open file would be a ResourceWarning, which is an error here


class TestEncodings:
    @pytest.mark.parametrize(
        ("kind", "subtype", "tolerance"),
        [
            ("WAV", "PCM_16", LSB),
            ("WAV", "PCM_24", LSB),
            ("WAV", "PCM_32", LSB),
            ("WAV", "FLOAT", LSB),
            ("WAV", "DOUBLE", LSB),
            ("WAVEX", "PCM_16", LSB),
            ("WAVEX", "PCM_24", LSB),
            ("WAVEX", "FLOAT", LSB),
            ("WAV", "PCM_U8", 1 / 128),
            ("WAV", "ULAW", 0.02),  # 8-bit companding: up to 1/32 of the sample's size
            ("WAV", "ALAW", 0.02),
            ("RF64", "PCM_16", LSB),
            ("W64", "PCM_24", LSB),
            ("AIFF", "PCM_16", LSB),
            ("AU", "PCM_16", LSB),
            ("CAF", "PCM_16", LSB),
            ("FLAC", "PCM_16", LSB),
            ("FLAC", "PCM_24", LSB),
        ],
    )
    @pytest.mark.parametrize("through", ["soundfile", "PyAV"])
    def test_exact(self, tmp_path: Path, kind: str, subtype: str, tolerance: float, through: str) -> None:
        data = wav(tone(), subtype=subtype, kind=kind)
        # A pipe is PyAV's.
        heard = read_audio(stored(tmp_path, data)) if through == "soundfile" else read_fifo(tmp_path, data)
        assert len(heard) == SAMPLE_RATE
        assert np.abs(heard - tone()).max() <= tolerance

    @pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000, 192_000])
    @pytest.mark.parametrize("n_extra", [0, 1, 7])
    def test_any_rate_without_delay_or_change_of_level(self, tmp_path: Path, rate: int, n_extra: int) -> None:
        sound = tone(rate, 2.0)[: 2 * rate - n_extra]
        heard = read_audio(stored(tmp_path, wav(sound, rate, "FLOAT")))
        assert abs(len(heard) - len(sound) * SAMPLE_RATE / rate) <= 1
        middle = slice(800, -800)
        assert np.abs(heard - tone(duration_s=3)[: len(heard)])[middle].max() < 1e-5

    @pytest.mark.parametrize("n_channels", [1, 2, 3, 6, 8])
    @pytest.mark.parametrize("kind", ["WAV", "FLAC"])
    def test_channels_are_averaged(self, tmp_path: Path, n_channels: int, kind: str) -> None:
        sound = np.stack([tone() * np.float32((index + 1) / n_channels) for index in range(n_channels)], axis=1)
        heard = read_audio(stored(tmp_path, wav(sound, kind=kind)))
        assert np.abs(heard - sound.mean(axis=1)).max() <= 2 * LSB

    @pytest.mark.parametrize("kind", ["WAV", "RF64"])
    def test_float_beyond_full_scale_is_clipped(self, tmp_path: Path, kind: str) -> None:
        heard = read_audio(stored(tmp_path, wav(4 * tone(), subtype="FLOAT", kind=kind)))
        assert np.array_equal(heard, np.clip(4 * tone(), -1, 1))

    def test_resampling_does_not_overshoot_full_scale(self, tmp_path: Path) -> None:
        square = np.sign(tone(44_100, frequency=441.3))
        assert np.abs(read_audio(stored(tmp_path, wav(square, 44_100, "FLOAT")))).max() == 1.0

    @pytest.mark.parametrize(
        ("container", "codec", "slack_s"),
        [
            ("mp4", "aac", 0.03),
            ("mp4", "alac", 0.001),
            ("mp3", "libmp3lame", 0.001),
            ("ogg", "libopus", 0.001),
            ("webm", "libopus", 0.001),
            ("matroska", "flac", 0.001),
            ("wav", "adpcm_ms", 0.05),
        ],
    )
    def test_coded_by_ffmpeg(self, tmp_path: Path, container: str, codec: str, slack_s: float) -> None:
        heard = read_audio(stored(tmp_path, coded(container, codec), "a name without its extension"))
        assert len(heard) / SAMPLE_RATE == pytest.approx(2.0, abs=slack_s)
        assert similarity(heard, tone(duration_s=2)) > 0.99
        assert similarity(heard, tone(duration_s=2), shift=1) < 0.95  # so the one above saw no delay
        assert np.std(heard) == pytest.approx(np.std(tone()), rel=0.06)

    @pytest.mark.parametrize("rate", [8000, 22_050, 44_100])
    @pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
    def test_mp3_gives_the_samples_that_went_in(self, tmp_path: Path, rate: int, mode: str) -> None:
        file = io.BytesIO()
        with soundfile.SoundFile(file, "w", rate, 1, format="MP3", bitrate_mode=mode) as out:
            out.write(tone(rate, 5.0))
        heard = read_audio(stored(tmp_path, file.getvalue()))
        assert abs(len(heard) - 5 * SAMPLE_RATE) <= 1
        assert similarity(heard, tone(duration_s=5)) > 0.99

    @pytest.mark.parametrize(("subtype", "rate"), [("VORBIS", 44_100), ("OPUS", 48_000)])
    def test_ogg(self, tmp_path: Path, subtype: str, rate: int) -> None:
        data = wav(tone(rate, 2.0), rate, subtype, "OGG")
        assert similarity(read_audio(stored(tmp_path, data)), tone(duration_s=2)) > 0.99

    def test_joined_ogg_streams_are_all_heard(self, tmp_path: Path) -> None:
        one = wav(tone(44_100), 44_100, "VORBIS", "OGG")
        # FFmpeg leaves the padding (under 0.05 s) of all streams but the last where it is.
        assert len(read_audio(stored(tmp_path, one + one))) == pytest.approx(2 * SAMPLE_RATE, abs=800)

    def test_old_tags_do_no_harm(self, tmp_path: Path) -> None:
        text = b"\x03\xe4\xf6\xfc"  # says UTF-8, is Latin-1
        frame = b"TIT2" + struct.pack(">IH", len(text), 0) + text
        tag = b"ID3\x03\0\0\0\0\0" + bytes([len(frame)]) + frame
        assert len(read_audio(stored(tmp_path, tag + coded("mp3", "libmp3lame")))) == 2 * SAMPLE_RATE


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "a b (1) 中文 ⚒️;touch x.wav",
            "-",
            "-i",
            "--help",
            "http:x.wav",
            "concat:a|b",
            "x.raw",
            "x.mp3",
            "%d.wav",
            "x",
        ],
    )
    def test_any_name_of_a_wav(self, tmp_path: Path, name: str) -> None:
        assert len(read_audio(stored(tmp_path, wav(tone()), name))) == SAMPLE_RATE
        assert len(read_audio(str(stored(tmp_path, coded("mp4", "aac"), name)))) > SAMPLE_RATE

    def test_relative_names_are_files_and_no_protocols(self, tmp_path: Path) -> None:
        stored(tmp_path, coded("mp4", "aac"), "pipe:0")
        code = "from cascade.audio import read_audio; print(len(read_audio('pipe:0')))"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True
        )
        assert int(done.stdout) > SAMPLE_RATE

    def test_symlink(self, tmp_path: Path) -> None:
        link = tmp_path / "link.wav"
        link.symlink_to(stored(tmp_path, wav(tone())))
        assert len(read_audio(link)) == SAMPLE_RATE


def read_fifo(folder: Path, data: bytes) -> Samples:
    """What read_audio makes of a named pipe."""
    path = folder / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[data])
    writer.start()
    try:
        return read_audio(path)
    finally:
        writer.join()
        path.unlink()


def with_sizes(data: bytes, size: int) -> bytes:
    """The wav with both of its sizes overwritten, as programs leave them that write to a pipe or crash."""
    at = data.index(b"data") + 4
    return data[:4] + struct.pack("<I", size) + data[8:at] + struct.pack("<I", size) + data[at + 4 :]


class TestPipes:
    @pytest.mark.parametrize("size", [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    @pytest.mark.parametrize("read", [read_fifo, lambda folder, data: read_audio(stored(folder, data))])
    def test_wav_of_unknown_length(
        self, tmp_path: Path, size: int, read: Callable[[Path, bytes], Samples], caplog: pytest.LogCaptureFixture
    ) -> None:
        heard = read(tmp_path, with_sizes(wav(tone()), size))
        assert len(heard) == SAMPLE_RATE
        assert np.abs(heard - tone()).max() <= LSB
        assert not caplog.messages

    def test_wav_of_a_recorder_that_crashed(self, tmp_path: Path) -> None:
        data = wav(tone())
        at = data.index(b"data") + 4
        crashed = data[:4] + struct.pack("<I", 36) + data[8:at] + bytes(4) + data[at + 4 :]
        assert len(read_audio(stored(tmp_path, crashed))) == SAMPLE_RATE

    @pytest.mark.parametrize(
        ("container", "codec", "movflags"),
        [
            ("mp3", "libmp3lame", ""),
            ("ogg", "libopus", ""),
            ("webm", "libopus", ""),
            ("mp4", "aac", ""),  # its index at the end
            ("mp4", "aac", "faststart"),
        ],
    )
    def test_coded_recordings_from_a_pipe(self, tmp_path: Path, container: str, codec: str, movflags: str) -> None:
        heard = read_fifo(tmp_path, coded(container, codec, movflags=movflags))
        assert len(heard) / SAMPLE_RATE == pytest.approx(2.0, abs=0.04)
        assert similarity(heard, tone(duration_s=2)) > 0.99

    def test_standard_input(self) -> None:
        assert piped(with_sizes(wav(tone()), 0xFFFFFFFF), "len(y), round(float(abs(y).max()), 2)") == "16000 0.5\n"

    def test_standard_input_from_a_file(self, tmp_path: Path) -> None:
        code = "from cascade.audio import read_audio; print(len(read_audio('-')))"
        with stored(tmp_path, wav(tone())).open("rb") as file:
            done = subprocess.run([sys.executable, "-c", code], stdin=file, capture_output=True, cwd=ROOT, check=True)
        assert int(done.stdout) == SAMPLE_RATE

    def test_empty_standard_input(self) -> None:
        assert "AudioError: standard input is empty (0 bytes)" in piped(b"", "y")

    def test_nothing_lands_on_disk(self) -> None:
        # An audit hook sees each file that Python opens, also by way of tempfile.
        hook = "lambda event, args: event == 'open' and args[2] & 3 and print('WRITES', args[0])"
        code = f"import sys; sys.addaudithook({hook}); from cascade.audio import *; print(len(read_audio('-')))"
        done = subprocess.run(
            [sys.executable, "-B", "-c", code], input=coded("mp4", "aac"), capture_output=True, cwd=ROOT, check=True
        )
        assert int(done.stdout) > 1.9 * SAMPLE_RATE

    def test_live_sound_comes_out_while_the_pipe_is_open(self, tmp_path: Path) -> None:
        path = tmp_path / "live"
        os.mkfifo(path)
        release, in_time = threading.Event(), []

        def play() -> None:
            with path.open("wb") as pipe:
                pipe.write(with_sizes(wav(np.tile(tone(), 10)), 0xFFFFFFFF))
                pipe.flush()
                in_time.append(release.wait(10))

        player = threading.Thread(target=play)
        player.start()
        chunks = open_audio(path)
        heard = [next(chunks) for _ in range(98)]  # of 100: the pipe has not ended
        release.set()
        heard += list(chunks)
        player.join()
        assert heard[-1].span.end == 10 * SAMPLE_RATE
        assert in_time == [True]

    @pytest.mark.parametrize(("kind", "order"), [("WAV", "<"), ("AIFF", ">")])
    def test_what_follows_the_sound_is_read_too(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, order: str
    ) -> None:
        data = wav(tone(), kind=kind) + b"junk" + struct.pack(f"{order}I", 300_000) + bytes(300_000)
        sized = data[:4] + struct.pack(f"{order}I", len(data) - 8) + data[8:]
        assert len(read_fifo(tmp_path, sized)) == SAMPLE_RATE
        assert not caplog.messages


PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for kind, body in [
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(9 * 8))),
        (b"IEND", b""),
    ]
)


@cache
def silent_film() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream: Any = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        out.mux([*stream.encode(frame), *stream.encode(None)])
    return file.getvalue()


def unknown_codec() -> bytes:
    data = bytearray(wav(tone()))
    data[20:22] = b"\x34\x12"
    return bytes(data)


class TestFaults:
    def one_line(self, source: Path) -> str:
        with pytest.raises(AudioError) as caught:
            read_audio(source)
        message = str(caught.value)
        assert "\n" not in message
        assert source.name in message
        return message

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (lambda: b"", "is empty (0 bytes)"),
            (lambda: b"Dear all,\nhere are the minutes.\n" * 50, "is not a recording that can be decoded"),
            (lambda: b'{"speaker": "A"}', "is not a recording that can be decoded"),
            (lambda: bytes(100_000), "is not a recording that can be decoded"),
            (lambda: np.random.default_rng(0).bytes(100_000), "is not a recording that can be decoded"),
            (lambda: wav(tone())[:30], "is not a recording that can be decoded"),
            (lambda: coded("mp4", "aac")[:-2000], "is not a recording that can be decoded"),
            (lambda: PNG, "holds no sound (png_pipe with video)"),
            (silent_film, "with video); expected audio such as wav"),
            (unknown_codec, "of a kind that FFmpeg does not know"),
        ],
        ids=["empty", "text", "json", "zeros", "garbage", "half header", "m4a", "png", "film", "unknown codec"],
    )
    def test_no_recording(self, tmp_path: Path, data: Callable[[], bytes], expected: str) -> None:
        assert expected in self.one_line(stored(tmp_path, data(), "talk.wav"))

    def test_missing_directory_and_impossible_names(self, tmp_path: Path) -> None:
        assert "does not exist" in self.one_line(tmp_path / "nothing.wav")
        assert "is a directory" in self.one_line(tmp_path)
        assert "cannot be opened: File name too long" in self.one_line(tmp_path / ("x" * 300))
        with pytest.raises(AudioError, match=r"^'' is empty, expected the name of a recording$"):
            read_audio("")
        with pytest.raises(AudioError, match="null byte"):
            read_audio("a\0b")

    def test_name_with_a_line_break_stays_on_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(AudioError) as caught:
            read_audio(tmp_path / "a\nb.wav")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
    @pytest.mark.parametrize("n_channels", [1, 2])
    def test_nan_is_named_by_its_time(self, tmp_path: Path, value: float, subtype: str, n_channels: int) -> None:
        sound = np.stack([tone(44_100, 2.0)] * n_channels, axis=1)
        sound[66_150, -1] = value
        path = stored(tmp_path, wav(sound, 44_100, subtype))
        assert "not a finite number at 1.500 s" in self.one_line(path)
        chunks = open_audio(path)
        assert next(chunks).span == Span(0, 1600)  # what came before it is not lost

    def test_integers_stored_as_floats_are_not_taken_for_noise(self, tmp_path: Path) -> None:
        assert "far above full scale at 0.0" in self.one_line(stored(tmp_path, wav(32_768 * tone(), subtype="FLOAT")))

    @pytest.mark.parametrize("rate", [7, 2_000_000_000])
    def test_rate_that_no_recording_has(self, tmp_path: Path, rate: int) -> None:
        data = bytearray(wav(tone()))
        data[24:28] = struct.pack("<I", rate)
        self.one_line(stored(tmp_path, bytes(data)))

    @pytest.mark.parametrize(
        ("data", "share"),
        [
            (lambda: wav(tone(duration_s=2)), 0.6),
            (lambda: wav(tone(duration_s=2), kind="AIFF"), 0.6),
            (lambda: wav(tone(duration_s=2), kind="FLAC"), 0.6),
            (lambda: coded("mp3", "libmp3lame"), 0.6),
            (lambda: coded("mp4", "aac", movflags="faststart"), 0.6),
        ],
        ids=["wav", "aiff", "flac", "mp3", "m4a"],
    )
    @pytest.mark.parametrize("read", [read_fifo, lambda folder, data: read_audio(stored(folder, data))])
    def test_cut_off_recordings_give_what_they_hold_and_say_so(
        self,
        tmp_path: Path,
        data: Callable[[], bytes],
        share: float,
        read: Callable[[Path, bytes], Samples],
        caplog: pytest.LogCaptureFixture,
        request: pytest.FixtureRequest,
    ) -> None:
        whole = data()
        heard = read(tmp_path, whole[: round(share * len(whole))])
        assert len(heard) / SAMPLE_RATE == pytest.approx(2 * share, abs=0.2)
        assert similarity(heard, tone(duration_s=2)) > 0.99
        if "mp3" in request.node.callspec.id and read is read_fifo:
            return  # from a pipe FFmpeg gives no length for it
        (message,) = caplog.messages
        assert "cut off" in message
        assert "\n" not in message

    @pytest.mark.parametrize(("offset", "said"), [(0.5, "+0.50"), (-0.2, "-0.20"), (0.05, "+0.05"), (0.03, None)])
    def test_samples_that_lie_off_zero_are_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: float, said: str | None
    ) -> None:
        """Nothing is found in them, and that is neither the voice's nor the room's fault."""
        read_audio(stored(tmp_path, wav(0.12 * tone(44_100, 2.0) + np.float32(offset), 44_100)))
        assert len(caplog.messages) == (said is not None)
        assert all(f"its samples lie {said} of full scale off zero on average" in line for line in caplog.messages)

    @pytest.mark.parametrize("share", [0.4, 0.6, 0.99])
    @pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
    def test_an_ogg_that_ends_within_a_page_is_said_to_be_cut_off(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, subtype: str, share: float
    ) -> None:
        noise = np.random.default_rng(0).normal(0, 0.1, 240_000).astype(np.float32)
        whole = wav(noise, 48_000, subtype, "OGG")
        read_audio(stored(tmp_path, whole))
        assert not caplog.messages
        heard = read_audio(stored(tmp_path, whole[: round(share * len(whole))]))
        (message,) = caplog.messages
        assert message.endswith(f"talk' is cut off; the {len(heard) / SAMPLE_RATE:.2f} s that are there are used")

    def test_whole_recordings_are_not_said_to_be_cut_off(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for data in (
            *(wav(tone(44_100, 2.0), 44_100, kind=kind) for kind in ("WAV", "WAVEX", "RF64", "AIFF", "FLAC")),
            *(
                coded(*kind)
                for kind in [("mp4", "aac"), ("mp3", "libmp3lame"), ("ogg", "libopus"), ("webm", "libopus")]
            ),
            *(coded(*kind) for kind in [("adts", "aac"), ("mpegts", "aac"), ("avi", "ac3")]),
        ):
            read_audio(stored(tmp_path, data))
            read_fifo(tmp_path, data)
        assert not caplog.messages

    @pytest.mark.parametrize(
        ("data", "least_s"),
        [
            (lambda: wav(tone(44_100, 5.0), 44_100, kind="FLAC"), 4.5),
            (lambda: coded("mp3", "libmp3lame", duration_s=5.0), 4.5),
            (lambda: coded("mp4", "aac", duration_s=5.0), 4.5),
            (lambda: wav(tone(44_100, 5.0), 44_100, "VORBIS", "OGG"), 2.0),
        ],
        ids=["flac", "mp3", "m4a", "ogg"],
    )
    def test_damage_in_the_middle_costs_the_damaged_part_only(
        self, tmp_path: Path, data: Callable[[], bytes], least_s: float
    ) -> None:
        damaged = bytearray(data())
        middle = len(damaged) // 2
        damaged[middle : middle + 800] = np.random.default_rng(1).bytes(800)
        assert len(read_audio(stored(tmp_path, bytes(damaged)))) >= least_s * SAMPLE_RATE

    @pytest.mark.parametrize(("kind", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
    @pytest.mark.parametrize("read", [read_fifo, lambda folder, data: read_audio(stored(folder, data))])
    def test_what_follows_damage_keeps_its_time(
        self,
        tmp_path: Path,
        kind: str,
        subtype: str,
        read: Callable[[Path, bytes], Samples],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        noise = np.random.default_rng(0).normal(0, 0.02, 6 * SAMPLE_RATE).astype(np.float32)
        noise[4 * SAMPLE_RATE :] += tone(duration_s=2)
        damaged = bytearray(wav(noise, SAMPLE_RATE, subtype, kind))
        start, length = 2 * len(damaged) // 5, len(damaged) // 12
        damaged[start : start + length] = np.random.default_rng(1).bytes(length)
        heard = read(tmp_path, bytes(damaged))
        loudness = np.sqrt(np.mean(heard[: len(heard) // 80 * 80].reshape(-1, 80) ** 2, axis=1))
        assert np.flatnonzero(loudness > 0.15)[0] * 80 / SAMPLE_RATE == pytest.approx(4.0, abs=0.05)
        assert len(heard) <= 6.05 * SAMPLE_RATE
        (message,) = caplog.messages
        assert "is damaged or cut off" in message
        assert "s of silence keep the time" in message

    def test_a_picture_between_joined_mp3s_is_not_taken_for_lost_sound(self, tmp_path: Path) -> None:
        part, size = coded("mp3", "libmp3lame"), 100_000
        head = b"ID3\x03\0\0" + bytes(size >> shift & 127 for shift in (21, 14, 7, 0))
        tag = head + np.random.default_rng(0).bytes(size)
        joined = len(read_audio(stored(tmp_path, part + part)))
        assert len(read_audio(stored(tmp_path, part + tag + part))) == pytest.approx(joined, abs=SAMPLE_RATE // 10)

    def test_a_long_gap_is_filled_piece_by_piece(self, tmp_path: Path) -> None:
        path = tmp_path / "gap.mka"
        with av.open(str(path), "w", format="matroska") as out:
            stream: Any = out.add_stream("pcm_s16le", rate=SAMPLE_RATE)
            stream.layout = "mono"
            for start_s in (0, 900):
                frame = av.AudioFrame.from_ndarray((32767 * tone()).astype(np.int16)[None], "s16", "mono")
                frame.rate, frame.pts = SAMPLE_RATE, start_s * SAMPLE_RATE
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
        read_audio(stored(tmp_path, coded("mp4", "aac")))  # imports
        tracemalloc.start()
        loud = [chunk.span.start_s for chunk in open_audio(path, block_s=1.0) if chunk.mixture.any()]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert loud == [0.0, 900.0]
        assert most < 2_000_000

    def test_times_that_cannot_be_right_are_not_believed(self) -> None:
        from cascade.audio import _Heard

        heard = _Heard(decoded_s=3.0, filled_s=1.0)
        assert heard.lost_before(5.0, 10.0) == 1.0
        assert heard.lost_before(11.0, 10.0) == 0.0
        assert heard.lost_before(4.01, 10.0) == 0.0
        assert heard.lost_before(2.0, 10.0) == 0.0
        assert heard.lost_before(5.0, None) == 1.0
        assert heard.lost_before(5000.0, None) == 0.0

    @pytest.mark.parametrize("kind", ["WAV", "FLAC"])
    def test_channels_that_cancel_each_other_out_are_told_of(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
    ) -> None:
        read_audio(stored(tmp_path, wav(np.stack([tone(), -0.9 * tone()], axis=1), kind=kind)))
        (message,) = caplog.messages
        assert message.endswith(
            "talk': the channels cancel each other out, and little is heard of them together; give one channel"
        )

    def test_channels_that_merely_differ_are_not_said_to_cancel_each_other_out(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        noise = np.random.default_rng(0).normal(0, 0.1, (SAMPLE_RATE, 8)).astype(np.float32)
        one_of_eight = np.zeros_like(noise)
        one_of_eight[:, 3] = tone()
        for sound in (noise, one_of_eight, np.zeros_like(noise), noise[:, :2], np.repeat(tone()[:, None], 2, axis=1)):
            for kind in ("WAV", "FLAC"):
                read_audio(stored(tmp_path, wav(sound, kind=kind)))
        assert not caplog.messages

    def test_a_decoder_that_damage_sends_astray_prints_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        damaged = bytearray(wav(tone(duration_s=0.5), 8000, kind="AIFF"))
        damaged[damaged.index(b"SSND") + 1] = 127
        read_audio(stored(tmp_path, bytes(damaged)))
        (message,) = caplog.messages
        assert "is damaged" in message
        assert capfd.readouterr() == ("", "")

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_no_damage_is_a_traceback(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        kinds = [wav(tone()), wav(tone(), kind="FLAC"), coded("mp3", "libmp3lame"), coded("mp4", "aac")]
        damaged = bytearray(data.draw(st.sampled_from([*kinds, coded("ogg", "libopus"), coded("webm", "libopus")])))
        for at, value in data.draw(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=20)):
            damaged[at % len(damaged)] = value
        try:
            heard = read_audio(stored(tmp_path_factory.getbasetemp(), bytes(damaged)), limit_s=10)
        except AudioError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert heard.dtype == np.float32
            assert np.all(np.abs(heard) <= 1)

    @pytest.mark.parametrize(
        "playlist",
        [
            b"ffconcat version 1.0\nfile secret.wav\n",
            b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nsecret.wav\n#EXT-X-ENDLIST\n",
            b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        ],
        ids=["concat", "hls", "sdp"],
    )
    def test_no_file_makes_ffmpeg_open_another_file_or_a_socket(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playlist: bytes
    ) -> None:
        monkeypatch.chdir(tmp_path)
        stored(tmp_path, wav(tone()), "secret.wav")
        began = time.monotonic()
        self.one_line(stored(tmp_path, playlist, "talk.wav"))
        assert time.monotonic() - began < 5  # FFmpeg waits 10 s for packets on the socket that an SDP file asks for

    def test_fault_while_reading_is_one_line(self) -> None:
        """A disk that fails: the decoders' callbacks would swallow or print the exception."""
        from cascade.audio import _decoded, _Reader

        class Failing(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() > 40_000:
                    raise OSError(5, "Input/output error")
                return super().read(size)

        for data in (wav(tone(duration_s=9)), wav(tone(duration_s=9), kind="FLAC")):
            heard = 0

            def count(blocks: Iterator[Any]) -> None:
                nonlocal heard
                for block in blocks:
                    heard += len(block.samples)

            with pytest.raises(AudioError, match="could not be read to its end: Input/output error"):
                count(_decoded(_Reader(Failing(data), "'talk'")))
            assert heard > 10_000

    def test_log_is_of_this_module(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        read_audio(stored(tmp_path, wav(tone())[:-9000]))
        ((name, level, message),) = caplog.record_tuples
        assert (name, level) == ("cascade.audio", logging.WARNING)
        assert "28.1 %" in message
        assert "0.72 s" in message
