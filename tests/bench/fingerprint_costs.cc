// SPDX-License-Identifier: Apache-2.0
// fingerprint_costs PYTHON CACHE_FILE: what a mount does to learn its facts, in milliseconds on stdout. "-" for the
// cache file remembers nothing. It is its own GPU probe, as the daemon is.
//
// fingerprint_costs learn PYTHON [ROUNDS]: what a mount under --writers learned does at the first request of a process
// that has imported torch, in milliseconds, medians and all values. The page cache is warm, as it is after the import.
//   cold     an installation that this host has never seen: no cache file
//   cached   another worker has seen it: the cache file is there
//   again    another process of an installation that this worker knows
//   known    a further request of a process that has its answer
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"

namespace {

using inductorfs::Milliseconds;
using inductorfs::fingerprint::ExaminerLink;
using inductorfs::fingerprint::Facet;
using inductorfs::fingerprint::JobFacts;
using inductorfs::fingerprint::Writers;
using inductorfs::fingerprint::WritersOptions;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

int probe_costs(const char* python, const std::string& cache) {
  inductorfs::fingerprint::ProbeOptions options;
  options.python = python;
  if (cache != "-") options.cache_file = cache;
  const auto begun = Clock::now();
  const auto facts = inductorfs::fingerprint::probe(options);
  const double taken = since(begun);
  // A probe that learned nothing costs nothing: it must not count.
  for (Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kGpu}) {
    if (facts.get(facet).known) continue;
    std::fprintf(stderr, "%s\n", facts.get(facet).problem.c_str());
    return 1;
  }
  std::printf("%.3f %s\n", taken, facts.get(Facet::kGpu).value == "none" ? "none" : "gpu");
  return 0;
}

/// An interpreter that has imported torch and waits; ends when this goes. Needs external synchronisation.
class Job {
 public:
  explicit Job(const char* python) {
    int to[2];
    int from[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      (void)dup2(to[0], STDIN_FILENO);
      (void)dup2(from[1], STDOUT_FILENO);
      for (const int end : {to[0], to[1], from[0], from[1]}) (void)close(end);
      (void)execl(python, python, "-c", "import sys, torch; print(1, flush=True); sys.stdin.read()", nullptr);
      _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    life_ = to[1];
    out_ = from[0];
    char byte = 0;
    ready_ = read(out_, &byte, 1) == 1;
  }
  ~Job() {
    (void)close(life_);
    (void)close(out_);
    (void)waitpid(pid_, nullptr, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  int life_ = -1;
  int out_ = -1;
  bool ready_ = false;
};

/// The time of one job_of(); ends the program when nothing was learned, because that costs nothing.
double learned(Writers& writers, const Job& job) {
  constexpr Milliseconds kPatience{60'000};
  const auto begun = Clock::now();
  const JobFacts facts = writers.job_of(job.pid(), {true, kPatience});
  const double taken = since(begun);
  if (facts.kind == JobFacts::Kind::kKnown) return taken;
  std::fprintf(stderr, "not learned: %s\n", facts.why.c_str());
  std::exit(1);
}

/// An examiner that ends with this process.
std::shared_ptr<const ExaminerLink> examiner_with(const std::string& memory) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::exit(1);
  if (fork() == 0) {
    (void)close(ends[0]);
    inductorfs::fingerprint::ExaminerOptions options;
    options.cache_file = memory;
    inductorfs::fingerprint::run_examiner(ends[1], options);
    _exit(0);
  }
  (void)close(ends[1]);
  return std::make_shared<const ExaminerLink>(ends[0], [] {});
}

int learn_costs(const char* python, int rounds) {
  const Job one(python);
  const Job other(python);
  if (!one.ready() || !other.ready()) return 1;
  std::string pattern = (std::filesystem::temp_directory_path() / "learn_costs.XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return 1;
  const std::string memory = pattern + "/memory.json";
  WritersOptions options;
  options.examiner = examiner_with(memory);
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round <= rounds; ++round) {
    std::filesystem::remove(memory);
    inductorfs::Counters counters;
    auto writers = open_writers(options, counters);
    const double cold = learned(*writers, one);
    const double again = learned(*writers, other);
    const double known = learned(*writers, one);
    writers = open_writers(options, counters);
    const double cached = learned(*writers, one);
    if (round == 0) continue;  // it may have read the disk
    for (const auto& [name, taken] :
         {std::pair{"1 cold", cold}, {"2 cached", cached}, {"3 again", again}, {"4 known", known}}) {
      times[name].push_back(taken);
    }
  }
  std::filesystem::remove_all(pattern);
  double load = 0;
  (void)getloadavg(&load, 1);
  for (auto& [name, values] : times) {
    std::sort(values.begin(), values.end());
    std::printf("%-8s %9.3f ms   of", name.c_str() + 2, values[values.size() / 2]);
    for (const double value : values) std::printf(" %.3f", value);
    std::printf("\n");
  }
  std::printf("%ld processors, load %.1f\n", sysconf(_SC_NPROCESSORS_ONLN), load);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc < 2 ? "" : argv[1];
  if (argc == 2 && verb == "gpu-probe") return inductorfs::fingerprint::run_gpu_probe();
  if (argc == 2 && verb == "package-facts") return inductorfs::fingerprint::run_package_reader();
  if (verb == "learn" && (argc == 3 || argc == 4)) return learn_costs(argv[2], argc == 4 ? std::atoi(argv[3]) : 5);
  if (argc != 3) return 2;
  return probe_costs(argv[1], argv[2]);
}
