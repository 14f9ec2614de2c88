# SPDX-License-Identifier: Apache-2.0 OR MIT
"""vLLM with a small model of random weights: engines of several kinds in this process, and a server with eight clients. Prints `same …`
for tokens, as a digest, and the times of a start, a token and a request (`time …`). `--parts` names some of the parts, `--attention` the
implementation of attention (`FLASH_ATTN`, `TRITON_ATTN` and others; without it vLLM chooses)."""

import argparse
import gc
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time

TOKENS = 64
# A part that fails ends its process; those behind it get another.
PARTS = ["eager", "graphs", "server", "prefix", "sleep", "lora", "fp8", "compiled", "parallel"]
SETTINGS = {
    # In one process the batches are the same in each run, so the tokens are, too.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    # FlashInfer is a wheel of its own, and compiles its sampler with nvcc when it is first used.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # Multicast over NVLink needs rights that a worker does not have.
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",
}


def prompts(count, length, seed=0):
    numbers = random.Random(seed)
    return [{"prompt_token_ids": [numbers.randrange(3, 8000) for _ in range(length)]} for _ in range(count)]


def digest(outputs):
    """Of all tokens: their SHA-256, shortened, after the first three."""
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    return f"{tokens[0][:3]} {hashlib.sha256(repr(tokens).encode()).hexdigest()[:16]}"


class Engine:
    """An engine of vLLM's that ends with its block."""

    def __init__(self, name, model, **options):
        self.name, self.model, self.options = name, model, options

    def __enter__(self):
        from vllm import LLM

        begin = time.perf_counter()
        common = {"skip_tokenizer_init": True, "max_model_len": 1024, "max_num_seqs": 32, "gpu_memory_utilization": 0.2,
                  "kv_cache_memory_bytes": 1 << 30, "disable_log_stats": True, "seed": 0,
                  "attention_backend": given.attention}
        self.engine = LLM(self.model, **{**common, **self.options})
        print(f"time start, {self.name}: {1e3 * (time.perf_counter() - begin):.1f} ms", flush=True)
        return self

    def __exit__(self, *_):
        from vllm.distributed import cleanup_dist_env_and_memory

        self.engine.llm_engine.engine_core.shutdown()
        del self.engine
        gc.collect()
        cleanup_dist_env_and_memory()

    def generate(self, asked, tokens=TOKENS, **more):
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        return self.engine.generate(asked, greedy, use_tqdm=False, **more)

    def report(self, what, asked, **more):
        """Prints the tokens, and the time of one: the least of three."""
        self.generate(asked, 4, **more)
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            outputs = self.generate(asked, **more)
            best = min(best, (time.perf_counter() - begin) / TOKENS)
        print(f"same {self.name}, {what}: {digest(outputs)}", flush=True)
        print(f"time a token, {self.name}, {what}: {1e3 * best:.4f} ms", flush=True)


def measure(name, model, **options):
    with Engine(name, model, **options) as engine:
        engine.report("1 request", prompts(1, 32))
        engine.report("32 requests", prompts(32, 32))


def eager(model):
    measure("eager", model, enforce_eager=True)


def graphs(model):
    sizes = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8, 32]}
    measure("graphs", model, compilation_config=sizes)


def compiled(model):
    """vLLM's defaults, with fewer sizes."""
    measure("compiled", model, compilation_config={"cudagraph_capture_sizes": [1, 8, 32]})


def prefix(model):
    """A second request finds the blocks of the first in the cache."""
    long = prompts(1, 512, seed=1)
    with Engine("prefix", model, enforce_eager=True, enable_prefix_caching=True) as engine:
        for what in ("first", "again"):
            outputs = engine.generate(long)
            print(f"same prefix, {what}: {outputs[0].num_cached_tokens} tokens were cached, {digest(outputs)}", flush=True)


def sleep(model):
    """The weights go to the host's memory and come back; the cache is dropped."""
    import torch

    asked = prompts(4, 32)
    with Engine("sleep", model, enforce_eager=True, enable_sleep_mode=True) as engine:
        before = digest(engine.generate(asked))
        used = torch.cuda.mem_get_info()[0]
        begin = time.perf_counter()
        engine.engine.sleep(level=1)
        slept = time.perf_counter()
        freed = torch.cuda.mem_get_info()[0] - used
        woken = time.perf_counter()
        engine.engine.wake_up()
        end = time.perf_counter()
        after = digest(engine.generate(asked))
    print(f"same sleep: {before}, {'gigabytes' if freed > 1 << 30 else freed} freed, then the tokens are "
          f"{'the same' if after == before else after}", flush=True)
    print(f"time sleep: {1e3 * (slept - begin):.3f} ms\ntime wake: {1e3 * (end - woken):.3f} ms", flush=True)


def fp8(model):
    measure("fp8", model, enforce_eager=True, quantization="fp8")


def lora(model):
    from vllm.lora.request import LoRARequest

    request = LoRARequest("adapter", 1, os.path.join(model, "adapter"))
    with Engine("lora", model, enforce_eager=True, enable_lora=True, max_lora_rank=8, max_loras=1) as engine:
        plain, adapted = (digest(engine.generate(prompts(2, 32), lora_request=chosen)) for chosen in (None, request))
        print(f"same lora, without: {plain}\nsame lora, different with: {plain != adapted}", flush=True)
        engine.report("2 requests", prompts(2, 32), lora_request=request)


def parallel(model):
    """All GPUs, or the largest power of two that there is, with vLLM's own all-reduce."""
    import torch

    gpus = torch.cuda.device_count()
    if gpus < 2:
        print("same parallel: left out, there is one GPU", flush=True)
        return
    # The model has 16 heads.
    gpus = min(16, 1 << gpus.bit_length() - 1)
    measure(f"parallel on {gpus} GPUs", model, enforce_eager=True, tensor_parallel_size=gpus)


def server(model):
    from clients import serve

    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "small",
               "--max-model-len", "1024", "--max-num-seqs", "32", "--gpu-memory-utilization", "0.2", "--kv-cache-memory-bytes",
               str(1 << 30), "--enforce-eager", "--host", "127.0.0.1"]
    if given.attention:
        command += ["--attention-backend", given.attention]
    serve(command, [prompt["prompt_token_ids"] for prompt in prompts(8, 32)], TOKENS,
          {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"})


def child(parts, model):
    for part in parts:
        print(f"begin {part}", flush=True)
        globals()[part](model)


def parent(parts, model, environment):
    """Runs the parts in a process, and those that are left in another if it ends early. Returns the names of those that failed."""
    failed = []
    while parts:
        command = [sys.executable, __file__, "--parts", ",".join(parts), "--model", model]
        if given.attention:
            command += ["--attention", given.attention]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
            last = parts[0]
            for line in running.stdout:
                print(line, end="", flush=True)
                if line.startswith("begin "):
                    last = line.split()[1]
            parts = parts[parts.index(last) + 1:]
            status = running.wait()
        if status:
            failed.append(last)
        elif parts:
            return failed + parts
    return failed


parser = argparse.ArgumentParser()
parser.add_argument("--parts", default=",".join(PARTS))
parser.add_argument("--attention", help="the implementation of attention, by vLLM's name")
parser.add_argument("--model", help="the folder of the model, in a process for some parts")
given = parser.parse_args()
if given.model:
    child(given.parts.split(","), given.model)
else:
    from small_llama import make

    with tempfile.TemporaryDirectory() as home:
        folder = os.path.join(home, "model")
        os.mkdir(folder)
        make(folder)
        caches = {name: os.path.join(home, name) for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        failed = parent(given.parts.split(","), folder, {**os.environ, **SETTINGS, **caches})
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
