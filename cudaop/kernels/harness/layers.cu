// Times the layers of an 8B model around attention on a GPU, without Go: the products by cuBLASLt, configured as in
// ../../blas.go, and the kernels of add, mergeheads, rmsnorm, rope and swiglu.
//
//   layers FOLDER [TOKENS ...]        default 4096 16384 65536
//
// FOLDER has the cubins of these kernels. Products are checked at sampled elements against float64. They are timed with the
// algorithm that cuBLASLt's heuristic puts first and with the fastest of its first eight that give the same bits, which the
// program uses, in turns. One line of JSON for each row; it exits with 1 if a product is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "layers.cuh"

// milliseconds is the median of some samples, each of enough runs for 5 ms.
static double milliseconds(const std::function<void()>& run, int samples = 9) {
  cudaEvent_t start, end;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  const auto sample = [&](int runs) {
    float ms;
    OK(cudaEventRecord(start));
    for (int i = 0; i < runs; i++) run();
    OK(cudaEventRecord(end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    return ms / runs;
  };
  sample(2);
  const int runs = std::max(1, static_cast<int>(std::ceil(5 / sample(1))));
  std::vector<double> times(samples);
  for (double& t : times) t = sample(runs);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

__global__ void differing(const bf16* x, const bf16* y, size_t n, unsigned long long* count) {
  const unsigned short* a = reinterpret_cast<const unsigned short*>(x);
  const unsigned short* b = reinterpret_cast<const unsigned short*>(y);
  unsigned long long mine = 0;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x) mine += a[i] != b[i];
  if (mine > 0) atomicAdd(count, mine);
}

// in_turn returns the median milliseconds of each run. The runs alternate for some rounds, because the clock depends on
// what ran before.
static std::vector<double> in_turn(const std::vector<std::function<void()>>& runs, int rounds = 9) {
  std::vector<cudaEvent_t> marks(runs.size() + 1);
  for (auto& m : marks) OK(cudaEventCreate(&m));
  std::vector<std::vector<double>> times(runs.size());
  for (int round = 0; round < rounds; round++) {
    const auto turn = [&](size_t i) { return (i + round) % runs.size(); };
    OK(cudaEventRecord(marks[0]));
    for (size_t i = 0; i < runs.size(); i++) {
      runs[turn(i)]();
      OK(cudaEventRecord(marks[i + 1]));
    }
    OK(cudaEventSynchronize(marks.back()));
    for (size_t i = 0; i < runs.size(); i++) {
      float ms;
      OK(cudaEventElapsedTime(&ms, marks[i], marks[i + 1]));
      times[turn(i)].push_back(ms);
    }
  }
  for (auto& m : marks) OK(cudaEventDestroy(m));
  std::vector<double> medians;
  for (auto& t : times) {
    std::sort(t.begin(), t.end());
    medians.push_back(t[t.size() / 2]);
  }
  return medians;
}

int main(int argc, char** argv) {
  if (argc < 2) { std::fprintf(stderr, "usage: layers FOLDER [TOKENS ...]\n"); return 2; }
  OK(cudaFree(nullptr));  // makes the context
  const std::string folder = argv[1];
  std::map<std::string, CUmodule> modules;
  std::vector<i64> lengths;
  for (int i = 2; i < argc; i++) lengths.push_back(std::atoll(argv[i]));
  if (lengths.empty()) lengths = {4096, 16384, 65536};
  const i64 most = *std::max_element(lengths.begin(), lengths.end());
  constexpr i64 D = 4096, F = 12288, H = 32;
  constexpr size_t kWorkspace = 32 << 20;

  cublasLtHandle_t lt;
  OK(cublasLtCreate(&lt));
  void* workspace;
  OK(cudaMalloc(&workspace, kWorkspace));
  bf16* a = values(static_cast<size_t>(most) * F, 1);
  bf16* b = values(static_cast<size_t>(most) * 2 * F, 2);
  bf16* c = values(static_cast<size_t>(most) * F, 3);
  bf16* d = values(static_cast<size_t>(most) * 2 * F, 6);
  unsigned long long* differences;
  OK(cudaMalloc(&differences, sizeof *differences));
  bf16* w = values(static_cast<size_t>(2 * F) * D, 4, 1 / 64.f);
  bf16* bias = values(2 * F, 5);
  float* weight;
  OK(cudaMalloc(&weight, F * sizeof(float)));
  OK(cudaMemset(weight, 0x3f, F * sizeof(float)));
  int* positions;
  std::vector<int> at(most);
  for (i64 i = 0; i < most; i++) at[i] = static_cast<int>(i);
  OK(cudaMalloc(&positions, most * sizeof(int)));
  OK(cudaMemcpy(positions, at.data(), most * sizeof(int), cudaMemcpyHostToDevice));
  double* frequencies;
  std::vector<double> f(64);
  for (int d = 0; d < 64; d++) f[d] = std::pow(5e5, -2.0 * d / 128) / M_PI;
  OK(cudaMalloc(&frequencies, f.size() * sizeof(double)));
  OK(cudaMemcpy(frequencies, f.data(), f.size() * sizeof(double), cudaMemcpyHostToDevice));

  const auto say = [](const char* what, i64 n, double ms, const char* unit, double rate) {
    std::printf("{\"layer\": \"%s\", \"n\": %lld, \"ms\": %.4f, \"%s\": %.0f}\n", what, n, ms, unit, rate);
    std::fflush(stdout);
  };
  const auto multiply = [&](const Product& p, const bf16* x, const bf16* residual, bf16* y, size_t algorithm = 0) {
    const float one = 1, beta = residual ? 1.f : 0.f;
    OK(cublasLtMatmul(lt, p.desc, &one, w, p.w, x, p.x, &beta, residual ? residual : y, p.y, y, p.y, &p.algorithms[algorithm], workspace, kWorkspace, nullptr));
  };
  // launch launches a kernel for bf16 on a grid of blocks.
  const auto launch = [&](const std::string& name, i64 blocks, std::vector<unsigned long long> args) {
    if (!modules.count(name)) OK(cuModuleLoad(&modules[name], (folder + "/" + name + ".cubin").c_str()));
    CUfunction fn;
    OK(cuModuleGetFunction(&fn, modules[name], (name + "_bf16").c_str()));
    std::vector<void*> params;
    for (auto& x : args) params.push_back(&x);
    OK(cuLaunchKernel(fn, static_cast<unsigned>(blocks), 1, 1, 256, 1, 1, 0, nullptr, params.data(), nullptr));
  };
  const auto u = [](const void* p) { return reinterpret_cast<unsigned long long>(p); };
  const auto bits = [](double x) { unsigned long long v; static_assert(sizeof v == sizeof x, ""); std::copy_n(reinterpret_cast<char*>(&x), 8, reinterpret_cast<char*>(&v)); return v; };

  // Sampled outputs of a product with bias and residual, against float64.
  {
    const i64 n = 300;
    Product p(lt, n, D, D, true, bias, kWorkspace);
    multiply(p, a, c, b);
    std::vector<bf16> ha(n * D), hw(D * D), hb(D), hc(n * D), hy(n * D);
    const auto host = [](std::vector<bf16>& v, const bf16* from) { OK(cudaMemcpy(v.data(), from, v.size() * sizeof(bf16), cudaMemcpyDeviceToHost)); };
    host(ha, a), host(hw, w), host(hb, bias), host(hc, c), host(hy, b);
    std::mt19937 r(1);
    double worst = 0;
    for (int k = 0; k < 500; k++) {
      const i64 i = r() % n, j = r() % D;
      double want = static_cast<float>(hb[j]) + static_cast<double>(static_cast<float>(hc[i * D + j]));
      for (i64 d = 0; d < D; d++) want += static_cast<double>(static_cast<float>(ha[i * D + d])) * static_cast<float>(hw[j * D + d]);
      worst = std::max(worst, std::fabs(static_cast<float>(hy[i * D + j]) - want) / std::max(1., std::fabs(want)));
    }
    std::printf("{\"check\": \"bias and residual\", \"worst\": %.2g}\n", worst);
    if (!(worst < 1. / 128)) return 1;  // results are rounded to 8 bits, twice
  }

  for (const i64 n : lengths) {
    const auto product = [&](const char* what, i64 in, i64 out, bool biased, bool residual) {
      Product p(lt, n, in, out, biased, bias, kWorkspace);
      const double operations = 2. * n * in * out;
      const bf16* added = residual ? c : nullptr;
      std::vector<std::function<void()>> same;  // bits as the first
      for (size_t i = 0; i < p.algorithms.size(); i++) {
        multiply(p, a, added, i == 0 ? b : d, i);
        OK(cudaMemset(differences, 0, sizeof *differences));
        if (i > 0) differing<<<4096, 256>>>(b, d, static_cast<size_t>(n) * out, differences);
        unsigned long long count;
        OK(cudaMemcpy(&count, differences, sizeof count, cudaMemcpyDeviceToHost));
        if (count == 0) same.push_back([&, i] { multiply(p, a, added, d, i); });
        else std::printf("{\"layer\": \"%s\", \"n\": %lld, \"algorithm\": %zu, \"results that differ\": %llu}\n", what, n, i, count);
      }
      const std::vector<double> ms = in_turn(same);
      const double best = *std::min_element(ms.begin(), ms.end());
      say(what, n, ms[0], "tflops", operations / ms[0] / 1e9);
      say((std::string(what) + ", fastest of the " + std::to_string(same.size()) + " algorithms of " + std::to_string(p.algorithms.size()) + " with the same bits").c_str(), n, best, "tflops", operations / best / 1e9);
    };
    product("qkv", D, 3 * D, false, false);
    product("qkv with bias", D, 3 * D, true, false);
    product("out", D, D, false, false);
    product("out onto residual", D, D, false, true);
    product("down", F, D, false, false);
    product("down onto residual", F, D, false, true);
    product("gate and up", D, 2 * F, false, false);
    const auto memory = [&](const char* what, double bytes, const std::function<void()>& run) {
      const double ms = milliseconds(run);
      say(what, n, ms, "gbs", bytes / ms / 1e6);
    };
    const double value = 2. * n * D;
    memory("copy", 2 * value, [&] { OK(cudaMemcpyAsync(b, a, static_cast<size_t>(value), cudaMemcpyDeviceToDevice)); });
    memory("rmsnorm", 2 * value, [&] { launch("rmsnorm", n, {u(a), u(weight), u(b), D, bits(1e-5), 0}); });
    memory("rope of qkv", 2 * value, [&] { launch("rope", (n + 3) / 4, {u(b), u(positions), u(frequencies), u(a), (unsigned long long)n, (unsigned long long)n, H, 128, 3 * D, 0, 4, (unsigned long long)n, 0}); });
    memory("split of qkv", 2 * value, [&] { launch("rope", (n + 3) / 4, {u(b), 0, 0, u(a), (unsigned long long)n, (unsigned long long)n, H, 128, 3 * D, 0, 4, (unsigned long long)n, 0}); });
    memory("merge", 2 * value, [&] { launch("mergeheads", n, {u(a), u(b), (unsigned long long)n, H, 128, 0}); });
    memory("add", 3 * value, [&] { launch("add", n * D / 2048, {u(a), u(c), u(b), (unsigned long long)(n * D), 0}); });
    memory("swiglu", 6. * n * F, [&] { launch("swiglu", n * 3, {u(b), u(a), F, 0}); });
    for (const i64 rows : {i64{1024}, i64{2048}, i64{4096}, i64{8192}, i64{9472}, i64{16384}, n}) {
      if (rows > n) continue;
      Product whole(lt, rows, D, 2 * F, false, bias, kWorkspace), rest(lt, n % rows ? n % rows : rows, D, 2 * F, false, bias, kWorkspace);
      const double ms = milliseconds([&] {
        for (i64 first = 0; first < n; first += rows) {
          const i64 count = std::min(rows, n - first);
          multiply(count == rows ? whole : rest, a + first * D, nullptr, b);
          launch("swiglu", count * 3, {u(b), u(c + first * F), F, 0});
        }
      });
      say(("gate, up and swiglu, " + std::to_string(rows) + " tokens at a time").c_str(), n, ms, "tflops", 4. * n * D * F / ms / 1e9);
    }
  }
  return 0;
}
