// Times of the kernels.
#pragma once

#include "scorecollect.cuh"

template <class F>
static double milliseconds(F f) {
  cudaEvent_t a, b;
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  f(), f();
  OK(cudaDeviceSynchronize());
  static const bool lengthy = std::getenv("LONG");
  std::vector<float> t;
  double before = 0, total = 0;
  while (t.size() < 5 || (lengthy ? total < 100 : t.size() < 30 && total < 60)) {
    OK(cudaEventRecord(a));
    f();
    OK(cudaEventRecord(b));
    OK(cudaEventSynchronize(b));
    float x;
    OK(cudaEventElapsedTime(&x, a, b));
    if (lengthy && before < 60) before += x; else t.push_back(x), total += x;
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

static void timed(const char* label, const char* kernel, const Shape& s, double sparsity, double share, double ms, double flops) {
  std::printf("{\"kernel\":\"%s\",\"label\":\"%s\",\"n\":%d,\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"group\":%d,\"sparsity\":%.2f,\"share\":%.2f,\"ms\":%.4f,\"tflops\":%.1f}\n",
              kernel, label, s.n, s.heads, s.kv_heads, s.d, s.group, sparsity, share, ms, flops / ms / 1e9);
  std::fflush(stdout);
}

static std::vector<std::pair<int, int>> sizes() {
  std::vector<std::pair<int, int>> v;
  const char* list = std::getenv("SIZES");       // n:heads, with commas
  for (const char* p = list ? list : "4096:32,16384:32,65536:8"; *p;) {
    char* end;
    const int n = std::strtol(p, &end, 10), h = std::strtol(end + 1, &end, 10);
    v.push_back({n, h});
    p = *end ? end + 1 : end;
  }
  return v;
}

// time_all prints a line for each size: kind is that of the command line.
static void time_all(const Kernel& kernel, const Attention& run, const std::string& kind, const char* kernel_name, const char* label, int d, int group) {
  const char* shares = std::getenv("SHARES");
  for (const auto& size : sizes()) {
    const int n = size.first, h = size.second;
    const int hkv = std::getenv("KV_HEADS") ? std::atoi(std::getenv("KV_HEADS")) : h;
    const Shape s = shape(1, h, hkv, n, d, group);
    const double pairs = static_cast<double>(h) * n * n * d;
    if (kind == "grouptopk") {
      std::vector<uint16_t> host(64 << 20);
      for (size_t i = 0; i < host.size(); i++) {  // as scores are: a bell of some octaves
        const uint32_t x = hash(i);
        host[i] = static_cast<uint16_t>(20000 + (x & 1023) + (x >> 10 & 1023) + (x >> 20 & 1023));
      }
      const bool f32 = std::string(kernel_name).find("f32") != std::string::npos;
      const size_t bytes = f32 ? 4 : 2, total = s.rows() * n;
      Buffer<uint8_t> scores(total * bytes);
      std::vector<float> wide;
      if (f32) for (uint16_t c : host) wide.push_back(std::exp2((c - 31743.f) / 512 + (c & 7) * 1e-5f));
      for (size_t at = 0; at < total; at += host.size())
        OK(cudaMemcpy(scores.p + at * bytes, f32 ? static_cast<void*>(wide.data()) : host.data(), std::min(host.size(), total - at) * bytes, cudaMemcpyHostToDevice));
      Buffer<uint32_t> bits(s.rows() * s.words());
      Buffer<int> keep(std::vector<int>{n / 5});
      const double ms = milliseconds([&] { kernel.run(s.rows(), scores.p, bits.p, keep.p, static_cast<int*>(nullptr), 1ll, static_cast<i64>(h), s.groups(), static_cast<i64>(n), static_cast<i64>(n)); });
      timed(label, kernel_name, s, .8, 0, ms, 0);
      continue;
    }
    const Inputs in(s, 7);
    Buffer<float> lse(s.queries());
    if (kind == "scorecollect") {
      std::vector<float> l(s.queries(), std::log(static_cast<float>(n)) + .5f);
      OK(cudaMemcpy(lse.p, l.data(), l.size() * 4, cudaMemcpyHostToDevice));
      Buffer<uint16_t> out(s.rows() * n);
      timed(label, kernel_name, s, 0, 0, milliseconds([&] { run_scorecollect(kernel, in, lse.p, out.p, nullptr, n, 0); }), 2 * pairs);
      continue;
    }
    Buffer<bf16> out(s.queries() * d);
    if (kind == "window") {                      // the widths that Streaming has by default
      Inputs narrow(window(s, 128, (n + 9) / 10), 7);
      double kept = 0;
      for (int i = 0; i < n; i++) {
        const int low = std::max(i - 128, 0), high = std::min(i + 128, n - 1), sinks = narrow.s.sinks;
        kept += high - low + 1 + std::min(sinks, low) + std::max(sinks - high - 1, 0);
      }
      timed(label, kernel_name, s, 1 - kept / n / n, 0, milliseconds([&] { run(narrow, out.p, nullptr, nullptr, nullptr, 0); }), 4 * pairs / n / n * kept);
      continue;
    }
    if (kind == "denseattn") {
      timed(label, kernel_name, s, 0, 0, milliseconds([&] { run(in, out.p, lse.p, nullptr, nullptr, 0); }), 4 * pairs);
      continue;
    }
    for (double sparsity : {.8, .9}) {
      for (const char* p = shares ? shares : "0"; *p;) {
        char* end;
        const double share = std::strtod(p, &end);
        p = *end ? end + 1 : end;
        const int keep = static_cast<int>(n * (1 - sparsity));
        Buffer<uint32_t> bits(s.rows() * s.words());
        fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), n, keep, std::max(1, 128 / group), static_cast<float>(share), 3);
        OK(cudaDeviceSynchronize());
        timed(label, kernel_name, s, sparsity, share, milliseconds([&] { run(in, out.p, lse.p, bits.p, nullptr, 0); }), 4 * pairs / n * keep);
      }
    }
  }
}
