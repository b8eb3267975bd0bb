"""Start-up logs as collectors hand them on: prefixes, colours, JSON lines, strings with their breaks spelled out."""

import json
from collections.abc import Callable

import pytest

from app.domain.units import GIB
from app.importers.engine_log import read_start_up
from tests.importers.start_up_figures import FAILURES, FIGURES, LOGS

LOADED = "INFO gpu_model_runner.py:1] Model loading took 12.00 GiB and 3.1 seconds\n"


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


COLLECTED: dict[str, Callable[[str], str]] = {
    "kubernetes": each_line(lambda line: "2026-06-01T10:00:00.123456789Z stderr F " + line),
    "journal": each_line(lambda line: "Jun 01 10:00:00 host serve[4242]: " + line),
    "compose": each_line(lambda line: "llm-1  | " + line),
    "pod": each_line(lambda line: "[pod/llm-0/server] " + line),
    "mpirun": each_line(lambda line: "[1,0]<stderr>: " + line),
    "ray": each_line(lambda line: "(RayWorkerWrapper pid=1234, ip=10.0.0.2) " + line),
    "numbered": lambda text: "\n".join(f"{i:6d}\t{line}" for i, line in enumerate(text.split("\n"))),
    "coloured": each_line(lambda line: f"\x1b[32m{line}\x1b[0m"),
    "colours-spelled-out": each_line(lambda line: f"\\u001b[32m{line}\\033[0m"),
    "carets": each_line(lambda line: f"^[[32m{line}^[[0m"),
    "docker-json": each_line(lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-06-01T10:00:00Z"})),
    "message-json": each_line(lambda line: "server " + json.dumps({"level": "INFO", "message": f"\x1b[32m{line}"})),
    "one-json-object": lambda text: json.dumps({"log": text}),
    "one-string": lambda text: json.dumps(text),
    "windows": lambda text: "\ufeff" + text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", [*FIGURES, *FAILURES])
@pytest.mark.parametrize("collected", COLLECTED.values(), ids=COLLECTED)
def test_what_collectors_do_to_lines_changes_nothing(collected: Callable[[str], str], name: str) -> None:
    text = (LOGS / f"{name}.log").read_text()
    found, plain = read_start_up(collected(text)), read_start_up(text)
    assert found.model_dump(exclude={"failure"}) == plain.model_dump(exclude={"failure"})
    assert (found.failure and found.failure.check) == (plain.failure and plain.failure.check)


@pytest.mark.parametrize(
    "line", ['{"log": 3}', '{"message": null}', '{"log": [1}', '["log"]', "{" * 5000 + '"log"' + "}" * 5000], ids=str.__len__
)
def test_json_that_holds_no_line_is_a_line(line: str) -> None:
    assert read_start_up(f"{line}\n{LOADED}").weights_bytes_per_gpu == 12 * GIB
