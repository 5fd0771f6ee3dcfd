"""Mistakes in what was typed, each answered by what to write instead.

Checks read words, file names and the text of the program's script, and one of them the options
of the program's own parser. An answer comes before any trial. A check speaks only where the
call cannot work as typed: what may be meant stays with the program.
"""

import argparse
import ast
import contextlib
import difflib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from advisor import errors
from advisor.config.argv import first_own_word, starts_another
from advisor.config.document import SUFFIXES

VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
SHELL_WORDS = {"cd", "source", ".", "export", "conda activate", "alias", "ulimit", "set"}
"""Words that only a shell knows: no program of that name exists, or it would change nothing."""
ELSEWHERE = {
    "sbatch": "--engine slurm runs the trials on the cluster",
    "qsub": "",
    "bsub": "",
    "screen": "",
    "tmux": "",
    "systemd-run": "",
    "at": "",
    "batch": "",
}
"""Programs that start another outside of the trial and return at once, with a better way."""
NOTEBOOK = ".ipynb"
SCRIPTS = {".sh", ".bash"}
READS = re.compile(r"\b(argv|argparse|getopt|optparse)\b")
"""Words of a script that reads its arguments, by Python's own means."""
PASSES_ON = re.compile(r"\bparse_known_args\b")
"""A parser that leaves unknown options to somebody else."""
ALONE = {"torch", "torchvision", "torchaudio", "numpy", "yaml", "PIL", "tqdm"}
"""Libraries that read no options of a program."""
FIND_TORCH = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
FIND_MODULE = (
    "import importlib.util as u, sys; sys.path.insert(0, ''); "
    "sys.exit(u.find_spec(sys.argv[1]) is None)"
)
COMPILE = "import sys; compile(open(sys.argv[1], 'rb').read(), 'script', 'exec')"
INTERPRETER = re.compile(
    r"python[\d.]*|bash|sh|dash|zsh|torchrun|accelerate|deepspeed|mpirun"
)
"""Programs that do nothing of their own: they start what is named behind them."""
FIND_LIMIT_S = 10.0
"""Longest wait, in seconds, for an interpreter to say what it has or knows.

Judgement: a slow disk needs seconds. Shorter leaves a mistake untold, longer delays the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A call as it was typed: words of ours, then the user's command."""

    name: str
    """Subcommand."""
    words: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    cwd: Path
    environ: Mapping[str, str]
    options: Mapping[str, int | str | None]
    """Options of the subcommand, with the number of their values (argparse's `nargs`)."""

    def with_command(self, *command: str, words: Sequence[str] | None = None) -> str:
        """The whole call with another command, in code quotes."""
        words_before = self.words if words is None else words
        return f"`{shlex.join(('gpu-advisor', self.name, *words_before, '--', *command))}`"

    @property
    def script(self) -> Path | None:
        """Python file that the command runs by its path."""
        at = first_own_word(self.command) - 1
        if at < 0 or (at and self.command[at - 1] in {"-m", "--module", "-c"}):
            return None
        place = self.cwd / self.command[at]
        return place if place.suffix == ".py" and place.is_file() else None


# -- the line ----------------------------------------------------------------------------


def without_separator(call: Typed) -> str:
    """A program among the configs: `--` is missing before it."""
    for at in _positions(call):
        word = call.words[at]
        by_path = os.sep in word and _is_program(call.cwd / word)
        by_name = (
            at > 0 and PurePath(word).suffix.lower() not in SUFFIXES and shutil.which(word)
        )
        is_script = PurePath(word).suffix in SCRIPTS and (call.cwd / word).is_file()
        if starts_another(word) or by_path or by_name or is_script:
            starter = () if by_path or not is_script else ("bash",)
            before, command = call.words[:at], (*starter, *call.words[at:])
            right = call.with_command(*command, words=before)
            return f"The command needs `--` before it: {right}."
    return ""


def _positions(call: Typed) -> Iterator[int]:
    """Places of words that are no option and no option's value."""
    values: int | str | None = 0
    for at, word in enumerate(call.words):
        if word.startswith("-"):
            values = 0 if "=" in word else call.options.get(word, 0)
        elif values == 0:
            yield at
        elif values not in ("+", "*"):
            values = 0


def _is_program(path: Path) -> bool:
    suffix = path.suffix.lower()
    return path.is_file() and suffix not in SUFFIXES and os.access(path, os.X_OK)


# -- the command's words -----------------------------------------------------------------


def twice_separated(call: Typed) -> str:
    if call.command[0] != "--":
        return ""
    return f"`--` stands twice. Write {call.with_command(*call.command[1:])}."


def quoted(call: Typed) -> str:
    """A whole command in quotes is one word, and no program has that name."""
    word = call.command[0]
    if len(call.command) > 1 or not re.search(r"\s", word) or (call.cwd / word).exists():
        return ""
    word = word.rstrip("& ")  # in the background it would end at once
    with contextlib.suppress(ValueError):
        if re.search(r"&&|\|\||[;|<>`]|\$\(", word):
            right = call.with_command("bash", "-c", word)
            return f"The command stands in quotes and needs a shell. Write {right}."
        right = call.with_command(*shlex.split(word))
        return f"The command stands in quotes, as one word. Write {right}."
    return ""


def variables_first(call: Typed) -> str:
    """`VAR=1 python ...` is a shell's way to write; `env` does the same."""
    if not VARIABLE.fullmatch(call.command[0]):
        return ""
    right = call.with_command("env", *call.command)
    return f"`{call.command[0]}` is a variable and no program. Write {right}."


def word_of_a_shell(call: Typed) -> str:
    first, *rest = call.command
    if first not in SHELL_WORDS and " ".join((first, *rest[:1])) not in SHELL_WORDS:
        return ""
    right = call.with_command("bash", "-c", f"{shlex.join(call.command)} && YOUR COMMAND")
    return f"`{first}` is a word of the shell and no program. Write {right}."


def background(call: Typed) -> str:
    """A command that goes on in the background ends at once for whoever waits."""
    last = call.command[-1]
    if not re.search(r"(?<![&>])&\s*$", last):
        return ""
    kept = (*call.command[:-1], last.rstrip("& "))
    right = call.with_command(*filter(None, kept))
    return f"The command ends in `&` and would go on in the background. Write {right}."


def sent_elsewhere(call: Typed) -> str:
    name = PurePath(call.command[0]).name
    detached = name in {"docker", "podman"} and {"-d", "--detach"} & set(call.command)
    if name not in ELSEWHERE and not detached:
        return ""
    way = ELSEWHERE.get(name) or "name the program itself after `--`"
    return f"`{name}` starts the program elsewhere and returns at once; {way}."


def on_another_machine(call: Typed) -> str:
    if PurePath(call.command[0]).name != "ssh":
        return ""
    return (
        "`ssh` runs the program on another machine, where no trial is seen. An [engine.NAME] of "
        "gpu-advisor.toml runs trials there: see docs/engines.md."
    )


def nothing_started(call: Typed) -> str:
    """An interpreter without a program: it would wait for lines, or print its usage."""
    first, *rest = call.command
    name = PurePath(first).name
    is_alone = all(word.startswith("-") for word in rest)
    if call.name not in MEASURE or not INTERPRETER.fullmatch(name) or not is_alone:
        return ""
    script = "YOUR_SCRIPT.sh" if name.endswith("sh") else "YOUR_SCRIPT.py"
    right = call.with_command(first, script)
    return f"`{shlex.join(call.command)}` starts no program. Write {right}."


def notebook(call: Typed) -> str:
    name = next((word for word in call.command if word.endswith(NOTEBOOK)), None)
    if name is None:
        return ""
    script = PurePath(name).with_suffix(".py").name
    return (
        f"{name} is a notebook, and a trial needs a program. Write `jupyter nbconvert --to "
        f"script {shlex.quote(name)}`, then {call.with_command('python', script)}."
    )


def file_as_program(call: Typed) -> str:
    """A script of the folder without the word that starts it."""
    first, *rest = call.command
    place = call.cwd / first
    if not place.is_file() or shutil.which(first, path=call.environ.get("PATH")):
        return ""
    if place.suffix == ".py" and not os.access(place, os.X_OK):
        return (
            f"{first} is a Python file. Write {call.with_command('python', *call.command)}."
        )
    if place.suffix.lower() in SUFFIXES and not os.access(place, os.X_OK):
        right = call.with_command("python", "YOUR_SCRIPT.py", words=(*call.words, first))
        return f"{first} is a config and no program. Write {right}."
    if place.suffix in SCRIPTS and not os.access(place, os.X_OK):
        return f"{first} is a script. Write {call.with_command('bash', *call.command)}."
    if os.sep not in first and os.access(place, os.X_OK):
        right = call.with_command(f"./{first}", *rest)
        return f"{first} lies here and is not in PATH. Write {right}."
    return ""


def itself(call: Typed) -> str:
    if PurePath(call.command[0]).name != "gpu-advisor":
        return ""
    return "The command is gpu-advisor itself. Name your own program after `--`."


# -- the program -------------------------------------------------------------------------


def options_behind(call: Typed) -> str:
    """An option of ours behind `--`, in a program that has none of that name.

    The program's own parser decides, recorded as for a program without a config: it may well
    have a `--budget` of its own. Where no parser is known, only a script that by its text and
    imports reads no arguments at all is sure to ignore ours.
    """
    script = call.script
    start = first_own_word(call.command)
    ours = [
        at
        for at, word in enumerate(call.command[start:], start)
        if word.partition("=")[0] in call.options.keys() - {"--help", "-h"}
    ]
    if script is None or not ours:
        return ""
    at = ours[0]
    flag, equals, _ = call.command[at].partition("=")
    text = script.read_text("utf-8", errors="replace")
    if PASSES_ON.search(text):
        return ""
    # it imports all that runs a program
    from advisor.commands.program_options import record_options

    options = record_options(call.command, call.cwd).options
    names = {name for option in options for name in (option.flag, *option.others)}
    if flag in names or not (options or _reads_no_argument(script, text)):
        return ""
    end = at + (1 if equals or call.options[flag] == 0 else 2)
    words = (*call.words, *call.command[at:end])
    right = call.with_command(*call.command[:at], *call.command[end:], words=words)
    return f"{flag} is an option of gpu-advisor and stands before `--`: {right}."


def _reads_no_argument(script: Path, text: str) -> bool:
    """True if neither the script nor anything of its project that it imports could."""
    return not READS.search(text) and _imported(script) <= {
        *sys.stdlib_module_names,
        *ALONE,
    }


def _imported(script: Path) -> set[str]:
    """Packages that `script` imports whatever happens."""
    names = set()
    for statement in _body(script):
        if isinstance(statement, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names.add((statement.module or "").partition(".")[0])
    return names


def relative_import(call: Typed) -> str:
    """A module of a package that is started as a file finds no package."""
    script = call.script
    relative = (
        statement.level
        for statement in _body(script)
        if isinstance(statement, ast.ImportFrom) and statement.level
    )
    level = next(relative, 0)
    if script is None or not level:
        return ""
    here = Path(os.path.realpath(call.cwd))
    real = Path(os.path.realpath(script))
    if not real.is_relative_to(here) or len(real.relative_to(here).parts) <= level:
        said = f"{script.name} imports relative to its package"
        return f"{said}. Start it from the folder above, by `python -m`."
    module = ".".join(real.relative_to(here).with_suffix("").parts)
    at = first_own_word(call.command) - 1
    right = call.with_command(*call.command[:at], "-m", module, *call.command[at + 1 :])
    return f"{call.command[at]} imports relative to its package. Write {right}."


def asks(call: Typed) -> str:
    """`input()` on the way that every run takes: a trial has no keyboard."""
    body = list(_body(call.script))
    functions = {part.name: part for part in body if isinstance(part, ast.FunctionDef)}
    seen: set[str] = set()
    todo = list(body)
    while todo:
        statement = todo.pop(0)
        if isinstance(statement, ast.With):
            todo += statement.body
            continue
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign):
            continue
        names = [
            node.func.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        if "input" in names and "input" not in functions:
            asked = f"Line {statement.lineno} of {call.script} asks by input()"
            return f"{asked}, and a trial has no keyboard. Take it from an option or the config."
        for name in functions.keys() & set(names) - seen:
            seen.add(name)
            todo += functions[name].body
    return ""


def without_torch(call: Typed) -> str:
    """An interpreter that cannot import what the script imports first of all."""
    script, python = call.script, _python(call)
    if script is None or python is None or "torch" not in _imported(script):
        return ""
    if _refusal(call, python, FIND_TORCH, cwd=script.parent) != "":
        return ""
    near = _environments(call, python)
    right = call.with_command(
        near or "/path/to/your/environment/bin/python", *call.command[1:]
    )
    return f"{python} has no torch, which {script.name} imports. Write {right}."


def no_such_module(call: Typed) -> str:
    """`python -m` with a name that its interpreter finds neither here nor installed."""
    at, python = first_own_word(call.command) - 1, _python(call)
    if python is None or at < 1 or call.command[at - 1] != "-m":
        return ""
    package = call.command[at].partition(".")[0]
    if _refusal(call, python, FIND_MODULE, package, cwd=call.cwd) != "":
        return ""
    return (
        f"{python} finds no module {package}, neither installed nor in {call.cwd}. Correct the "
        "name, or call from the folder that holds it."
    )


def no_python(call: Typed) -> str:
    """A script that the interpreter of the command cannot read; ours may be of another version."""
    script, python = call.script, _python(call)
    if script is None or python is None:
        return ""
    try:
        ast.parse(script.read_bytes())
    except SyntaxError as problem:
        if "SyntaxError" in (_refusal(call, python, COMPILE, str(script)) or ""):
            where = f"Line {problem.lineno} of {script.name}"
            return f"{where} is no valid Python: {problem.msg}. Correct it there."
    except (OSError, ValueError, RecursionError):
        pass
    return ""


def _python(call: Typed) -> str | None:
    """Path of the Python interpreter that the command starts with; None where it is none."""
    first = call.command[0]
    if not re.fullmatch(r"python[\d.]*", PurePath(first).name):
        return None
    place = str(call.cwd / first) if os.sep in first else first
    return shutil.which(place, path=call.environ.get("PATH"))


def _refusal(
    call: Typed, python: str, code: str, *words: str, cwd: Path | None = None
) -> str | None:
    """What the interpreter says as it ends `code` with 1; None where it does not, or is slow."""
    try:
        done = subprocess.run(
            [python, "-c", code, *words], cwd=cwd or call.cwd, env=dict(call.environ),
            capture_output=True, check=False, timeout=FIND_LIMIT_S, text=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stderr if done.returncode == 1 else None


def _environments(call: Typed, python: str) -> str | None:
    """An interpreter of an environment here, as the user may have meant it."""
    folders = [call.environ.get("VIRTUAL_ENV"), call.environ.get("CONDA_PREFIX")]
    folders += [str(call.cwd / name) for name in (".venv", "venv", "env")]
    for folder in filter(None, folders):
        interpreter = os.path.join(folder, "bin", "python")  # noqa: PTH118  links stay links
        if os.access(interpreter, os.X_OK) and interpreter != python:
            return interpreter
    return None


def _body(script: Path | None) -> Iterator[ast.stmt]:
    """Statements that every run of `script` as a program reaches at its top."""
    if script is None:
        return
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for statement in tree.body:
        yield statement
        if isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test):
            yield from statement.body


Check = Callable[[Typed], str]
WORDS: tuple[Check, ...] = (
    twice_separated,
    quoted,
    variables_first,
    background,
    word_of_a_shell,
    sent_elsewhere,
    on_another_machine,
    nothing_started,
    notebook,
    file_as_program,
    itself,
)
PROGRAM: tuple[Check, ...] = (
    no_python,
    no_such_module,
    options_behind,
    relative_import,
    asks,
    without_torch,
)
"""Checks in the order in which they are made; the first that speaks is the answer."""


def refuse(answers: Iterable[str]) -> None:
    """Raise UsageError with the first answer that says something."""
    if answer := next(filter(None, answers), ""):
        raise errors.UsageError(answer)


# -- files -------------------------------------------------------------------------------


def named_twice(paths: Sequence[Path], call: Typed) -> str:
    by_file: dict[str, Path] = {}
    for path in paths:
        first = by_file.setdefault(os.path.realpath(path), path)
        if first is not path:
            beside = "" if first == path else f", also as {first}"
            last = len(call.words) - 1 - call.words[::-1].index(str(path))
            words = (*call.words[:last], *call.words[last + 1 :])
            once = shlex.join(("gpu-advisor", call.name, *words))
            return f"{path} is named twice{beside}. Write `{once} ...`."
    return ""


def program_as_config(paths: Sequence[Path], call: Typed) -> str:
    """The script of the command, named where a config stands."""
    script = call.script
    for path in paths:
        if script is not None and os.path.realpath(path) == os.path.realpath(script):
            words = [word for word in call.words if word != str(path)]
            right = call.with_command(*call.command, words=words)
            return f"{path} is the program and no config. Leave it out: {right}."
    return ""


def with_values(words: Sequence[str], options: Mapping[str, int | str | None]) -> list[str]:
    """The words with `--budget -5m` as one: argparse takes what begins so for an option."""
    joined: list[str] = []
    for word in words:
        before = joined[-1] if joined else ""
        if re.match(r"-[\d.]", word) and options.get(before, 0) is None:
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def unknown_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """`no option --bugdet; did you mean --budget?`, for words that argparse left over."""
    flags = [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001
    said = []
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("--config"):
            return f"Configs are named without an option. Leave {flag} out"
        if flag.startswith("-"):
            near = difflib.get_close_matches(flag, flags, n=1)
            said.append(f"{flag} (did you mean {near[0]}?)" if near else flag)
    return f"unrecognized arguments: {' '.join(said or words)}"


MEASURE = ("optimize", "compare", "profile", "predict")
"""Subcommands that start the program where they are called."""
SEPARATES = "--vs"
"""Word between two commands of `compare`."""


def check_words(call: Typed) -> None:
    """Answer mistakes that stand in the line alone. Raises UsageError."""
    if call.command:
        blocks = itertools.groupby(call.command, key=lambda word: word == SEPARATES)
        commands = [tuple(block) for is_separator, block in blocks if not is_separator]
        calls = [replace(call, command=block) for block in commands]
        refuse(check(one) for one in calls for check in WORDS)
        elsewhere = any(word.startswith("--engine") for word in call.words)
        if call.name in MEASURE and not elsewhere:
            refuse(check(one) for one in calls for check in PROGRAM)


def check_configs(paths: Sequence[Path], call: Typed) -> None:
    """Answer mistakes in the configs' names. Raises UsageError."""
    if call.name in MEASURE:
        refuse([program_as_config(paths, call)])
    if call.name in ("optimize", "profile", "predict", "revert"):  # compare: A against A
        refuse([named_twice(paths, call)])
