// Checks of the selection of columns.
#pragma once

#include "reference.cuh"

template <class S>
static void check_grouptopk(const Kernel& kernel) {
  const auto value = [](S s) { return static_cast<double>(s); };
  for (int n : small() ? std::vector<int>{1, 100, 9000} : std::vector<int>{1, 31, 32, 33, 1000, 4097, 8192, 8200, 65536, 65537, 131072}) {
    for (int kind = 0; kind < 7; kind++) {
      const int batch = 2, heads = 1, groups = 3;
      const i64 pitch = kind % 2 ? n : (n + 7) / 8 * 8, words = (n + 31) / 32;
      std::vector<S> scores(batch * heads * groups * pitch);
      for (size_t i = 0; i < scores.size(); i++) {
        const uint32_t x = hash(i * 31 + kind);
        double v = 0;
        switch (kind) {
          case 0: v = sizeof(S) == 2 ? x % 31744 : std::ldexp(1 + x % 65536 / 65536., -static_cast<int>(x >> 16) % 40); break;  // anything
          case 1: v = 17; break;                                                                       // all equal
          case 2: v = 0; break;
          case 3: v = x % 2 ? 1 : 2; break;                                                            // two values
          case 4: v = static_cast<double>(i % pitch); if (sizeof(S) == 2) v = std::min(v, 31743.); break;  // sorted
          case 5: v = sizeof(S) == 2 ? 20000 + x % 50 : (static_cast<int>(x % 100) - 50) * 1e-42; break;   // many ties; denormals of both signs
          case 6: v = i % pitch == static_cast<i64>(n / 2) ? 31743 : 0; break;                         // one stands out
        }
        scores[i] = static_cast<S>(v);
        if constexpr (sizeof(S) == 4)
          if (kind == 0 && x % 97 == 0) scores[i] = NAN;
      }
      Buffer<S> in(scores);
      const std::vector<int> starts = {0, n / 4};
      Buffer<int> start(starts);
      for (int k : {1, n / 5, n - 1, n}) {
        if (k < 1) continue;
        const std::vector<int> keep = {k, std::max(1, k / 2)};
        Buffer<int> keeps(keep);
        Buffer<uint32_t> bits(batch * heads * groups * words);
        bits.poison();
        kernel.run(batch * heads * groups, in.p, bits.p, keeps.p, start.p, static_cast<i64>(batch), static_cast<i64>(heads), static_cast<i64>(groups), static_cast<i64>(n), pitch);
        OK(cudaDeviceSynchronize());
        const auto got = bits.host();
        bool good = true;
        for (int r = 0; r < batch * heads * groups; r++) {
          const int from = starts[r / (heads * groups)], want = std::min(keep[r / (heads * groups)], n - from);
          std::vector<int> order(n - from);
          std::iota(order.begin(), order.end(), from);
          const S* row = &scores[r * pitch];
          std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            const double x = value(row[a]), y = value(row[b]);
            return std::isnan(y) ? !std::isnan(x) : x > y;
          });
          std::vector<uint32_t> expected(words);
          for (int i = 0; i < want; i++) expected[order[i] / 32] |= 1u << order[i] % 32;
          good = good && std::equal(expected.begin(), expected.end(), got.begin() + r * words);
        }
        char what[80];
        std::snprintf(what, sizeof what, "grouptopk n=%d kind=%d k=%d", n, kind, k);
        report(good, "%.0f", std::string(what) + ": another set than the host's", 0, 0);
      }
    }
  }
}
