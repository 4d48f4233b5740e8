// SPDX-License-Identifier: Apache-2.0
#include "writers_fixture.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fingerprint/common/key_memory.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/jobs/sight.h"
#include "fingerprint/processes/look_messages.h"
#include "inductorfs/base/guarded.h"
#include "support/patience.h"

namespace inductorfs::fingerprint::testing {

Program::Program(const Environment& environment) {
  int to[2];
  int from[2];
  EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::vector<std::string> texts;
  for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
  std::vector<char*> variables;
  for (std::string& text : texts) variables.push_back(text.data());
  variables.push_back(nullptr);
  std::string name = "writers_program";
  char* arguments[] = {name.data(), nullptr};
  EXPECT_EQ(posix_spawn(&pid_, WRITERS_PROGRAM_PATH, &actions, nullptr, arguments, variables.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  (void)close(to[0]);
  (void)close(from[1]);
  in_ = fdopen(to[1], "w");
  out_ = fdopen(from[0], "r");
  char line[64] = {};
  EXPECT_STREQ(fgets(line, sizeof line, out_), "ready\n");
  // What is read before the kernel's clock of processes ticks may have been read before the process began.
  const long ticks = sysconf(_SC_CLK_TCK);
  const auto ticks_now = [ticks] {
    timespec now{};
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * ticks + now.tv_nsec * ticks / 1'000'000'000;
  };
  for (const long begun = ticks_now(); ticks_now() <= begun;) (void)sched_yield();
}

Program::~Program() { end(); }

void Program::end() {
  if (pid_ < 0) return;
  (void)fclose(in_);
  (void)fclose(out_);
  EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  pid_ = -1;
}

std::string Program::ask(const std::string& command) {
  EXPECT_GE(fprintf(in_, "%s\n", command.c_str()), 0);
  EXPECT_EQ(fflush(in_), 0);
  char line[256] = {};
  if (fgets(line, sizeof line, out_) == nullptr) return "ended";
  std::string text = line;
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void Program::tell(const std::string& command, const std::string& expected) { EXPECT_EQ(ask(command), expected); }

pid_t Program::start(const std::string& command) { return static_cast<pid_t>(std::stol("0" + ask(command))); }

Site::Site(const std::string& folder) : folder_(folder) {
  write_tree(torch(), torch_tree());
  write_tree(triton(), triton_tree());
  write_text(libtorch(), "TORCH");
  write_text(torch() + "/_C." + kSoabi + ".so", "EXTENSION");
  write_text(folder + "/torch-9.9.9.dist-info/RECORD",
             "torch/a.py,sha256=WLsRnDVROkUdJNwg7w6QMeyFs1v8kZ0mPn5dmGiQnLU,2\n");
}

void Site::install_vllm(const std::string& digest) const {
  write_tree(folder_ + "/vllm",
             {{"__init__.py", ""}, {"_version.py", "__version__ = '0.32.0'\n"}, {"_C.abi3.so", "C"}});
  write_text(folder_ + "/vllm-0.32.0.dist-info/RECORD", "vllm/_C.abi3.so,sha256=" + digest + ",1\n");
}

void Site::remove_record() const { std::filesystem::remove_all(folder_ + "/torch-9.9.9.dist-info"); }

void Site::load_torch(Program& program) const {
  program.tell("map " + torch() + "/_C." + kSoabi + ".so");
  program.tell("map " + libtorch());
}

/// Whether this thread, and those that it starts, may look at programs of root's: root's worker may not. What it starts
/// by execve(2) gets all rights.
static void set_right_to_look(bool has_it) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  EXPECT_EQ(::syscall(SYS_capget, &header, data.data()), 0);
  const uint32_t right = data[0].permitted & (1U << CAP_SYS_PTRACE);
  data[0].effective = has_it ? data[0].effective | right : data[0].effective & ~right;
  EXPECT_EQ(::syscall(SYS_capset, &header, data.data()), 0);
}

class RightsOfTests : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { set_right_to_look(true); }
};

class Listening : public ::testing::Environment {
 public:
  void SetUp() override { ::testing::UnitTest::GetInstance()->listeners().Append(new RightsOfTests); }
};
const ::testing::Environment* const listening = ::testing::AddGlobalTestEnvironment(new Listening);

/// The socket to an examiner with these options, which ends with this process.
int examiner_for(const OptionsOfTests& options) {
  static std::map<std::vector<std::string>, int> examiners;
  std::vector<std::string> words{EXAMINER_PATH, "3", options.proc, options.package_reader,
                                 std::to_string(options.package_deadline.count())};
  const auto known = examiners.find(words);
  if (known != examiners.end()) return known->second;
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::dup2(ends[1], 3) == 3) (void)::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (pid < 0) std::abort();
  (void)::close(ends[1]);
  return examiners[words] = ends[0];
}

void tell(Process& process) {
  const std::string secret(kSealSecretSize, 's');  // examiner_main.cc
  const auto stat = ProcReader("/proc").stat_of(process.pid);
  const std::string key = seal_key(secret, process.pid, process.identity.start, stat ? stat->owner : ::getuid());
  const std::string text = to_text(process);
  process.told = {text, seal_of(key, kSealedProcess, text)};
}

Fact read_package(const PackageRequest& request) {
  PackageRequest named = request;
  named.path = path_for(request.facet, request.process);
  return fact_from(request.facet, have_package_read(named)).value_or(Fact());
}

std::unique_ptr<Looker> far_looker(int socket, std::function<void()> stands_still, Milliseconds patience) {
  return make_far_looker(std::make_shared<const ExaminerLink>(socket, std::move(stands_still)), patience);
}

std::unique_ptr<Writers> open_patient_writers(const OptionsOfTests& options, Counters& counters) {
  constexpr Milliseconds kWait = std::chrono::seconds(20) * inductorfs::testing::kSlowness;
  WritersOptions with = options;
  with.examiner = std::make_shared<const ExaminerLink>(examiner_for(options), [] {});
  set_right_to_look(false);  // until the next test
  return open_writers_that_wait(with, counters, kWait);
}

std::unique_ptr<WritersOfMount> open_patient_writers(const OptionsOfTests& options, const Fingerprint& facts,
                                                     Counters& counters) {
  return std::make_unique<WritersOfMount>(open_patient_writers(options, counters), facts);
}

Judgement judge_to_the_end(Writers& writers, const Writer* writer, std::span<const Facet> facets,
                           const ExpectedFacts& expected) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20) * inductorfs::testing::kSlowness);
  Guarded<bool> never{false};
  while (true) {
    Judgement judgement = writers.judge(writer, facets, expected);
    if (judgement.match != Match::kLater) return judgement;
    if (deadline.passed()) return {Match::kLater, "not judged: " + judgement.why};
    (void)never.wait_until(
        std::chrono::steady_clock::now() + Milliseconds{5}, [](bool now) { return now; }, [](bool now) { return now; });
  }
}

Fingerprint facts_of(const Site& site, const Environment& declared) {
  PythonFacts python;
  python.implementation = "cpython";
  python.version = "3.11";
  python.soabi = kSoabi;
  python.extensions = kSuffixes311;
  python.torch = site.torch();
  python.triton = site.triton();
  python.executable = "python";
  KeyMemory memory("");
  Fingerprint facts;
  facts.set(Facet::kTorch, torch_fact(InRoot::host(), python, memory));
  facts.set(Facet::kTriton, triton_fact(InRoot::host(), python, memory));
  facts.set(Facet::kPython, python_fact(python));
  facts.set(Facet::kEngine, engine_fact(InRoot::host(), {std::filesystem::path(site.torch()).parent_path()}, memory));
  facts.set(Facet::kLibc, libc_fact());
  facts.set(Facet::kEnvironment, known_fact(environment_text(declared), "declared"));
  for (const Facet facet :
       {Facet::kGpu, Facet::kGpuArch, Facet::kCuda, Facet::kCpu, Facet::kCpuIsa, Facet::kCompiler}) {
    facts.set(facet, known_fact("none", "test"));
  }
  return facts;
}

OtherUser::OtherUser(uid_t user, gid_t group, const std::function<bool()>& prepare) {
  int ready[2];
  if (::pipe(ready) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    const bool done = ::setgid(group) == 0 && ::setuid(user) == 0 && prepare();
    const char byte = done ? 'y' : 'n';
    (void)!::write(ready[1], &byte, 1);
    (void)::pause();
    ::_exit(0);
  }
  char byte = 'n';
  (void)::close(ready[1]);
  ready_ = ::read(ready[0], &byte, 1) == 1 && byte == 'y';
  (void)::close(ready[0]);
}

OtherUser::~OtherUser() {
  if (pid_ <= 0) return;
  (void)::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

}  // namespace inductorfs::fingerprint::testing
