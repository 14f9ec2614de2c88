# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A server with OpenAI's interface, and its clients."""

import http.client
import json
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

START = 120
ANSWER = 60


def complete(port, prompt, tokens):
    """Asks for a completion. Returns its text and its number of tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER)
    try:
        asked = {"model": "small", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {content[:200]}")
        content = json.loads(content)
        return content["choices"][0]["text"], content["usage"]["completion_tokens"]
    finally:
        connection.close()


def ready(port, process):
    """Waits for the server."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise RuntimeError(f"the server was not there after {START} s")


@contextmanager
def started(command, environment=None):
    """Starts the server with `--port`, waits for it, and ends it with the block. Gives its port and the seconds that it took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, env=environment)
    try:
        ready(port, process)
        yield port, time.perf_counter() - begin
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve(command, prompts, tokens, environment=None):
    """Asks a server as one client and as many. Which requests make a batch depends on the time, so the tokens of one client alone
    are compared."""
    with started(command, environment) as (port, seconds):
        print(f"time start, server: {1e3 * seconds:.1f} ms", flush=True)
        complete(port, prompts[0], 4)
        text, _ = complete(port, prompts[0], tokens)
        print(f"same server, 1 client: {text!r}", flush=True)
        alone = together = float("inf")
        with ThreadPoolExecutor(len(prompts)) as pool:
            for _ in range(3):
                begin = time.perf_counter()
                complete(port, prompts[0], tokens)
                alone = min(alone, time.perf_counter() - begin)
                begin = time.perf_counter()
                answers = list(pool.map(lambda prompt: complete(port, prompt, tokens), prompts))
                together = min(together, time.perf_counter() - begin)
        print(f"same server, {len(prompts)} clients: {[count for _, count in answers]} tokens", flush=True)
        print(f"time a request of {tokens} tokens, 1 client: {1e3 * alone:.3f} ms", flush=True)
        print(f"time {len(prompts)} requests of {tokens} tokens, {len(prompts)} clients: {1e3 * together:.3f} ms", flush=True)
