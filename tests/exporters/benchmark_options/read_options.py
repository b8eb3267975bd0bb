"""Write the options of an installed benchmark tool, as its own parser defines them, to standard output.

Run it with the Python of an environment that has the tool: `python read_options.py aiperf > aiperf-0.13.0.txt`. One option a line, then
whether it takes a value. vLLM and SGLang need the modules that their benchmarks import, and no accelerator.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any
from unittest import mock

Options = Iterator[tuple[str, bool]]


def _of_argparse(parser: argparse.ArgumentParser) -> Options:
    for action in parser._actions:
        for name in action.option_strings:
            yield name, action.nargs != 0


def _vllm() -> Options:
    parser = argparse.ArgumentParser()
    importlib.import_module("vllm.benchmarks.serve").add_cli_args(parser)
    return _of_argparse(parser)


def _sglang() -> Options:
    """Its parser is made where it is used: it is kept when it is about to read the command line."""
    serving = importlib.import_module("sglang.benchmark.serving")
    found: list[argparse.ArgumentParser] = []

    def read(parser: argparse.ArgumentParser, *_: Any) -> None:
        found.append(parser)
        raise SystemExit

    with mock.patch.object(argparse.ArgumentParser, "parse_args", read), contextlib.suppress(SystemExit):
        serving.cli_main()
    return _of_argparse(found[0])


def _guidellm() -> Options:
    command = importlib.import_module("guidellm.__main__").cli.commands["run"]
    for option in command.params:
        for name in (*option.opts, *option.secondary_opts):
            yield name, not getattr(option, "is_flag", False)


def _aiperf() -> Options:
    command = importlib.import_module("aiperf.cli").app["profile"]
    for argument in command.assemble_argument_collection():
        for name in argument.names:
            yield name, argument.hint is not bool and name not in argument.negatives


TOOLS: dict[str, tuple[str, Callable[[], Options]]] = {
    "vllm": ("vllm bench serve", _vllm),
    "sglang": ("python3 -m sglang.bench_serving", _sglang),
    "guidellm": ("guidellm run", _guidellm),
    "aiperf": ("aiperf profile", _aiperf),
}


def main(tool: str) -> None:
    """Print the options of a tool."""
    command, read = TOOLS[tool]
    rows = sorted({(name, takes_value) for name, takes_value in read() if name.startswith("--")})
    sys.stdout.write(f"# Options of {command}, {tool} {version(tool)}, as its own parser defines them (read_options.py)\n")
    for name, takes_value in rows:
        sys.stdout.write(f"{name} {'value' if takes_value else 'flag'}\n")


if __name__ == "__main__":
    main(sys.argv[1])
