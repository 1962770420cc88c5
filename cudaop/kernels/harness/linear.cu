// Checks and times the products of few rows, ../linear_sm90.cu, on a GPU, without Go.
//
//   linear FOLDER check           against float64, at ragged sizes and all divisions, and for the same bits in every run
//   linear FOLDER cublas ROWS ... all algorithms of cuBLASLt at the shapes of two 8B models
//   linear FOLDER time ROWS ...   the kernel at these shapes, by tiles and blocks of a cluster, for up to 32 rows
//   linear FOLDER step ROWS ...   the linear layers and norms of a whole step of LLaDA-8B, by the kernel and by cuBLASLt
//
// FOLDER has the cubins of linear_sm90, rmsnorm and swiglu. Weights are 15 GB, of which a graph of products reads other
// parts each time, far more than the L2 holds. A share is that of the bandwidth at which a kernel only reads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "layers.cuh"

static CUstream stream;

struct Kernel {
  CUfunction f;
  i64 launch[4], boxes[2] = {};
  bool dependent = false;
  Kernel() = default;
  Kernel(const std::string& folder, const std::string& file, const std::string& name) {
    CUmodule m;
    OK(cuModuleLoad(&m, (folder + "/" + file + ".cubin").c_str()));
    OK(cuModuleGetFunction(&f, m, name.c_str()));
    CUdeviceptr p;
    size_t size;
    OK(cuModuleGetGlobal(&p, &size, m, (name + "_launch").c_str()));
    OK(cuMemcpyDtoH(launch, p, sizeof launch));
    if (cuModuleGetGlobal(&p, &size, m, (name + "_boxes").c_str()) == CUDA_SUCCESS) OK(cuMemcpyDtoH(boxes, p, sizeof boxes));
    dependent = cuModuleGetGlobal(&p, &size, m, (name + "_dependent").c_str()) == CUDA_SUCCESS;
    if (launch[1] > 48 << 10) OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch[1])));
  }

  void run(i64 grid, int cluster, bool early, std::vector<CUtensorMap> maps, std::vector<unsigned long long> args) const {
    std::vector<void*> params;
    for (auto& m : maps) params.push_back(&m);
    for (auto& a : args) params.push_back(&a);
    CUlaunchAttribute attributes[2] = {};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[1].value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig c = {};
    c.gridDimX = static_cast<unsigned>(grid), c.gridDimY = c.gridDimZ = 1;
    c.blockDimX = static_cast<unsigned>(launch[0]), c.blockDimY = c.blockDimZ = 1;
    c.sharedMemBytes = static_cast<unsigned>(launch[1]);
    c.hStream = stream, c.attrs = attributes, c.numAttrs = early && dependent ? 2 : 1;
    OK(cuLaunchKernelEx(&c, f, params.data(), nullptr));
  }
};

static CUtensorMap boxes(const void* p, i64 rows, i64 columns, i64 box) {
  CUtensorMap map;
  const cuuint64_t size[] = {cuuint64_t(columns), cuuint64_t(rows), 1}, pitch[] = {cuuint64_t(2 * columns), cuuint64_t(2 * columns * rows)};
  const cuuint32_t shape[] = {64, cuuint32_t(box), 1}, step[] = {1, 1, 1};
  OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(p), size, pitch, shape, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

static unsigned long long word(const void* p) { return reinterpret_cast<unsigned long long>(p); }

// Division is how a product is divided: features of a tile, and blocks that divide its inner dimension.
struct Division {
  i64 tile, blocks;
  i64 tiles(i64 out, bool gated) const { return (out + tile / (gated ? 2 : 1) - 1) / (tile / (gated ? 2 : 1)); }
  // best is the one that the program uses: it keeps most multiprocessors busy.
  static Division best(i64 in, i64 out, bool gated) {
    Division d = {128, 1};
    double most = 0;
    for (i64 c = 1; c <= 4 && c <= (in + 63) / 64; c++) {
      for (const i64 tile : {192, 128}) {
        const i64 blocks = Division{tile, c}.tiles(out, gated) * c;
        const double busy = static_cast<double>(blocks) / ((blocks + 131) / 132 * 132);
        if (busy > most + .03) d = {tile, c}, most = busy;
      }
    }
    return d;
  }
};

struct Few {  // the kernels of linear_sm90
  std::map<std::pair<i64, i64>, Kernel> of;  // by rows and tile
  explicit Few(const std::string& folder) {
    for (i64 n : {16, 32}) {
      for (i64 tile : {128, 192}) of[{n, tile}] = Kernel(folder, "linear_sm90", "linear_sm90_n" + std::to_string(n) + "_t" + std::to_string(tile));
    }
  }
  void run(void* y, const void* x, const void* w, const void* bias, const void* residual, i64 rows, i64 in, i64 out, bool gated, int otype, Division d, bool early) const {
    const Kernel& k = of.at({rows <= 16 ? 16 : 32, d.tile});
    k.run(d.tiles(out, gated) * d.blocks, static_cast<int>(d.blocks), early, {boxes(w, gated ? 2 * out : out, in, k.boxes[0]), boxes(x, rows, in, k.boxes[1])},
          {word(y), word(bias), word(residual), (unsigned long long)rows, (unsigned long long)in, (unsigned long long)out, gated, (unsigned long long)otype});
  }
};

// --- Checks --------------------------------------------------------------------------------------------------------

__global__ void reference(double* y, const bf16* x, const bf16* w, const void* bias, const void* residual, i64 rows, i64 in, i64 out, bool gated, int otype) {
  const auto value = [&](const void* p, i64 i) { return otype ? (double)static_cast<const float*>(p)[i] : (double)__bfloat162float(static_cast<const bf16*>(p)[i]); };
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < rows * out; i += (i64)gridDim.x * blockDim.x) {
    const i64 r = i / out, f = i % out;
    double sum[2] = {};
    for (int h = 0; h <= gated; h++) {
      for (i64 d = 0; d < in; d++) sum[h] += (double)__bfloat162float(x[r * in + d]) * (double)__bfloat162float(w[(f + h * out) * in + d]);
      if (bias) sum[h] += value(bias, f + h * out);
    }
    y[i] = gated ? sum[0] / (1 + exp(-sum[0])) * sum[1] : sum[0] + (residual ? value(residual, i) : 0);
  }
}

static int check(const Few& few) {
  struct Case { i64 in, out; };
  const i64 most = 32, guard = 64;
  int failed = 0, cases = 0;
  double worst[2] = {};
  const std::vector<Case> sizes = {{64, 64}, {8, 1}, {72, 71}, {200, 130}, {1000, 1003}, {18944, 200}, {4096, 4096}, {3584, 4608}, {12288, 4096}};
  for (const Case& c : sizes) {
    bf16* x = values(most * c.in, 1);
    bf16* w = values(2 * c.out * c.in, 2, 1.f / std::sqrt(static_cast<float>(c.in)));
    bf16* half = values(2 * most * c.out, 3);
    bf16* half_bias = values(2 * c.out, 4);
    std::vector<bf16> h(2 * most * c.out);
    std::vector<float> wide(2 * most * c.out);
    OK(cudaMemcpy(h.data(), half, h.size() * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < h.size(); i++) wide[i] = static_cast<float>(h[i]) * 1.001f;
    float* full;
    OK(cudaMalloc(&full, wide.size() * 4));
    OK(cudaMemcpy(full, wide.data(), wide.size() * 4, cudaMemcpyHostToDevice));
    double* want;
    uint8_t* y;
    OK(cudaMalloc(&want, most * c.out * 8));
    OK(cudaMalloc(&y, most * c.out * 4 + 2 * guard));
    for (int form = 0; form < 12; form++) {  // otype, and plain, biased, residual, both, gated, gated and biased
      std::vector<double> hw(most * c.out);
      for (const i64 rows : {32, 31, 17, 16, 15, 7, 1}) {
        if (c.out > 2000 && rows != 32 && rows != 31 && rows != 7) continue;
        const int otype = form % 2, what = form / 2;
        const bool gated = what >= 4;
        const void* bias = what == 1 || what == 3 || what == 5 ? otype ? static_cast<void*>(full) : half_bias : nullptr;
        const void* residual = what == 2 || what == 3 ? otype ? static_cast<void*>(full) : half : nullptr;
        if (rows == most) {
          reference<<<2048, 128>>>(want, x, w, bias, residual, rows, c.in, c.out, gated, otype);
          OK(cudaMemcpy(hw.data(), want, hw.size() * 8, cudaMemcpyDeviceToHost));
        }
        const size_t bytes = rows * c.out * (otype ? 4 : 2);
        for (i64 i = 0; i < 8; i++) {
          const Division d = {i % 2 ? 192 : 128, 1 + i / 2};
          if ((c.in + 63) / 64 < d.blocks) continue;
          std::vector<uint8_t> first;
          for (int again = 0; again < (rows == 31 ? 20 : 2); again++) {
            OK(cudaMemset(y, 0xFF, bytes + 2 * guard));
            if (residual) OK(cudaMemcpy(y + guard, residual, bytes, cudaMemcpyDeviceToDevice));  // in place
            OK(cudaDeviceSynchronize());
            few.run(y + guard, x, w, bias, residual ? y + guard : nullptr, rows, c.in, c.out, gated, otype, d, again % 2);
            OK(cudaStreamSynchronize(stream));
            std::vector<uint8_t> got(bytes + 2 * guard);
            OK(cudaMemcpy(got.data(), y, got.size(), cudaMemcpyDeviceToHost));
            if (again == 0) first = got;
            bool bad = got != first;
            for (i64 i = 0; i < guard; i++) bad |= got[i] != 0xFF || got[guard + bytes + i] != 0xFF;
            double error = 0, norm = 0;
            for (i64 i = 0; i < rows * c.out; i++) {
              double g;
              if (otype) { float v; std::memcpy(&v, &got[guard + 4 * i], 4); g = v; }
              else { unsigned v = got[guard + 2 * i] << 16 | got[guard + 2 * i + 1] << 24; float t; std::memcpy(&t, &v, 4); g = t; }
              error += (g - hw[i]) * (g - hw[i]), norm += hw[i] * hw[i];
            }
            error = std::sqrt(error / norm);
            worst[otype] = std::max(worst[otype], error);
            if (bad || !(error < (otype ? 0 : rows * c.out < 16 ? 4e-3 : 2.5e-3) + 2e-6 + c.in / 16 * 1.2e-7)) {  // sums lose bits: Tensor Cores truncate
              if (failed++ < 20) std::printf("FAIL rows %lld in %lld out %lld form %d tile %lld blocks %lld run %d: error %.3g%s\n", rows, c.in, c.out, what, d.tile, d.blocks, again, error, bad ? ", other bits or bytes outside" : "");
            }
            cases++;
          }
        }
      }
    }
    for (void* p : {(void*)x, (void*)w, (void*)half, (void*)half_bias, (void*)full, (void*)want, (void*)y}) OK(cudaFree(p));
  }
  std::printf("{\"check\": \"linear\", \"runs\": %d, \"failed\": %d, \"worst bf16\": %.3g, \"worst float32\": %.3g}\n", cases, failed, worst[0], worst[1]);
  return failed > 0;
}

// --- Times ---------------------------------------------------------------------------------------------------------

// milliseconds is the median time of the graph of what run queues, after a first run.
static double milliseconds(const std::function<void()>& run, int samples = 7) {
  CUgraph graph;
  CUgraphExec program;
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  run();
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiate(&program, graph, 0));
  cudaEvent_t start, end;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  std::vector<float> times(samples + 1);
  for (float& t : times) {
    OK(cudaEventRecord(start, stream));
    OK(cuGraphLaunch(program, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&t, start, end));
  }
  OK(cuGraphExecDestroy(program));
  OK(cuGraphDestroy(graph));
  std::sort(times.begin() + 1, times.end());
  return times[1 + samples / 2];
}

__global__ void __launch_bounds__(512) read(const uint4* p, size_t n, unsigned* to) {
  unsigned x = 0;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (; i + 7 * step < n; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __ldcs(p + i + j * step);
#pragma unroll
    for (int j = 0; j < 8; j++) x ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (x == 12345) *to = x;
}

struct Shape { const char* name; i64 in, out; bool gated; };
static const Shape shapes[] = {
    {"LLaDA qkv", 4096, 12288, false}, {"LLaDA out", 4096, 4096, false}, {"LLaDA gate, up", 4096, 12288, true}, {"LLaDA down", 12288, 4096, false}, {"LLaDA head", 4096, 126464, false},
    {"Dream qkv", 3584, 4608, false}, {"Dream out", 3584, 3584, false}, {"Dream gate, up", 3584, 18944, true}, {"Dream down", 18944, 3584, false}, {"Dream head", 3584, 152064, false}};

int main(int argc, char** argv) {
  if (argc < 3) { std::fprintf(stderr, "usage: linear FOLDER check, or cublas, time or step ROWS ...\n"); return 2; }
  OK(cudaFree(nullptr));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const std::string folder = argv[1], what = argv[2];
  const Few few(folder);
  if (what == "check") return check(few);

  constexpr i64 D = 4096, F = 12288, V = 126464, most = 512;
  constexpr i64 layer = 3 * D * D + D * D + 3 * D * F, total = 32 * layer + V * D;
  bf16* weights = values(total, 1, 1 / 64.f);
  bf16* x = values(most * 18944, 2);
  bf16* y = values(most * V * 2, 3);  // float32 logits too
  float* norm;
  OK(cudaMalloc(&norm, D * 4));
  const std::vector<float> ones(D, 1.f);
  OK(cudaMemcpy(norm, ones.data(), D * 4, cudaMemcpyHostToDevice));
  constexpr size_t kWorkspace = 32 << 20;
  void* workspace;
  OK(cudaMalloc(&workspace, kWorkspace));
  cublasLtHandle_t lt;
  OK(cublasLtCreate(&lt));
  const auto multiply = [&](const Product& p, size_t a, const bf16* w, const bf16* from, const void* residual, void* to) {
    const float one = 1, beta = residual ? 1.f : 0.f;
    OK(cublasLtMatmul(lt, p.desc, &one, w, p.w, from, p.x, &beta, residual ? residual : to, p.y, to, p.y, &p.algorithms[a], workspace, kWorkspace, stream));
  };
  const double peak = 2. * total / milliseconds([&] { read<<<132 * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(weights), total / 8, reinterpret_cast<unsigned*>(y)); }) / 1e6;
  std::printf("{\"read\": \"all weights\", \"gbs\": %.0f}\n", peak);
  // chain is the time of one product in a graph of products with other weights.
  const auto chain = [&](const Shape& s, const std::function<void(const bf16*)>& run) {
    const i64 size = s.in * s.out * (s.gated ? 2 : 1), count = std::max<i64>(2, std::min<i64>(24, total / 8 / size));
    return milliseconds([&] { for (i64 i = 0; i < count; i++) run(weights + i * size); }, 5) / count;
  };
  const auto share = [&](const Shape& s, double ms) { return 2. * s.in * s.out * (s.gated ? 2 : 1) / ms / 1e6 / peak; };

  for (int arg = 3; arg < argc; arg++) {
    const i64 rows = std::atoll(argv[arg]);
    if (what == "cublas") {
      for (const Shape& s : shapes) {
        const i64 out = s.gated ? 2 * s.out : s.out;
        const Product p(lt, rows, s.in, out, false, nullptr, kWorkspace, 64, s.out > 100000);
        std::vector<double> ms;
        for (size_t a = 0; a < p.algorithms.size(); a++) {
          if (s.out > 100000 && a >= 8) break;
          ms.push_back(chain(s, [&](const bf16* w) { multiply(p, a, w, x, nullptr, y); }));
        }
        const size_t best = std::min_element(ms.begin(), ms.end()) - ms.begin(), of8 = std::min_element(ms.begin(), ms.begin() + std::min<size_t>(8, ms.size())) - ms.begin();
        std::printf("{\"cublas\": \"%s\", \"rows\": %lld, \"algorithms\": %zu, \"first\": [%.4f, %.3f], \"best of 8\": [%.4f, %.3f], \"best\": [%.4f, %.3f, %zu]}\n", s.name, rows, ms.size(), ms[0], share(s, ms[0]), ms[of8], share(s, ms[of8]), ms[best], share(s, ms[best]), best);
        std::fflush(stdout);
      }
    } else if (what == "time") {
      for (const Shape& s : shapes) {
        const Division picked = Division::best(s.in, s.out, s.gated);
        if (rows > 32) break;
        std::printf("{\"linear\": \"%s\", \"rows\": %lld, \"picked\": \"%lld by %lld\"", s.name, rows, picked.tile, picked.blocks);
        for (const bool early : {true, false}) {
          for (i64 i = 0; i < 8; i++) {
            const Division d = {i % 2 ? 192 : 128, 1 + i / 2};
            const double ms = chain(s, [&](const bf16* w) { few.run(y, x, w, nullptr, nullptr, rows, s.in, s.out, s.gated, s.out > 100000, d, early); });
            std::printf(", \"%lld by %lld%s\": [%.4f, %.3f]", d.tile, d.blocks, early ? "" : " apart", ms, share(s, ms));
          }
        }
        std::printf("}\n");
        std::fflush(stdout);
      }
    } else {
      const Kernel rms(folder, "rmsnorm", "rmsnorm_bf16"), swiglu(folder, "swiglu", "swiglu_bf16");
      bf16 *stream_x = values(rows * D, 5), *normed = values(rows * D, 6), *qkv = values(rows * 3 * D, 7), *act = values(rows * F, 8), *both = values(rows * 2 * F, 9);
      const double eps = 1e-5;
      unsigned long long e;
      std::memcpy(&e, &eps, 8);
      const auto norms = [&](bool early) { rms.run(rows, 1, early, {}, {word(stream_x), word(norm), word(normed), D, e, 0}); };
      const auto report = [&](const char* name, double ms) { std::printf("{\"step\": \"%s\", \"rows\": %lld, \"ms\": %.4f, \"of read\": %.3f}\n", name, rows, ms, 2. * total / ms / 1e6 / peak); std::fflush(stdout); };
      for (const bool early : {true, false}) {
        if (rows > 32) break;
        for (const bool normed_too : {true, false}) {
          const double ms = milliseconds([&] {
            const auto linear = [&](void* to, const bf16* from, const bf16* w, const void* residual, i64 in, i64 out, bool gated, int otype = 0) {
              few.run(to, from, w, nullptr, residual, rows, in, out, gated, otype, Division::best(in, out, gated), early);
            };
            const bf16* w = weights;
            for (int l = 0; l < 32; l++) {
              if (normed_too) norms(early);
              linear(qkv, normed, w, nullptr, D, 3 * D, false), w += 3 * D * D;
              linear(stream_x, qkv, w, stream_x, D, D, false), w += D * D;
              if (normed_too) norms(early);
              linear(act, normed, w, nullptr, D, F, true), w += 2 * D * F;
              linear(stream_x, act, w, stream_x, F, D, false), w += D * F;
            }
            if (normed_too) norms(early);
            linear(y, normed, w, nullptr, D, V, false, 1);
          });
          report((std::string("kernel") + (normed_too ? ", with norms" : "") + (early ? "" : ", each after the one before")).c_str(), ms);
        }
      }
      // cuBLASLt by the heuristic's first algorithm, as the program had it, and by the fastest.
      Product q(lt, rows, D, 3 * D, false, nullptr, kWorkspace, 32), o(lt, rows, D, D, false, nullptr, kWorkspace, 32), g(lt, rows, D, 2 * F, false, nullptr, kWorkspace, 32),
          d(lt, rows, F, D, false, nullptr, kWorkspace, 32), h(lt, rows, D, V, false, nullptr, kWorkspace, 8, true);
      for (const bool fastest : {false, true}) {
        const auto pick = [&](const Product& p, const Shape& s) {
          size_t best = 0;
          double least = 1e9;
          for (size_t a = 0; fastest && a < p.algorithms.size(); a++) {
            const double ms = chain(s, [&](const bf16* w) { multiply(p, a, w, x, nullptr, y); });
            if (ms < least) least = ms, best = a;
          }
          return best;
        };
        const size_t aq = pick(q, shapes[0]), ao = pick(o, shapes[1]), ag = pick(g, shapes[2]), ad = pick(d, shapes[3]), ah = pick(h, shapes[4]);
        report(fastest ? "cuBLASLt, fastest, with norms" : "cuBLASLt, first, with norms", milliseconds([&] {
          const bf16* w = weights;
          for (int l = 0; l < 32; l++) {
            norms(false);
            multiply(q, aq, w, normed, nullptr, qkv), w += 3 * D * D;
            multiply(o, ao, w, qkv, stream_x, stream_x), w += D * D;
            norms(false);
            multiply(g, ag, w, normed, nullptr, both), w += 2 * D * F;
            swiglu.run(rows * ((F + 4095) / 4096), 1, false, {}, {word(both), word(act), F, 0});
            multiply(d, ad, w, act, stream_x, stream_x), w += D * F;
          }
          norms(false);
          multiply(h, ah, w, normed, nullptr, y);
        }));
      }
    }
  }
  return 0;
}
