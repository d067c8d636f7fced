"""What may stand in a SepFormer's hyperparams.yaml, and what may not; nothing is made of it here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.backends import hyperparameters
from cascade.backends.hyperparameters import Decoder, DualPathModel, Encoder, Hyperparameters, SBTransformerBlock
from cascade.errors import ModelError
from tests.small_sepformer import HYPERPARAMETERS

TEXT = HYPERPARAMETERS.format(rate=8000)

BLOCK = SBTransformerBlock(
    num_layers=1, d_model=16, nhead=2, d_ffn=32, dropout=0, use_positional_encoding=True, norm_before=True
)
RIGHT = Hyperparameters(
    sample_rate=8000,
    num_spks=2,
    encoder=Encoder(kernel_size=16, out_channels=16),
    masknet=DualPathModel(
        num_spks=2,
        in_channels=16,
        out_channels=16,
        num_layers=1,
        K=50,
        intra_model=BLOCK,
        inter_model=BLOCK,
        norm="ln",
        linear_layer_after_inter_intra=False,
        skip_around_intra=True,
    ),
    decoder=Decoder(in_channels=16, out_channels=1, kernel_size=16, stride=8, bias=False),
)


def read(folder: Path, text: str) -> Hyperparameters:
    path = folder / "hyperparams.yaml"
    path.write_text(text)
    return hyperparameters.read(path, most_sources=4)


def refusal(folder: Path, text: str) -> str:
    """Return the one line by which a file is refused."""
    with pytest.raises(ModelError) as caught:
        read(folder, text)
    line = str(caught.value)
    assert "\n" not in line
    assert line.isprintable()
    assert len(line) < len(str(folder)) + 400
    return line


# --- what may stand in it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("num_spks: !ref <num_spks>", "num_spks: 2"),  # as of Libri2Mix; that of WHAM! has the reference
        ("sample_rate: 8000\nnum_spks: 2\n", "num_spks: 2\nsample_rate: 8_000\nN_encoder_out: 256\nkernel_stride: 8\n"),
        ("sample_rate: 8000", "sample_rate: !ref <rate>\nrate: !ref <other_rate>\nother_rate: 8000"),
        ("\nEncoder:", "\nseed: 1234\n__set_seed: !apply:torch.manual_seed [!ref <seed>]\nEncoder:"),
        ("\nEncoder:", "\n__set_seed: !apply:torch.manual_seed [1234]\nEncoder:"),
        ("\nEncoder:", "\nchannels: 16\nEncoder:"),
        ("\nEncoder:", "\nskip: false\nnothing: null\nfolder: results/1\nlr: 0.00015\nEncoder:"),
        ("\npretrainer:", "\npretrained_path: speechbrain/some-sepformer\npretrainer:"),
    ],
)
def test_what_the_published_files_hold_is_read(tmp_path: Path, before: str, after: str) -> None:
    assert read(tmp_path, TEXT.replace(before, after, 1)) == RIGHT


def test_networks_are_shared_by_reference_and_not_by_copy(tmp_path: Path) -> None:
    masknet = read(tmp_path, TEXT.replace("!ref <Across>", "!ref <Within>")).masknet
    assert masknet.intra_model is masknet.inter_model
    masknet = read(tmp_path, TEXT.replace("!ref <Across>", "!copy <Within>")).masknet
    assert masknet.intra_model is not masknet.inter_model
    assert masknet.intra_model == masknet.inter_model


# --- what may not -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("!ref <Across>", "!ref <Encoder>"),
        ("  num_spks: !ref <num_spks>", "  num_spks: 3"),
        ("!ref <num_spks>", "!ref <MaskNet>"),
        ("masknet: !ref <MaskNet>", "masknet: !ref <Encoder>"),
        ("decoder: !ref <Decoder>", "decoder: !ref <Decoder>\n  more: !ref <Decoder>"),
        ("decoder: !ref <Decoder>\n\npre", "\npre"),
        ("    decoder: !ref <Decoder>", "    decoder: !ref <Encoder>"),
        ("    decoder: !ref <Decoder>", "    decoder: !ref <Decoder>\n  collect_in: elsewhere"),
        ("    decoder: !ref <Decoder>", "    decoder: !ref <Decoder>\n  conditions:\n    decoder: true"),
        ("    decoder: !ref <Decoder>", "    decoder: !ref <Decoder>\n  custom_hooks:\n    decoder: !ref <Decoder>"),
        ("    decoder: !ref <Decoder>", "    decoder: !ref <Decoder>\n  paths:\n    decoder: /elsewhere/decoder.ckpt"),
        (
            "    decoder: !ref <Decoder>",
            "    decoder: !ref <Decoder>\n  paths:\n    decoder: !ref <num_spks>/decoder.ckpt",
        ),
        ("pretrainer: !new", "pretrainers: !new"),
        ("modules:", "other_modules:"),
        ("  kernel_size: 16", "  kernel_size: 16\n  groups: 4"),
        ("  kernel_size: 16", "  kernel_size: [16]"),
        ("  kernel_size: 16", "  kernel_size: 16.5"),
        ("  kernel_size: 16", "  kernel_size: true"),
        ("  kernel_size: 16", "  kernel_size: 1"),
        ("  norm: ln", "  norm: my_norm"),
        ("dropout: 0", "dropout: .nan"),
        ("dropout: 0", "dropout: 2"),
        ("out_channels: 1\n", "out_channels: 2\n"),
        ("sample_rate", "sample_rate: !ref <num_spks.real>\nsample_rates"),
        ("\nEncoder:", "\nbad: [1, 2]\nEncoder:"),
        ("\nEncoder:", "\nbad: {a: 1}\nEncoder:"),
        ("\nEncoder:", "\nbad: 2001-01-01\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <none>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <bad>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <other>\nother: !ref <bad>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <modules>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <Encoder[kernel_size]>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <Encoder.__class__>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref results/<num_spks>\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref <num_spks> + 1\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref 1\nEncoder:"),
        ("\nEncoder:", "\nbad: !ref {a: 1}\nEncoder:"),
        ("\nEncoder:", "\nbad: !apply:torch.manual_seed\nEncoder:"),
        ("\nEncoder:", "\nbad: !apply:torch.manual_seed {seed: 1}\nEncoder:"),
        ("\nEncoder:", "\nbad: !apply:torch.manual_seed [!ref <Encoder>]\nEncoder:"),
        ("\nEncoder:", "\nbad name: 1\nEncoder:"),
        ("\nEncoder:", "\n? [a]\n: 1\nEncoder:"),
        ("\nEncoder:", '\n"a\\e[31m\\n": 1\nEncoder:'),
        ("\nEncoder:", "\nbad: !new:speechbrain.lobes.models.dual_path.Encoder\nEncoder:"),
        ("\nEncoder:", "\nbad: !new:speechbrain.lobes.models.dual_path.Encoder [16]\nEncoder:"),
        ("\nEncoder:", '\nbad: !new:speechbrain.lobes.models.dual_path.Encoder {"K\\n": 1}\nEncoder:'),
        ("\nEncoder:", "\nbad: !new:speechbrain.utils.parameter_transfer.Pretrainer {}\nEncoder:"),
        ("\nEncoder:", "\nbad: &a 1\nEncoder:"),
        ("\nEncoder:", f"\nbad: 0x{'f' * 5000}\nEncoder:"),
        ("\nEncoder:", f"\nbad: {'a' * 100_000}\nEncoder:"),
        ("\nEncoder:", "\nbad: !!int 1\nEncoder:"),
    ],
)
def test_anything_else_is_one_line(tmp_path: Path, before: str, after: str) -> None:
    assert before in TEXT
    assert "published with the model" in refusal(tmp_path, TEXT.replace(before, after, 1))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\nEncoder:", "\nbig: !ref 9**9**9**9 + <num_spks>\nEncoder:"),
        ("num_layers: 1", "num_layers: 10000000"),
        ("d_model: 16", "d_model: 1000000"),
        ("d_ffn: 32", "d_ffn: 1000000"),
        ("K: 50", "K: 1000000000"),
        ("kernel_size: 16", "kernel_size: 1000000000"),
        ("\nEncoder:", "\nlots: &a [1]\n" + "".join(f"lots{n}: &a{n} [*a, *a]\n" for n in range(30)) + "\nEncoder:"),
        ("\nEncoder:", "\n" + "".join(f"a{n}: !ref <a{n + 1}>\n" for n in range(2000)) + "a2000: 1\n\nEncoder:"),
        ("\nEncoder:", "\nbad: " + "[" * 20_000 + "\nEncoder:"),
    ],
)
def test_what_would_take_forever_is_refused_at_once(tmp_path: Path, before: str, after: str) -> None:
    assert before in TEXT
    start = time.monotonic()
    refusal(tmp_path, TEXT.replace(before, after, 1))
    assert time.monotonic() - start < 5


def test_networks_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    text = TEXT.replace("d_model: 16", "d_model: 4096").replace("d_ffn: 32", "d_ffn: 65536")
    assert "at most 500000000 weights" in refusal(tmp_path, text)


def test_a_file_that_is_endless_is_not_read_to_its_end() -> None:
    with pytest.raises(ModelError, match=r"/dev/zero has more than 100000 bytes"):
        hyperparameters.read(Path("/dev/zero"), most_sources=4)


@given(st.text(max_size=40))
def test_whatever_a_reference_is_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Only a plain name of the file is followed."""
    folder = tmp_path_factory.mktemp("any")
    quoted = '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'
    file = TEXT.replace("!ref <num_spks>", f"!ref {quoted}")
    if text == "<num_spks>":
        assert read(folder, file) == RIGHT
    else:
        refusal(folder, file)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "\nEncoder:",
            '\na: "hello!"\nEncoder:',
            "has 'hello!': a text with an exclamation mark, which can be read as",
        ),
        ("\nEncoder:", "\na: &b 1\nEncoder:", "has '&b': an anchor, whose contents can be as large"),
        ("\nEncoder:", "\na: !!python/name:os.system\nEncoder:", "since it could run any program"),
        ("\nEncoder:", "\na: [1, 2]\nEncoder:", "has a list, expected a number, a word or a reference in a"),
        ("\nEncoder:", "\na: {b: 1}\nEncoder:", "has names with values, expected a number"),
        ("\nEncoder:", "\na: 2001-01-01\nEncoder:", "has a value of another kind, expected a number"),
        ("\nEncoder:", "\na: !apply:torch.manual_seed [x]\nEncoder:", "has a list, expected one number to seed torch"),
        ("masknet: !ref <MaskNet>", "masknet: !ref <Encoder>", "has Encoder, expected a SepFormer's masknet"),
    ],
)
def test_what_is_refused_is_said_as_people_say_it(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in TEXT
    with pytest.raises(ModelError, match=said) as caught:
        read(tmp_path, TEXT.replace(before, after))
    assert ("any program" in str(caught.value)) is ("any program" in said)
    assert "Commented" not in str(caught.value)
