"""Times PyTorch's attention backends on this machine's GPU: one JSON line for each backend and size.

    python3 bench/attention.py [n:heads ...]

Batch 1, bf16, head dim 128, no mask; the median of CUDA-event timings after a warm-up. TFLOP/s counts 4·n²·heads·128.
"""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEAD_DIM = 128
BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def milliseconds(f):
    """The median time of f, over at least 5 runs and at most about 60 ms."""
    for _ in range(2):
        f()
    torch.cuda.synchronize()
    times = []
    while len(times) < 5 or (len(times) < 30 and sum(times) < 60):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main():
    sizes = sys.argv[1:] or ["4096:32", "8192:32", "16384:32", "65536:8", "131072:8"]
    for size in sizes:
        n, heads = map(int, size.split(":"))
        q, k, v = (torch.randn(1, heads, n, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        for name, backend in BACKENDS.items():
            with sdpa_kernel([backend]):
                ms = milliseconds(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
            print(json.dumps({
                "kernel": name, "n": n, "heads": heads, "kv_heads": heads, "head_dim": HEAD_DIM,
                "ms": round(ms, 4), "tflops": round(4 * n * n * heads * HEAD_DIM / ms / 1e9, 1),
                "torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
            }), flush=True)


if __name__ == "__main__":
    main()
