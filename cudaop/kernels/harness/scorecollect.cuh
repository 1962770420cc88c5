// Checks of the scores of columns.
#pragma once

#include "attention.cuh"

// exact_lse is the reference's log-sum-exp of all rows, as float32.
static std::vector<float> exact_lse(const Inputs& in, const int* start) {
  const Shape& s = in.s;
  std::vector<float> lse(s.queries());
  const i64 most = 2048;
  for (i64 at = 0; at < s.queries(); at += most) {
    std::vector<i64> rows(std::min(most, s.queries() - at));
    std::iota(rows.begin(), rows.end(), at);
    Buffer<i64> r(rows);
    Buffer<double> p(rows.size() * s.n), o(rows.size() * s.d), l(rows.size());
    reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, nullptr, start, r.p, p.p, o.p, l.p);
    const auto h = l.host();
    for (size_t i = 0; i < h.size(); i++) lse[at + i] = static_cast<float>(h[i]);
  }
  return lse;
}

static void run_scorecollect(const Kernel& kernel, const Inputs& in, const float* lse, void* out, const int* start, i64 pitch, int stype) {
  const Shape& s = in.s;
  kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), lse, out, start, static_cast<i64>(s.batch), static_cast<i64>(s.heads), static_cast<i64>(s.kv_heads),
             static_cast<i64>(s.n), static_cast<i64>(s.group), s.scale, pitch, static_cast<i64>(stype), static_cast<i64>(s.n), 0ll, static_cast<i64>(s.n), 0ll, static_cast<i64>(s.d));
}

static void check_scorecollect(const Kernel& kernel, int d, int group) {
  for (int n : lengths()) {
    if (n > 2050) continue;                      // the log-sum-exp of all rows comes from the reference
    for (bool padded : {false, true}) {
      const Inputs in(shape(2, 7, 1, n, d, group), n, padded ? 1 : 4);
      const Shape& s = in.s;
      const std::vector<int> starts = {0, n / 3};
      Buffer<int> start(starts);
      const int* device_start = padded ? start.p : nullptr;
      const Buffer<float> lse(exact_lse(in, device_start));
      for (int stype : {0, 1}) {
        const i64 pitch = stype ? n : (n + 7) / 8 * 8;
        Buffer<uint8_t> out(s.rows() * pitch * (stype ? 4 : 2));
        out.poison();
        const std::string what = name(s, padded ? (stype ? "f32 padded" : "log16 padded") : stype ? "f32" : "log16");
        if (small()) std::printf("%s\n", what.c_str()), std::fflush(stdout);
        run_scorecollect(kernel, in, lse.p, out.p, device_start, pitch, stype);
        OK(cudaDeviceSynchronize());
        const auto raw = out.host();
        double worst = 0;
        bool zeros = true;
        for (i64 r : sample(s.rows(), 24)) {
          const i64 bh = r / s.groups();
          const int u = static_cast<int>(r % s.groups()), from = padded ? starts[bh / s.heads] : 0;
          std::vector<i64> rows;
          for (int i = std::max(u * group, from); i < std::min((u + 1) * group, n); i++) rows.push_back(bh * n + i);
          std::vector<double> mean(n);
          if (!rows.empty()) {
            Buffer<i64> at(rows);
            Buffer<double> p(rows.size() * n), o(rows.size() * d), l(rows.size());
            reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, nullptr, device_start, at.p, p.p, o.p, l.p);
            const auto h = p.host();
            for (size_t i = 0; i < rows.size(); i++)
              for (int j = 0; j < n; j++) mean[j] += h[i * n + j] / rows.size();
          }
          for (int j = 0; j < n; j++) {
            double x;
            if (stype) {
              float f;
              std::memcpy(&f, &raw[(r * pitch + j) * 4], 4);
              x = f;
            } else {
              uint16_t c;
              std::memcpy(&c, &raw[(r * pitch + j) * 2], 2);
              x = c ? std::exp2((c - 31743.) / 512) : 0;
            }
            if (mean[j] == 0) zeros = zeros && x == 0;
            else if (mean[j] > 1e-18) worst = std::max(worst, std::isnan(x) ? INFINITY : std::abs(x / mean[j] - 1));
          }
        }
        worst_score = std::max(worst_score, worst);
        const double allowed = exact && stype ? 1e-4 : 1e-3;
        report(worst <= allowed, "a score is off by a factor of 1 ± %.2e, want <= %.0e", what, worst, allowed);
        report(zeros, "%.0f", what + ": what padding should score is not 0", 0, 0);
      }
    }
  }
  if (small()) return;
  const Inputs in(shape(1, 4, 2, 2000, d, group), 5);
  const Buffer<float> lse(exact_lse(in, nullptr));
  repeat(in.s.rows() * 2000 / 2, "scorecollect", [&](uint32_t* out) { run_scorecollect(kernel, in, lse.p, out, nullptr, 2000, 0); });
}
