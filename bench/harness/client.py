# SPDX-License-Identifier: Apache-2.0
"""A client that does what a router of a P/D pair does: both legs with one request id."""
import concurrent.futures
import dataclasses
import http.client
import json
import random
import time
import uuid

from .engine import HOST, MODEL_NAME

TIMEOUT = 120.0  # seconds for one answer
ANSWER_TOKENS = 16


@dataclasses.dataclass
class Answer:
    tokens: list
    ttft: float  # seconds from sending to the first token
    seconds: float  # ... to the last
    params: dict  # kv_transfer_params of the answer, or None
    error: str = ""  # why there are no tokens

    @property
    def ok(self):
        return not self.error


def make_prompt(tokens, seed):
    """A prompt of random token ids; the same seed gives the same one."""
    source = random.Random(seed)
    return [source.randrange(2, 1024) for _ in range(tokens)]


def complete(engine, prompt, request_id, max_tokens=ANSWER_TOKENS, params=None, timeout=TIMEOUT):
    """Sends one completion and reads its stream. Never raises: failures are in the answer."""
    body = {"model": MODEL_NAME, "prompt": prompt, "temperature": 0, "max_tokens": max_tokens,
            "min_tokens": max_tokens, "ignore_eos": True, "detokenize": False,
            "return_token_ids": True, "stream": True}
    if params:
        body["kv_transfer_params"] = params
    began = time.monotonic()
    connection = http.client.HTTPConnection(HOST, engine.port, timeout=timeout)
    answer = Answer([], 0.0, 0.0, None)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json", "X-Request-Id": request_id})
        _read_stream(connection.getresponse(), answer, began, began + timeout)
    except (OSError, http.client.HTTPException) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    answer.seconds = time.monotonic() - began
    if answer.ok and len(answer.tokens) != max_tokens:
        answer.error = f"{len(answer.tokens)} tokens instead of {max_tokens}"
    return answer


def _read_stream(response, answer, began, deadline):
    if response.status != 200:
        answer.error = f"HTTP {response.status}: {response.read(500).decode(errors='replace')}"
        return
    for line in response:
        if time.monotonic() > deadline:
            raise TimeoutError("the stream did not end in time")
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            answer.error = str(event["error"].get("message", event["error"]))
            return
        for choice in event.get("choices", ()):
            tokens = choice.get("token_ids") or []
            if tokens and not answer.tokens:
                answer.ttft = time.monotonic() - began
            answer.tokens += tokens
            if choice.get("finish_reason") == "error":
                answer.error = "finish_reason error"
        answer.params = event.get("kv_transfer_params") or answer.params


def aggregated(engine, prompt, max_tokens=ANSWER_TOKENS):
    """The answer of one engine that computes the prompt itself."""
    return complete(engine, prompt, f"alone-{uuid.uuid4()}", max_tokens)


class Client:
    """Sends requests through a pair. Threads are shared by all requests."""

    def __init__(self, pair, parallel=1):
        self.pair = pair
        self._legs = concurrent.futures.ThreadPoolExecutor(2 * parallel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._legs.shutdown(wait=False, cancel_futures=True)

    def push(self, prompt, max_tokens=ANSWER_TOKENS, p_after=0.0, d_after=0.0, timeout=TIMEOUT,
             request_id=None):
        """Both legs; p_after and d_after are seconds to hold one back. Returns (P's answer, D's)."""
        request_id = request_id or str(uuid.uuid4())
        p = self._legs.submit(_later, p_after, self.prefill_leg, prompt, request_id, timeout)
        d = self._legs.submit(_later, d_after, self.decode_leg, prompt, request_id, max_tokens, timeout)
        return p.result(), d.result()

    def prefill_leg(self, prompt, request_id, timeout=TIMEOUT):
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        return complete(self.pair.p, prompt, request_id, 1, params, timeout)

    def submit(self, call, *arguments, **options):
        """Runs one leg in the background. Returns its future."""
        return self._legs.submit(call, *arguments, **options)

    def decode_leg(self, prompt, request_id, max_tokens=ANSWER_TOKENS, timeout=TIMEOUT):
        p = self.pair.p
        params = {"do_remote_decode": False, "do_remote_prefill": True, "remote_engine_id": p.engine_id,
                  "remote_host": HOST, "remote_port": p.side_port,
                  "tp_size": p.options.tensor_parallel, "pp_size": p.options.pipeline_parallel,
                  "remote_request_id": request_id}
        return complete(self.pair.d, prompt, request_id, max_tokens, params, timeout)


def _later(seconds, call, *arguments):
    if seconds:
        time.sleep(seconds)
    return call(*arguments)


def difference(want, got):
    """Why two answers are not the same, or '' if they are, token by token."""
    if not want.ok or not got.ok:
        return f"no answer: {want.error or got.error}"
    for i, (a, b) in enumerate(zip(want.tokens, got.tokens, strict=True)):
        if a != b:
            return f"token {i} is {b} instead of {a} ({got.tokens} instead of {want.tokens})"
    return ""


def fault(alone, p, d):
    """What is wrong with a push, or '' if D's answer is the aggregated one and P's leg ended well."""
    return difference(alone, d) or (f"P: {p.error}" if not p.ok else "")


def sensitive_blocks(engine, prompt, blocks, block_size=16):
    """How many of the given blocks change the engine's answer when their tokens change."""
    want = aggregated(engine, prompt).tokens
    changed = 0
    for block in blocks:
        other = list(prompt)
        start = block * block_size
        other[start:start + block_size] = make_prompt(block_size, seed=f"block {block}")
        changed += aggregated(engine, other).tokens != want
    return changed
