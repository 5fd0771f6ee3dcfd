"""Command line, from argv to an exit code.

What takes long to import is imported within `main`, where Ctrl-C is answered in a sentence.
"""

import argparse
import difflib
import importlib
import io
import os
import shlex
import shutil
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from advisor import __version__
from advisor.errors import AdvisorError, InterruptedByUserError, UsageError

COMMANDS = {
    "optimize": "tune a config by short measured runs of your own command",
    "compare": "configs or commands, or your edits against a commit; changes nothing",
    "inspect": "show the knobs of a config or a command; measures nothing",
    "profile": "two measured runs: where the time goes; changes nothing",
    "predict": "speed and memory on GPUs that are not here; changes nothing",
    "gpus": "profiles of GPUs, and the cards found here",
    "doctor": "what this machine costs a program; changes nothing",
    "gate": "fail CI on throughput regressions that are proven",
    "revert": "give the original config back",
    "report": "render report.md again from report.json, or one HTML page",
    "skill": "a page for automated agents: when to call what",
}
WITHOUT_COMMAND = {"gpus", "revert", "report", "skill"}


def module_of(name: str) -> Any:
    """Module of a subcommand, imported when called."""
    place = "gate.cli" if name == "gate" else f"commands.{name}"
    return importlib.import_module(f"advisor.{place}")


class _Parser(argparse.ArgumentParser):
    """Parser whose refusals are errors of one sentence."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            from advisor.commands import mistakes

            self.error(mistakes.unknown_words(self, unknown))
        return parsed

    def error(self, message: str) -> NoReturn:
        msg = f"{message}. `{self.prog} --help` lists the options."
        raise UsageError(msg)


def build_parser(name: str) -> argparse.ArgumentParser:
    """Parser of one subcommand."""
    summary = COMMANDS[name]
    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 100))
    parser = _Parser(
        prog=f"gpu-advisor {name}",
        description=summary[0].upper() + summary[1:] + ".",
        allow_abbrev=False,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=26, width=width),
    )
    module_of(name).add_arguments(parser)
    of_search = ", and the numbers that a search plans with" if name == "optimize" else ""
    parser.add_argument(
        "--debug", action="store_true", help=f"show a traceback with an error{of_search}"
    )
    if name not in WITHOUT_COMMAND and parser.usage is None:
        usage = parser.format_usage().removeprefix("usage: ").rstrip()
        parser.usage = f"{usage} [-- COMMAND ...]"
    return parser


def overview() -> str:
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
    return (
        "usage: gpu-advisor COMMAND [options] [-- YOUR COMMAND ...]\n\n"
        "Measures what your PyTorch program could do here, and tunes its config.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "`gpu-advisor COMMAND --help` lists a command's options, and\n"
        "`gpu-advisor --print-completion bash` makes a shell complete them.\n"
        "  gpu-advisor optimize train.yaml -- python train.py --config train.yaml\n"
    )


def completion(shell: str) -> str:
    """Completion script for `shell`. Raises UsageError."""
    try:
        import shtab
    except ImportError as problem:
        msg = "Completion scripts are made by shtab, which is not installed. `pip install shtab`."
        raise UsageError(msg) from problem
    if shell not in shtab.SUPPORTED_SHELLS:
        msg = (
            f"--print-completion knows {', '.join(shtab.SUPPORTED_SHELLS)}, not {shell!r}."
        )
        raise UsageError(msg)
    whole = argparse.ArgumentParser(prog="gpu-advisor")
    commands = whole.add_subparsers()
    for name, summary in COMMANDS.items():
        parser = build_parser(name)
        for action in parser._actions:  # noqa: SLF001  argparse has no public list
            if action.choices is None and action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        commands.add_parser(name, parents=[parser], add_help=False, help=summary)
    return str(shtab.complete(whole, shell))


def dispatch(argv: list[str]) -> int:
    """Run the subcommand of `argv`; return its exit code."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        sys.stdout.write(overview())
        return 0
    if argv[0] in {"-V", "--version"}:
        sys.stdout.write(f"gpu-advisor {__version__}\n")
        return 0
    if argv[0] == "--print-completion":
        sys.stdout.write(completion(argv[1] if argv[1:] else "bash"))
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        raise UsageError(_no_such_command(name, argv))
    command = None
    if "--" in rest:
        cut = rest.index("--")
        rest, command = rest[:cut], rest[cut + 1 :]
    parser = build_parser(name)
    from advisor.commands import mistakes

    call = mistakes.Typed(
        name=name,
        words=tuple(rest),
        command=tuple(command or ()),
        cwd=Path.cwd(),
        environ=os.environ,
        options={
            flag: action.nargs
            for action in parser._actions  # noqa: SLF001  argparse has no public list
            for flag in action.option_strings
        },
    )
    if command == []:
        msg = "Nothing stands after `--`. Put your own command there: `-- python train.py`."
        raise UsageError(msg)
    if command is None and name not in WITHOUT_COMMAND:
        mistakes.refuse([mistakes.without_separator(call)])
    args = parser.parse_args(mistakes.with_values(rest, call.options))
    args.words = rest
    mistakes.check_words(call)
    mistakes.check_configs(getattr(args, "configs", ()), call)
    code: int = module_of(name).run(args, command)
    return code


def _no_such_command(name: str, argv: list[str]) -> str:
    """Sentence on a first word that is no subcommand: a typing error, or none was named."""
    from advisor.config.argv import starts_another

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    if near:
        return f"gpu-advisor has no command {name!r}. Did you mean {near[0]!r}?"
    named = next((word for word in argv if word in COMMANDS), None)
    if name.startswith("-") and named:
        words = [named, *argv[: argv.index(named)], *argv[argv.index(named) + 1 :]]
        return f"The command stands first: `gpu-advisor {shlex.join(words)}`."
    if Path(name).exists() or "--" in argv or starts_another(name):
        typed = ["--", *argv] if starts_another(name) else argv
        if name.endswith(".py") and "--" not in argv:
            typed = ["--", "python", *argv]
        return f"Say what to do with it: `gpu-advisor optimize {shlex.join(typed)}`."
    return f"gpu-advisor has no command {name!r}. `gpu-advisor --help` lists them."


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its code.

    Our own errors and the system's are told in a sentence. Any other exception is a fault of
    gpu-advisor, and its traceback is shown.
    """
    argv = sys.argv[1:] if argv is None else argv
    _show_any_name()
    try:
        code = dispatch(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("gpu-advisor: interrupted\n")
        code = InterruptedByUserError.exit_code
    except BrokenPipeError:
        # The reader of the output went away, as in `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (AdvisorError, OSError) as problem:
        if "--debug" in argv:
            traceback.print_exc()
        from advisor.commands.output import fitted

        said = f"{problem}"
        if isinstance(problem, OSError):
            said = (
                f"the operating system refused a call: {problem}. --debug shows the line."
            )
        sys.stderr.write(fitted(f"gpu-advisor: {said}", sys.stderr) + "\n")
        code = getattr(problem, "exit_code", AdvisorError.exit_code)
    sys.exit(code)


def _show_any_name() -> None:
    """Let stdout take file names of any encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        whole = sys.stdout.encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
        sys.stdout.reconfigure(errors="surrogateescape" if whole else "backslashreplace")


if __name__ == "__main__":
    main()
