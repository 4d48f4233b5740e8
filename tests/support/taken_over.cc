// SPDX-License-Identifier: Apache-2.0
// Runs system calls inside another process, as code of whoever has taken that process over would. Root.
//   taken_over THREAD     calls from standard input, one a line: NAME ARGUMENT...   NAME may be a number
// An argument is
//   12 0x1f 0o644 -1      a number
//   "a\x00b"              the address of a string in the process, which ends with a NUL
//   hex:0a0b  @N          the address of such bytes; of N zero bytes
//   words:1,$0            the address of such words of 64 bits
//   $K                    what the K-th call of this run, from 0, has answered
// For each call a line tells what the kernel answered: a result, or an errno below 0. After "> N" at the end of a call
// it has N bytes of the last address too. Exit code 3: the process became another program, and has been killed.
// What the thread did before goes on afterwards as if nothing had happened. After 20 s that is so in any case.
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace inductorfs::testing {
namespace {

constexpr time_t kDeadline = 20;   // seconds
constexpr time_t kLeave = 5;       // and as many more to let the thread go
constexpr int kBecameAnother = 3;  // exit code
constexpr size_t kRoom = 65536;    // bytes for what the arguments of one call point to
constexpr size_t kMost = 6;        // arguments
constexpr int kSyscallStop = SIGTRAP | 0x80;
#if defined __x86_64__
using Registers = user_regs_struct;
constexpr std::string_view kInstruction{"\x0f\x05", 2};  // syscall
constexpr size_t kStep = 1;
uint64_t place_of(const Registers& registers) { return registers.rip; }
int64_t result_of(const Registers& registers) { return static_cast<int64_t>(registers.rax); }
void set_call(Registers& registers, uint64_t place, uint64_t number, const std::array<uint64_t, kMost>& arguments) {
  registers.rip = place;
  registers.rax = number;
  registers.orig_rax = ~0ULL;  // the kernel restarts no call that was interrupted
  registers.rdi = arguments[0];
  registers.rsi = arguments[1];
  registers.rdx = arguments[2];
  registers.r10 = arguments[3];
  registers.r8 = arguments[4];
  registers.r9 = arguments[5];
}
#elif defined __aarch64__
using Registers = user_pt_regs;
constexpr std::string_view kInstruction{"\x01\x00\x00\xd4", 4};  // svc #0
constexpr size_t kStep = 4;
uint64_t place_of(const Registers& registers) { return registers.pc; }
int64_t result_of(const Registers& registers) { return static_cast<int64_t>(registers.regs[0]); }
void set_call(Registers& registers, uint64_t place, uint64_t number, const std::array<uint64_t, kMost>& arguments) {
  registers.pc = place;
  registers.regs[8] = number;
  for (size_t index = 0; index < kMost; ++index) registers.regs[index] = arguments[index];
}
#endif

// Those of both processors; any other is given by its number.
// clang-format off
#define CALL(name) {#name, SYS_##name}
const std::map<std::string_view, long> kCalls{
    CALL(accept4), CALL(acct), CALL(add_key), CALL(bind), CALL(bpf), CALL(capset), CALL(chdir), CALL(chroot),
    CALL(clone), CALL(clone3), CALL(close), CALL(connect), CALL(delete_module), CALL(dup), CALL(execve),
    CALL(execveat), CALL(faccessat), CALL(fanotify_init), CALL(fchdir), CALL(fchmod), CALL(fchmodat), CALL(fchown),
    CALL(fchownat), CALL(fcntl), CALL(finit_module), CALL(fsopen), CALL(fspick), CALL(getcwd), CALL(getdents64),
    CALL(getpid), CALL(getuid), CALL(init_module), CALL(io_uring_setup), CALL(ioctl), CALL(ioprio_set), CALL(kcmp),
    CALL(kexec_load), CALL(keyctl), CALL(kill), CALL(linkat), CALL(listen), CALL(memfd_create), CALL(migrate_pages),
    CALL(mkdirat), CALL(mknodat), CALL(mmap), CALL(mount), CALL(mount_setattr), CALL(move_mount), CALL(move_pages),
    CALL(mprotect), CALL(msgget), CALL(munmap), CALL(name_to_handle_at), CALL(nanosleep), CALL(open_by_handle_at),
    CALL(open_tree), CALL(openat), CALL(openat2), CALL(perf_event_open), CALL(personality), CALL(pidfd_getfd),
    CALL(pidfd_open), CALL(pidfd_send_signal), CALL(pivot_root), CALL(pkey_mprotect), CALL(prctl), CALL(prlimit64),
    CALL(process_madvise), CALL(process_vm_readv), CALL(process_vm_writev), CALL(ptrace), CALL(quotactl), CALL(recvmsg), CALL(read),
    CALL(readlinkat), CALL(reboot), CALL(remap_file_pages), CALL(renameat2), CALL(request_key), CALL(rt_sigqueueinfo),
    CALL(sched_setaffinity), CALL(sched_setattr), CALL(sched_setscheduler), CALL(semget), CALL(sendto),
    CALL(setdomainname), CALL(setfsgid), CALL(setfsuid), CALL(setgid), CALL(setgroups), CALL(sethostname), CALL(setns),
    CALL(setpriority), CALL(setregid), CALL(setresgid), CALL(setresuid), CALL(setreuid), CALL(settimeofday),
    CALL(setuid), CALL(shmat), CALL(shmctl), CALL(shmget), CALL(socket), CALL(socketpair), CALL(swapoff), CALL(swapon),
    CALL(symlinkat), CALL(syslog), CALL(tgkill), CALL(tkill), CALL(umount2), CALL(unlinkat), CALL(unshare),
    CALL(userfaultfd), CALL(vhangup), CALL(write), {"memfd_secret", 447}};
#undef CALL
// clang-format on

/// From then on each second a signal, which ends a wait.
void set_deadline(time_t seconds) {
  const itimerval timer{.it_interval = {.tv_sec = 1, .tv_usec = 0}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

[[noreturn]] void fail(const std::string& what, int error = 0) {
  throw std::runtime_error(error != 0 ? what + ": " + std::strerror(error) : what);
}

/// A thread that stands still, and goes on where it was when this ends.
class Taken {
 public:
  explicit Taken(pid_t thread);
  ~Taken() { let_go(); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  int64_t call(uint64_t number, const std::array<uint64_t, kMost>& arguments);
  void write(uint64_t place, std::string_view bytes) const;
  [[nodiscard]] std::string read(uint64_t place, size_t size) const;
  [[nodiscard]] uint64_t room() const { return room_; }
  [[nodiscard]] bool became_another() const { return became_another_; }

 private:
  void control(int request, void* data, uint64_t address = 0) const;
  void resume(int request);
  [[nodiscard]] Registers registers() const;
  void set(Registers registers) const;
  int wait();
  void run_to_syscall_stop();
  void find_instruction();
  void stop();
  void let_go();

  pid_t thread_;
  int memory_ = -1;
  bool is_there_ = false;  ///< seized, and not ended
  bool stands_ = false;
  bool became_another_ = false;
  Registers before_{};
  uint64_t mask_before_ = 0;
  uint64_t instruction_ = 0;
  uint64_t room_ = 0;
};

void Taken::control(int request, void* data, uint64_t address) const {
  // NOLINTNEXTLINE(*-int-to-ptr)
  if (::ptrace(static_cast<__ptrace_request>(request), thread_, reinterpret_cast<void*>(address), data) != 0)
    fail("ptrace " + std::to_string(request), errno);
}

void Taken::resume(int request) {
  control(request, nullptr);
  stands_ = false;
}

Registers Taken::registers() const {
  Registers found{};
  iovec vector{&found, sizeof found};
  control(PTRACE_GETREGSET, &vector, NT_PRSTATUS);
  return found;
}

void Taken::set(Registers registers) const {
  iovec vector{&registers, sizeof registers};
  control(PTRACE_SETREGSET, &vector, NT_PRSTATUS);
}

/// The status of its next stop.
int Taken::wait() {
  int status = 0;
  if (::waitpid(thread_, &status, __WALL) < 0) {
    if (errno == EINTR) fail("the deadline has passed");
    fail("waitpid", errno);
  }
  stands_ = WIFSTOPPED(status);
  if (stands_) return status;
  is_there_ = false;
  fail(WIFSIGNALED(status) ? "the process was ended by signal " + std::to_string(WTERMSIG(status))
                           : "the process ended with code " + std::to_string(WEXITSTATUS(status)));
}

/// What the thread makes meanwhile does not live.
void Taken::run_to_syscall_stop() {
  for (;;) {
    resume(PTRACE_SYSCALL);
    const int status = wait();
    const int event = status >> 16;
    if (WSTOPSIG(status) == kSyscallStop) return;
    if (event == PTRACE_EVENT_EXEC) {
      became_another_ = true;
    } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
      unsigned long child = 0;
      control(PTRACE_GETEVENTMSG, &child);
      ::kill(static_cast<pid_t>(child), SIGKILL);
      while (::waitpid(static_cast<pid_t>(child), nullptr, __WALL) > 0) continue;
    } else if (event == 0 && WSTOPSIG(status) != SIGSTOP) {  // all others are held back
      fail("signal " + std::to_string(WSTOPSIG(status)) + " within a call");
    }
  }
}

/// Stands where the kernel looks at what is to be restarted, so nowhere between two calls.
void Taken::stop() {
  for (;;) {
    control(PTRACE_INTERRUPT, nullptr);  // any other stop takes this back
    if (stands_) resume(PTRACE_CONT);
    if (wait() >> 16 == PTRACE_EVENT_STOP) return;
  }
}

void Taken::find_instruction() {
  std::ifstream maps("/proc/" + std::to_string(thread_) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::array<char, 5> rights{};
    // NOLINTNEXTLINE(*-unchecked-*)
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights.data()) != 3 || rights[2] != 'x') continue;
    std::string bytes(end - begin, '\0');
    const ssize_t got = ::pread(memory_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    for (size_t at = bytes.find(kInstruction); at != std::string::npos; at = bytes.find(kInstruction, at + 1)) {
      // At its own one arm64 would take the call for the interrupted one.
      if (at % kStep != 0 || begin + at == place_of(before_)) continue;
      instruction_ = begin + at;
      return;
    }
  }
  fail("no instruction that calls the kernel");
}

Taken::Taken(pid_t thread) : thread_(thread) {
  const auto options =
      PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
  control(PTRACE_SEIZE, reinterpret_cast<void*>(static_cast<uintptr_t>(options)));  // NOLINT(*-int-to-ptr)
  is_there_ = true;
  stop();
  before_ = registers();
  control(PTRACE_GETSIGMASK, &mask_before_, sizeof mask_before_);
  try {
    uint64_t all = ~0ULL;
    control(PTRACE_SETSIGMASK, &all, sizeof all);
    memory_ = ::open(("/proc/" + std::to_string(thread_) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
    if (memory_ < 0) fail("its memory", errno);
    find_instruction();
    const int64_t made = call(SYS_mmap, {0, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, ~0ULL, 0});
    if (made < 0) fail("mmap", static_cast<int>(-made));
    room_ = static_cast<uint64_t>(made);
  } catch (const std::exception&) {
    let_go();
    throw;
  }
}

int64_t Taken::call(uint64_t number, const std::array<uint64_t, kMost>& arguments) {
  Registers wanted = before_;
  set_call(wanted, instruction_, number, arguments);
  set(wanted);
  run_to_syscall_stop();
  run_to_syscall_stop();
  return result_of(registers());
}

void Taken::let_go() {
  if (!is_there_) return;
  set_deadline(kLeave);
  try {
    if (became_another_) {
      ::kill(thread_, SIGKILL);
    } else {
      if (room_ != 0 && stands_) (void)call(SYS_munmap, {room_, kRoom, 0, 0, 0, 0});
      stop();
      set(before_);
      control(PTRACE_SETSIGMASK, &mask_before_, sizeof mask_before_);
      resume(PTRACE_DETACH);
    }
  } catch (const std::exception& error) {
    std::cerr << "taken_over: letting it go: " << error.what() << "\n";
  }
  is_there_ = false;
  if (memory_ >= 0) ::close(memory_);
}

void Taken::write(uint64_t place, std::string_view bytes) const {
  if (::pwrite(memory_, bytes.data(), bytes.size(), static_cast<off_t>(place)) != static_cast<ssize_t>(bytes.size()))
    fail("writing to its memory", errno);
}

std::string Taken::read(uint64_t place, size_t size) const {
  std::string bytes(size, '\0');
  if (::pread(memory_, bytes.data(), size, static_cast<off_t>(place)) != static_cast<ssize_t>(size))
    fail("reading its memory", errno);
  return bytes;
}

uint64_t number_of(std::string_view text, const std::vector<int64_t>& results) {
  if (text.starts_with('$')) return static_cast<uint64_t>(results.at(number_of(text.substr(1), results)));
  if (text.starts_with('-')) return ~number_of(text.substr(1), results) + 1;
  const int base = text.starts_with("0x") ? 16 : text.starts_with("0o") ? 8 : 10;
  if (base != 10) text.remove_prefix(2);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size())
    fail("neither a call nor a number: " + std::string(text));
  return number;
}

char byte_of(std::string_view digits) {
  return static_cast<char>(number_of("0x" + std::string(digits.substr(0, 2)), {}));
}

/// Its words; one in quotation marks keeps the first of them, and its escapes are solved.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == ' ') {
      ++at;
    } else if (line[at] != '"') {
      const size_t end = std::min(line.find(' ', at), line.size());
      words.emplace_back(line.substr(at, end - at));
      at = end;
    } else {
      std::string word{line[at++]};
      for (; at < line.size() && line[at] != '"'; ++at) {
        const bool escapes = line.substr(at).starts_with("\\x");
        word += escapes ? byte_of(line.substr(at + 2)) : line[at];
        if (escapes) at += 3;
      }
      words.push_back(std::move(word));
      ++at;
    }
  }
  return words;
}

/// What an argument that is an address points to. False: it is none.
bool is_pointer(std::string_view word, const std::vector<int64_t>& results, std::string& bytes) {
  bytes.clear();
  if (word.starts_with('"')) {
    bytes = std::string(word.substr(1)) + '\0';
  } else if (word.starts_with('@')) {
    bytes.resize(number_of(word.substr(1), results));
  } else if (word.starts_with("hex:")) {
    for (word.remove_prefix(4); word.size() >= 2; word.remove_prefix(2)) bytes += byte_of(word);
  } else if (word.starts_with("words:")) {
    std::istringstream parts{std::string(word.substr(6))};
    for (std::string part; std::getline(parts, part, ',');) {
      const uint64_t value = number_of(part, results);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  } else {
    return false;
  }
  return true;
}

/// One line: makes the call, and prints what it answered.
void follow(Taken& taken, const std::string& line, std::vector<int64_t>& results) {
  std::vector<std::string> words = words_of(line);
  size_t shown = 0;
  if (words.size() > 2 && words[words.size() - 2] == ">") {
    shown = number_of(words.back(), results);
    words.resize(words.size() - 2);
  }
  if (words.empty() || words.size() > kMost + 1) fail("no call: " + line);
  const auto known = kCalls.find(words[0]);
  const uint64_t number = known != kCalls.end() ? static_cast<uint64_t>(known->second) : number_of(words[0], results);
  std::array<uint64_t, kMost> arguments{};
  uint64_t next = taken.room();
  uint64_t last = next;
  std::string bytes;
  for (size_t index = 1; index < words.size(); ++index) {
    uint64_t& argument = arguments[index - 1];
    if (!is_pointer(words[index], results, bytes)) {
      argument = number_of(words[index], results);
      continue;
    }
    if (bytes.size() + 16 > taken.room() + kRoom - next) fail("too long: " + line);
    argument = last = next;
    taken.write(next, bytes);
    next += (bytes.size() + 15) / 16 * 16;
  }
  results.push_back(taken.call(number, arguments));
  std::cout << results.back();
  if (shown != 0 && !taken.became_another()) {
    std::cout << ' ' << std::hex;
    for (const char byte : taken.read(last, shown)) std::cout << (byte >> 4 & 15) << (byte & 15);
    std::cout << std::dec;
  }
  std::cout << std::endl;
}

int run(pid_t thread) {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGALRM, &action, nullptr);
  set_deadline(kDeadline);
  Taken taken(thread);
  std::vector<int64_t> results;
  for (std::string line; !taken.became_another() && std::getline(std::cin, line);)
    if (!line.empty()) follow(taken, line, results);
  return taken.became_another() ? kBecameAnother : 0;
}

}  // namespace
}  // namespace inductorfs::testing

int main(int count, char** words) {
  try {
    if (count == 2) return inductorfs::testing::run(std::stoi(words[1]));
    std::cerr << "usage: taken_over THREAD <CALLS\n";
  } catch (const std::exception& error) {
    std::cerr << "taken_over: " << error.what() << "\n";
  }
  return 2;
}
