"""What a SepFormer's hyperparams.yaml says, read as data: nothing is made of it, and nothing it names is looked up.

For speechbrain that file is a program: `!new:` makes an object of any class, `!ref <a.b>` reads any attribute of one,
and what stands in the right place is called. So speechbrain is not handed the file. What may stand in it is a closed
grammar, what the published SepFormers need:

    NAME: a number, a word, true, false or nothing
    NAME: !ref <NAME>, or !copy <NAME>
    NAME: !apply:torch.manual_seed [a number or a !ref]       weights are read afterwards, so it is not obeyed
    NAME: !new:speechbrain.lobes.models.dual_path.NETWORK     with arguments by name, as the classes below say
    modules: the three networks, each by !ref
    pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
      loadables: the same
      paths: !ref <pretrained_path>/NETWORK.ckpt              which is the folder itself

Anything else is refused: a list, an attribute, a sum, an anchor, another class or argument, a size beyond all reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.errors import ModelError

NETWORKS: Final = ("encoder", "masknet", "decoder")

HOME: Final = "speechbrain.lobes.models.dual_path"
"""The module of all networks that a SepFormer is made of."""

RATES: Final = (8000, 48_000)
"""Hz, the lowest and the highest sample rate that speech is separated at."""

MOST_NUMBERS: Final = 500_000_000
"""Weights in all of a masknet's blocks; the published SepFormers have 26 million, and 2 GB are read with so many."""

_PRETRAINER: Final = "speechbrain.utils.parameter_transfer.Pretrainer"
_SEED: Final = "!apply:torch.manual_seed"
_LARGEST: Final = 100_000
"""Bytes of a file; the published ones have 1500."""
_DEEPEST: Final = 4
"""Levels of a file, and references that lead to each other."""
_BEYOND: Final = 1 << 63
_NAME: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_REFERENCE: Final = re.compile(r"<([A-Za-z_]\w{0,63})>", re.ASCII)


class _Network(BaseModel):
    """A network and the arguments that it is made with, of those that its class in speechbrain takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Encoder(_Network):
    """Samples to frames of channels; speechbrain moves it by half its kernel."""

    kernel_size: int = Field(2, ge=2, le=1024)
    out_channels: int = Field(64, ge=1, le=4096)
    in_channels: Literal[1] = 1


class Decoder(_Network):
    """Frames of channels back to samples."""

    in_channels: int = Field(ge=1, le=4096)
    out_channels: Literal[1]
    kernel_size: int = Field(ge=2, le=1024)
    stride: int = Field(1, ge=1, le=1024)
    bias: bool = True


class SBTransformerBlock(_Network):
    """speechbrain's own transformer encoder."""

    num_layers: int = Field(ge=1, le=64)
    d_model: int = Field(ge=2, le=4096)
    nhead: int = Field(ge=1, le=256)
    d_ffn: int = Field(2048, ge=1, le=65_536)
    dropout: float = Field(0.1, ge=0, le=1)
    activation: Literal["relu", "gelu"] = "relu"
    use_positional_encoding: bool = False
    norm_before: bool = False
    attention_type: Literal["regularMHA"] = "regularMHA"

    @property
    def numbers(self) -> int:
        """About how many weights it has."""
        return self.num_layers * self.d_model * (4 * self.d_model + 2 * self.d_ffn)


class PytorchTransformerBlock(_Network):
    """torch's transformer encoder, which their recipes know too."""

    out_channels: int = Field(ge=2, le=4096)
    num_layers: int = Field(6, ge=1, le=64)
    nhead: int = Field(8, ge=1, le=256)
    d_ffn: int = Field(2048, ge=1, le=65_536)
    dropout: float = Field(0.1, ge=0, le=1)
    activation: Literal["relu", "gelu"] = "relu"
    use_positional_encoding: bool = True

    @property
    def numbers(self) -> int:
        """About how many weights it has."""
        return self.num_layers * self.out_channels * (4 * self.out_channels + 2 * self.d_ffn)


class DualPathModel(_Network):
    """The masks of the sources, from blocks within pieces of K frames and across them."""

    in_channels: int = Field(ge=1, le=4096)
    out_channels: int = Field(ge=1, le=4096)
    intra_model: SBTransformerBlock | PytorchTransformerBlock
    inter_model: SBTransformerBlock | PytorchTransformerBlock
    num_layers: int = Field(1, ge=1, le=32)
    norm: Literal["ln", "gln", "cln"] = "ln"
    K: int = Field(200, ge=2, le=10_000)
    num_spks: int = Field(2, ge=1, le=64)
    skip_around_intra: bool = True
    linear_layer_after_inter_intra: bool = True

    @property
    def numbers(self) -> int:
        """About how many weights its blocks have."""
        return self.num_layers * (self.intra_model.numbers + self.inter_model.numbers)


Network: TypeAlias = Encoder | Decoder | SBTransformerBlock | PytorchTransformerBlock | DualPathModel

CLASSES: Final[Mapping[str, type[Network]]] = {
    "Encoder": Encoder,
    "Decoder": Decoder,
    "Dual_Path_Model": DualPathModel,
    "SBTransformerBlock": SBTransformerBlock,
    "PytorchTransformerBlock": PytorchTransformerBlock,
}
"""The networks by the names of their classes in HOME. Each is made of numbers, words and networks, and looks nothing up
by a name that it is given, as SBRNNBlock does."""

_TAGS: Final = frozenset({"!ref", "!copy", _SEED, f"!new:{_PRETRAINER}", *(f"!new:{HOME}.{name}" for name in CLASSES)})

_Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """A SepFormer: its sample rate in Hz, how many sources it gives, and the networks to make.

    Two networks that are the same object here, as two references to one are, share their weights.
    """

    sample_rate: int
    num_spks: int
    encoder: Encoder
    masknet: DualPathModel
    decoder: Decoder


def read(path: Path, *, most_sources: int) -> Hyperparameters:
    """Read a hyperparams.yaml; ModelError if anything stands in it that is not in the grammar, or something is missing.

    Args:
        path: The file.
        most_sources: How many sources can be told apart.
    """
    reader = _Reader(path, _loaded(path, _text(path)))
    rate = _whole(path, "sample_rate", reader.value("sample_rate"))
    if not RATES[0] <= rate <= RATES[1]:
        raise ModelError(
            f"{path} has sample_rate: {rate}, expected {RATES[0]} to {RATES[1]} Hz; use the file published with the "
            "model"
        )
    sources = _whole(path, "num_spks", reader.value("num_spks"))
    if sources > most_sources:
        raise ModelError(
            f"{path} has num_spks: {sources}, more than {most_sources}, whose orders cannot all be tried; use a model "
            f"of {most_sources} or fewer speakers"
        )
    return reader.model(rate, sources)


# --- the file as YAML -------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read ({type(error).__name__}); get the model's files again") from None
    if len(content) > _LARGEST:
        raise ModelError(f"{path} has more than {_LARGEST} bytes; use the file that was published with the model")
    return text


def _loaded(path: Path, text: str) -> Mapping[str, Any]:
    """Return the file as YAML's own parser gives it, which keeps tags and does not know what others do with them."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        for found, why in _foreign(YAML(pure=True).parse(text)):
            raise _refused(path, found, why)
        told = YAML(pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no YAML ({type(error).__name__}); get the model's files again") from None
    if not isinstance(told, Mapping) or _tag(told):
        raise ModelError(f"{path} holds no hyperparameters; use the file published with the model")
    return told


def _refused(path: Path, found: object, why: str) -> ModelError:
    return ModelError(f"{path} has {_shown(found)}: {why}; use the file that was published with the model")


def _shown(found: object) -> str:
    return repr(found if len(str(found)) <= 80 else f"{str(found)[:77]}...")


_RUNS: Final = "only a SepFormer's own networks of speechbrain may be named in it, since it could run any program"
_ANCHOR: Final = "an anchor, whose contents can be as large as the file is small, has no place in it"
_MARK: Final = "a text with an exclamation mark, which can be read as the name of a program, has no place in it"


def _foreign(events: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield what may stand nowhere in the file, and why, as its events tell: escapes are undone, comments are gone.

    An anchor is foreign: what it leads to can be as large as the file is small. So is a value with an exclamation mark,
    which is a tag to a program that reads what was written from it.
    """
    depth = 0
    for event in events:
        if getattr(event, "version", None) or getattr(event, "tags", None):
            yield "%", _RUNS  # a directive, which can rename a tag
        if getattr(event, "anchor", None) is not None:
            yield f"&{event.anchor}", _ANCHOR
        tag, value = getattr(event, "tag", None), getattr(event, "value", None)
        if tag is not None and str(tag) not in _TAGS:
            yield str(tag), _RUNS
        if isinstance(value, str) and "!" in value:
            yield value, _MARK
        depth += {"MappingStartEvent": 1, "SequenceStartEvent": 1}.get(type(event).__name__, 0)
        depth -= {"MappingEndEvent": 1, "SequenceEndEvent": 1}.get(type(event).__name__, 0)
        if depth > _DEEPEST:
            raise ValueError("nested too deep")


def _kind(value: object) -> str:
    """Return what a value is, as people say it."""
    if isinstance(value, BaseModel):
        return type(value).__name__  # a network, by the name that it has in the file
    kinds = {
        Mapping: "names with values",
        list: "a list",
        str: "a word",
        bool: "true or false",
        int | float: "a number",
    }
    other = "nothing" if value is None else "a value of another kind"
    return next((said for kind, said in kinds.items() if isinstance(value, kind)), other)


def _tag(value: object) -> str:
    """Return a value's tag as it is written, "" for none."""
    tag = getattr(value, "tag", None)
    return str(getattr(tag, "value", None) or "")


# --- the grammar ------------------------------------------------------------------------------------------------------


class _Reader:
    """The file's names and what each of them stands for."""

    def __init__(self, path: Path, told: Mapping[str, Any]) -> None:
        self._path, self._told = path, told
        self._known: dict[str, _Scalar | Network] = {}

    def value(self, name: str) -> _Scalar | Network:
        """Return what a name of the file stands for, None where it has no such name."""
        return self._named(name, _DEEPEST) if name in self._told else None

    def model(self, rate: int, sources: int) -> Hyperparameters:
        """Return all of the file, having seen each of its names."""
        for name in map(self._name, self._told):
            if name not in ("modules", "pretrainer"):
                self._named(name, _DEEPEST)
        networks = self._networks("modules", self._told.get("modules"))
        self._check_pretrainer(self._told.get("pretrainer"), networks)
        for name, expected in zip(NETWORKS, (Encoder, DualPathModel, Decoder), strict=True):
            if not isinstance(networks[name], expected):
                raise self._other(f"a SepFormer's {name}", networks[name])
        masknet = networks["masknet"]
        if masknet.numbers > MOST_NUMBERS or masknet.num_spks != sources:
            raise self._unfit(
                f"a masknet for num_spks: {sources} with at most {MOST_NUMBERS} weights",
                f"num_spks: {masknet.num_spks}, {masknet.numbers} weights",
            )
        return Hyperparameters(rate, sources, **networks)

    def _name(self, key: object) -> str:
        """Return a key, which must be a plain name."""
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise self._unfit("plain names only", key)
        return str(key)

    def _named(self, name: str, depth: int) -> _Scalar | Network:
        """Return what a name stands for; depth is how many more references it may take to find that."""
        if name not in self._told or name in ("modules", "pretrainer"):
            raise self._unfit("a name that stands in the file", name)
        if depth < 0:
            raise self._unfit("references that end", f"<{name}>")
        if name not in self._known:
            self._known[name] = self._read(name, self._told[name], depth)
        return self._known[name]

    def _read(self, place: str, value: Any, depth: int) -> _Scalar | Network:
        tag = _tag(value)
        if tag in ("!ref", "!copy"):
            found = self._named(self._reference(place, value), depth - 1)
            # A copy is another object, and shares no weights.
            return found.model_copy() if tag == "!copy" and isinstance(found, BaseModel) else found
        if tag == _SEED:
            self._check_seed(place, value, depth)
            return None
        if tag:
            return self._made(place, tag, value, depth)
        return self._scalar(place, value)

    def _reference(self, place: str, value: Any) -> str:
        """Return the name that a reference means."""
        found = _REFERENCE.fullmatch(str(getattr(value, "value", "")))
        if found is None:
            raise self._unfit(f"a plain name, such as '!ref <num_spks>', in {place}", getattr(value, "value", value))
        return found[1]

    def _scalar(self, place: str, value: Any) -> _Scalar:
        """Return a plain value without what YAML keeps of how it was written, such as 8_000."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and abs(value) >= _BEYOND:
            raise self._unfit(f"a number that fits into 64 bits in {place}", "one of more digits")
        for kind in (int, float, str):
            if isinstance(value, kind):
                return kind(value)
        raise self._other(f"a number, a word or a reference in {place}", value)

    def _check_seed(self, place: str, value: Any, depth: int) -> None:
        seeds = [self._read(place, seed, depth) for seed in value] if isinstance(value, list) else []
        if [type(seed) for seed in seeds] != [int]:
            raise self._other(f"one number to seed torch with in {place}", value)

    def _made(self, place: str, tag: str, value: Any, depth: int) -> Network:
        """Return the network that a tag names."""
        made = CLASSES.get(tag.removeprefix(f"!new:{HOME}."))
        if made is None or not isinstance(value, Mapping):
            raise self._unfit(f"a network with its arguments by name in {place}", tag)
        arguments = {self._name(key): self._read(f"{place}.{key}", item, depth) for key, item in value.items()}
        try:
            return made.model_validate(arguments)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, (place, *problem["loc"])))
            raise ModelError(
                f"{self._path}: {where[:80]}: {problem['msg'][0].lower()}{problem['msg'][1:]}; use the file that was "
                "published with the model"
            ) from None

    def _networks(self, place: str, value: Any) -> dict[str, Any]:
        """Return the three networks of a mapping that names each by a reference."""
        if not isinstance(value, Mapping) or _tag(value) or sorted(map(str, value)) != sorted(NETWORKS):
            expected = f"{place} with {', '.join(NETWORKS)}"
            raise self._unfit(expected, list(value)) if isinstance(value, Mapping) else self._other(expected, value)
        return {name: self._named(self._reference(f"{place}.{name}", value[name]), _DEEPEST) for name in NETWORKS}

    def _check_pretrainer(self, value: Any, networks: Mapping[str, Any]) -> None:
        """See that weights are for the networks that they are named after; it has nothing else to say."""
        if _tag(value) != f"!new:{_PRETRAINER}" or not isinstance(value, Mapping) or "loadables" not in value:
            expected = f"a pretrainer: !new:{_PRETRAINER} with loadables"
            raise self._unfit(expected, _tag(value)) if _tag(value) else self._other(expected, value)
        if foreign := sorted({*map(str, value)} - {"loadables", "paths"}):
            raise self._unfit("loadables and paths in pretrainer, and nothing else", foreign[0])
        loadables = self._networks("pretrainer.loadables", value["loadables"])
        if any(loadables[name] is not networks[name] for name in NETWORKS):
            raise self._unfit("the same networks in pretrainer.loadables and modules", "others")
        paths = value.get("paths", {})
        if not isinstance(paths, Mapping) or _tag(paths):
            raise self._other("a path for each network in pretrainer.paths", paths)
        for name, place in paths.items():
            own = f"<pretrained_path>/{name}.ckpt"
            if name not in NETWORKS or _tag(place) != "!ref" or place.value != own:
                raise self._unfit("weights of the folder itself in pretrainer.paths", f"{name}: {place}")

    def _unfit(self, expected: str, found: object) -> ModelError:
        """Say what was found, as it is written."""
        return self._instead(_shown(found), expected)

    def _other(self, expected: str, found: object) -> ModelError:
        """Say what kind of value was found."""
        return self._instead(_kind(found), expected)

    def _instead(self, found: str, expected: str) -> ModelError:
        return ModelError(
            f"{self._path} has {found}, expected {expected}; use the file that was published with the model"
        )


def _whole(path: Path, name: str, value: object) -> int:
    """Return one of the hyperparameters, which must be a whole number from 1 on."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    problem = f"has no {name}" if value is None else f"has a {name} that is no whole number above 0"
    raise ModelError(f"{path} {problem}, and it cannot be guessed; use the file published with the model")
