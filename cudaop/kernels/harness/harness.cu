// Checks and times the kernels on a GPU, without Go: it loads a built module and launches its kernels as README.md says.
//
//   harness check denseattn|window|columnsparse|scorecollect MODULE KERNEL D GROUP   against float64, on all shapes
//   harness check grouptopk MODULE KERNEL                                            against a sort on the host
//   harness time denseattn|window|columnsparse|scorecollect|grouptopk MODULE KERNEL D GROUP [LABEL]
//
// Shapes are those of the table of attention cases (cases.h). Every check of attention runs with the output in BHND and in
// BNHD layout.
//
// LONG=1 times 100 ms of launches after 60 ms of them, when power has lowered the clock.
// SMALL=1 runs a few tiny shapes, for compute-sanitizer. To end a kernel that hangs use timeout(1).
// check exits with 1 if anything is wrong.
#include "grouptopk.cuh"
#include "timing.cuh"

int main(int argc, char** argv) {
  if (argc < 5) { std::printf("usage: see harness.cu\n"); return 2; }
  const std::string verb = argv[1], kind = argv[2];
  exact = kind != "grouptopk" && std::string(argv[4]).find("_f32") != std::string::npos;
  const char* kernel_name = argv[4];
  const Kernel kernel(argv[3], kernel_name);
  const int d = argc > 5 ? std::atoi(argv[5]) : 128, group = argc > 6 ? std::atoi(argv[6]) : 128;
  const char* label = argc > 7 ? argv[7] : "";
  const bool hopper = std::string(kernel_name).find("sm90") != std::string::npos;
  const Attention run{kernel, kind, !hopper, hopper && kind == "denseattn"};
  if (verb == "check") {
    if (kind == "denseattn") check_denseattn(run, d);
    if (kind == "window") check_window(run, d);
    if (kind == "columnsparse") check_columnsparse(run, d, group);
    if (kind == "scorecollect") check_scorecollect(kernel, d, group);
    if (kind == "grouptopk") std::string(kernel_name).find("f32") != std::string::npos ? check_grouptopk<float>(kernel) : check_grouptopk<uint16_t>(kernel);
    std::printf("%s %s group %d: %d checks, %d failures; worst error: output %.2e, lse %.1e, score %.2e\n", failures ? "FAIL" : "ok", kernel_name, group, checks, failures, worst_out, worst_lse, worst_score);
    return failures > 0;
  }
  time_all(kernel, run, kind, kernel_name, label, d, group);
}
