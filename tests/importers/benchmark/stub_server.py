"""A stand-in for an engine's HTTP server whose latencies follow a stated law, so that the results a benchmark tool writes are known.

Run `python -m tests.importers.benchmark.stub_server 8000 [fail_every]`, then point a tool at `http://127.0.0.1:8000` with model `stub`.
It speaks the streaming part of the OpenAI completions and chat API and of SGLang's `/generate`, on the standard library alone.

With n streams running, a prompt of p tokens: TTFT = BASE_TTFT_S + TTFT_PER_TOKEN_S p; each further token takes
BASE_TPOT_S + TPOT_PER_STREAM_S n.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping

BASE_TTFT_S = 0.020
TTFT_PER_TOKEN_S = 0.0004
BASE_TPOT_S = 0.006
TPOT_PER_STREAM_S = 0.001
WORD = " hello"
"""One token of the stand-in tokenizer, which splits at white space."""

Json = Mapping[str, object]


class Stub:
    """Streams answers; `running` is the number of answers under way. Of `fail_every` requests one is refused, none when it is 0."""

    def __init__(self, fail_every: int) -> None:
        self.fail_every = fail_every
        self.received = 0
        self.running = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split()[1].split("?")[0]
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if head[0].startswith("POST") and path in {"/v1/completions", "/v1/chat/completions", "/generate"}:
                self.received += 1
                if self.fail_every and self.received % self.fail_every == 0:
                    writer.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                else:
                    await self._generate(path, json.loads(body), writer)
            else:
                _whole(writer, {"object": "list", "data": [{"id": "stub", "object": "model", "created": 0, "owned_by": "stub"}]})
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _generate(self, path: str, request: Json, writer: asyncio.StreamWriter) -> None:
        sampling = request.get("sampling_params")
        limits = sampling if isinstance(sampling, dict) else request
        wanted = limits.get("max_completion_tokens") or limits.get("max_new_tokens") or limits.get("max_tokens") or 16
        num_output, num_prompt = int(str(wanted)), _prompt_tokens(request)
        if not request.get("stream"):
            await asyncio.sleep(BASE_TTFT_S)
            answer = _chunk(path, WORD * num_output, num_prompt, num_output, ends=True)
            _whole(writer, {**answer, "usage": _usage(num_prompt, num_output)})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        self.running += 1
        try:
            due = time.perf_counter() + BASE_TTFT_S + TTFT_PER_TOKEN_S * num_prompt
            for index in range(1, num_output + 1):
                await asyncio.sleep(due - time.perf_counter())
                text = WORD * index if path == "/generate" else WORD
                _event(writer, _chunk(path, text, num_prompt, index, ends=index == num_output))
                await writer.drain()
                due += BASE_TPOT_S + TPOT_PER_STREAM_S * self.running
        finally:
            self.running -= 1
        if request.get("stream_options"):
            _event(writer, {**_envelope(path), "choices": [], "usage": _usage(num_prompt, num_output)})
        writer.write(b"data: [DONE]\n\n")


def _prompt_tokens(request: Json) -> int:
    messages = request.get("messages")
    if isinstance(messages, list):
        return sum(len(str(message.get("content")).split()) for message in messages)
    prompt = request.get("prompt") or request.get("text") or request.get("input_ids") or ""
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt) if isinstance(prompt, list) else 0


def _usage(num_prompt: int, num_output: int) -> Json:
    return {"prompt_tokens": num_prompt, "completion_tokens": num_output, "total_tokens": num_prompt + num_output}


def _envelope(path: str) -> Json:
    kind = "chat.completion.chunk" if "chat" in path else "text_completion"
    return {"id": "stub-1", "object": kind, "created": 0, "model": "stub"}


def _chunk(path: str, text: str, num_prompt: int, num_output: int, *, ends: bool) -> Json:
    reason = "length" if ends else None
    if path == "/generate":
        meta = {"prompt_tokens": num_prompt, "completion_tokens": num_output, "cached_tokens": 0, "finish_reason": reason}
        return {"text": text, "meta_info": meta}
    said = {"role": "assistant", "content": text}
    choice = {"delta": said, "message": said} if "chat" in path else {"text": text}
    return {**_envelope(path), "choices": [{"index": 0, "finish_reason": reason, **choice}]}


def _event(writer: asyncio.StreamWriter, data: Json) -> None:
    writer.write(b"data: " + json.dumps(data).encode() + b"\n\n")


def _whole(writer: asyncio.StreamWriter, data: Json) -> None:
    body = json.dumps(data).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def serve(port: int, fail_every: int) -> None:
    """Serve until cancelled."""
    server = await asyncio.start_server(Stub(fail_every).answer, "127.0.0.1", port, backlog=512)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
