// Times of attention over cached keys. A CUDA graph runs as many layers, each with its own keys, as exceed the L2 cache.
#pragma once

#include <functional>

#include "cached.cuh"

// graph_us is the median time of a run in a graph that repeats f(i), in microseconds.
static double graph_us(int runs, const std::function<void(int)>& f) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t program;
  cudaEvent_t a, b;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  f(0);
  OK(cudaDeviceSynchronize());
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch_stream = stream;
  for (int i = 0; i < runs; i++) f(i);
  launch_stream = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&program, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < 9; i++) {
    float ms;
    OK(cudaEventRecord(a, stream));
    OK(cudaGraphLaunch(program, stream));
    OK(cudaEventRecord(b, stream));
    OK(cudaEventSynchronize(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    if (i > 1) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  OK(cudaGraphExecDestroy(program));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
  return 1000 * times[times.size() / 2] / runs;
}

static void time_cached(const std::string& folder) {
  constexpr double kBandwidth = 4.2e12;
  exact = false;
  Kernels k8(folder, false, 128);
  const Kernel copy((folder + "/cacherows.cubin").c_str(), "cacherows");
  const char* list = std::getenv("SIZES");
  std::printf("model        n  share  per_sm   dense us  fraction | columns us  fraction  kept | lists us  scores us  rows us\n");
  for (const bool dream : {false, true}) {
    for (const char* p = list ? list : "1024,4096,16384,65536,131072"; *p;) {
      char* end;
      const int n = static_cast<int>(std::strtol(p, &end, 10)), rows = dream ? 33 : 32, heads = dream ? 28 : 32, kv_heads = dream ? 4 : 32;
      p = *end ? end + 1 : end;
      const double bytes = 512. * kv_heads * n;
      const int runs = std::min(32, std::max(2, static_cast<int>(400e6 / bytes) + 1)), layers = std::min(runs, static_cast<int>(20e9 / bytes));
      for (const int share : dream ? std::vector<int>{7, 1} : std::vector<int>{1}) {
        const Case c = {1, heads, kv_heads, n, 128, rows, n - 500, 0, rows, n - 500 + rows, 32, share};
        const int keep = n / 5;
        std::vector<std::unique_ptr<Layer>> l;
        for (int i = 0; i < layers; i++) l.push_back(std::make_unique<Layer>(c, k8, 3 * i, 1.f, keep));
        Buffer<bf16> out(c.queries() * c.d);
        Buffer<float> lse(c.queries());
        Buffer<uint32_t> bits(c.bit_rows() * c.words());
        Buffer<uint16_t> scores(c.bit_rows() * ((n + 7) / 8 * 8));
        // Heads of one key head have 70 % of their columns in common.
        fill_bits<<<static_cast<unsigned>(c.bit_rows()), 128>>>(bits.p, c.bit_rows(), c.groups() * heads, n, keep, c.groups() * heads / kv_heads, heads > kv_heads ? .7f : 0.f, 5);
        for (auto& x : l) x->lists(k8, bits.p);
        OK(cudaDeviceSynchronize());
        const auto counts = l[0]->counts.host();
        const double kept = 64. * counts.back() / c.lists() / n;
        for (const int per_sm : {1, 2}) {
          k8.attn->launch[3] = per_sm;
          const double dense = graph_us(runs, [&](int i) { l[i % layers]->dense(k8, out.p, nullptr, 0, true); });
          const double sparse = graph_us(runs, [&](int i) { l[i % layers]->columns(k8, out.p, 0, true); });
          // Every key of a key head that is in a list of it is read once, at best.
          const double floor = 1e6 * bytes / kBandwidth, sparse_floor = floor * std::min(1., kept);
          std::printf("%-5s  %7d  %5d  %6d  %9.1f  %8.2f | %10.1f  %8.2f  %.2f", dream ? "dream" : "llada", n, share, per_sm, dense, floor / dense, sparse, sparse_floor / sparse, kept);
          if (per_sm == 2) {
            l[0]->dense(k8, out.p, lse.p, 0, true);
            const double made = graph_us(runs, [&](int i) { l[i % layers]->lists(k8, bits.p); });
            const double scored = graph_us(runs, [&](int i) { l[i % layers]->scores(k8, lse.p, scores.p, (n + 7) / 8 * 8, 0); });
            const double moved = graph_us(32, [&](int) { copy.run(kv_heads * ((rows * 16 + 1023) / 1024), out.p, l[0]->k.p, l[0]->first.p, i64(kv_heads), i64(rows), i64(n), 16ll, 0ll); });
            std::printf(" | %8.1f  %9.1f  %7.1f", made, scored, moved);
          }
          std::printf("\n");
          std::fflush(stdout);
        }
      }
    }
  }
}
