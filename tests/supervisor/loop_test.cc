// SPDX-License-Identifier: Apache-2.0
#include "loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/request_slots.h"
#include "support/emulator.h"

// ---- every allocation of this process, whoever makes it

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

#ifdef INDUCTORFS_SANITIZED
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*made)(const volatile void*, size_t),
                                                         void (*freed)(const volatile void*));
namespace {
void count_allocations() {
  (void)__sanitizer_install_malloc_and_free_hooks([](const volatile void*, size_t) { ++allocations; },
                                                  [](const volatile void*) {});
}
}  // namespace
#else
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) noexcept {
  ++allocations;
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
}
namespace {
void count_allocations() {}
}  // namespace
#endif

/// The whole supervisor with workers that are this very program, and a socket in the place of /dev/fuse.
namespace inductorfs::supervisor {
namespace {

constexpr Milliseconds kPatience{30000};

/// What a test and its processes know together; behind kSettingsFd, which a supervisor only hands on.
struct Shared {
  std::atomic<uint32_t> starts{0};
  std::atomic<uint64_t> allocations{UINT64_MAX};
  std::atomic<bool> keeps_examiner{false};  ///< the test is about that, and its worker serves
  std::atomic<uint32_t> examiners{0};
  std::atomic<uint32_t> strangers{0};  ///< descriptors of the mount that an examiner or a mounter should not have
  std::atomic<uint32_t> mounters{0};
  std::atomic<uint32_t> leaves{0};
  std::array<std::atomic<pid_t>, 3> stopped{};  ///< the child of each examiner, which stands still
};

Shared& map_shared(int fd) {
  void* const start = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) std::abort();
  return *static_cast<Shared*>(start);
}

/// Serves until there was a third examiner: the first one has ended by itself, the second one is said to be silent.
int be_worker_with_examiner(Shared& shared) {
  Result<takeover::Region> region = takeover::Region::attach(Fd(::dup(kRegionFd)));
  if (!region) return 2;
  region->page().worker.store(::getpid());
  region->page().serving.store(now() * 1'000'000);
  while (shared.examiners < 2) (void)::poll(nullptr, 0, 5);
  while (shared.examiners < 3) {  // one that has hardly begun is left alone
    if (!send_word(kLinkFd, Word::kExaminerSilent)) return 3;
    (void)::poll(nullptr, 0, 50);
  }
  if (!send_word(kLinkFd, Word::kLeft)) return 4;
  return 0;
}

/// A child that stands still before it has done anything, as one whose processor has been taken away.
pid_t start_stopped_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) ? child : -1;
}

/// The first one ends by itself, the others with their worker.
int be_examiner(const char* memory) {
  Shared& shared = map_shared(::open(memory, O_RDWR | O_CLOEXEC));
  for (int fd = kRegionFd; fd < kFirstFreeFd; ++fd) {
    const bool is_own = fd == kExaminerFd || fd == kRegionFd;  // the first free one is what was just opened
    if (!is_own && ::fcntl(fd, F_GETFD) >= 0) ++shared.strangers;
  }
  const uint32_t before = shared.examiners.load();  // one at a time
  if (before < shared.stopped.size()) shared.stopped.at(before) = start_stopped_child();
  const bool is_first = shared.examiners.fetch_add(1) == 0;
  if (is_first && shared.keeps_examiner) return 1;
  pollfd item{kExaminerFd, POLLIN, 0};
  char byte = 0;
  do {
    (void)::poll(&item, 1, -1);
  } while (::read(kExaminerFd, &byte, 1) > 0);
  return 0;
}

/// Ends with its worker, or takes the mount down.
int be_mounter(const char* memory, bool leaves) {
  Shared& shared = map_shared(::open(memory, O_RDWR | O_CLOEXEC));
  for (int fd = kRegionFd; fd < kFirstFreeFd; ++fd) {
    const bool is_own = fd == kMounterTaskFd || fd == kMounterNotesFd || (fd == kMounterFd && !leaves);
    const bool is_fresh = fd == kRegionFd;  // the first free one is what was just opened
    if (!is_own && !is_fresh && ::fcntl(fd, F_GETFD) >= 0) ++shared.strangers;
  }
  ++(leaves ? shared.leaves : shared.mounters);
  if (leaves) (void)!::write(STDERR_FILENO, kDone, std::strlen(kDone));
  pollfd item{kMounterFd, POLLIN, 0};
  char byte = 0;
  do {
    (void)::poll(&item, 1, leaves ? 0 : -1);
  } while (!leaves && ::read(kMounterFd, &byte, 1) > 0);
  return 0;
}

/// The first one serves and is killed, no other one can start.
int be_worker() {
  Shared& shared = map_shared(kSettingsFd);
  if (shared.keeps_examiner) return be_worker_with_examiner(shared);
  if (shared.starts.fetch_add(1) > 0) return 1;
  Result<takeover::Region> region = takeover::Region::attach(Fd(::dup(kRegionFd)));
  if (!region) return 2;
  takeover::Page& page = region->page();
  page.worker.store(::getpid());
  page.serving.store(now() * 1'000'000);
  // An upgrade to nothing is refused: when the answer is there, the device has been taken.
  if (!send_word(kLinkFd, Word::kDevice, kNotesFd) || !send_word(kLinkFd, Word::kUpgrade)) return 3;
  Word word{};
  Fd descriptor;
  pollfd item{kLinkFd, POLLIN, 0};
  while (receive_word(kLinkFd, word, {&descriptor, 1}) == Receipt::kNothing) (void)::poll(&item, 1, -1);
  return ::raise(SIGKILL);
}

class WholeSupervisor : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<takeover::Region> region = takeover::Region::create(2);
    ASSERT_TRUE(region) << region.error().what();
    region_.emplace(std::move(*region));
    shared_memory_.reset(::memfd_create("shared", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(shared_memory_.get(), sizeof(Shared)), 0);
    shared_ = &map_shared(shared_memory_.get());
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    kernel_.reset(ends[0]);
    device_.reset(ends[1]);
  }
  void TearDown() override {
    if (pid_ > 0) (void)::kill(pid_, SIGKILL);
    if (pid_ > 0) (void)::waitpid(pid_, nullptr, 0);
  }

  void start(const Limits& limits) {
    Task task;
    task.mountpoint = "/nowhere/at/all";
    task.log = log_.c_str();
    task.limits = limits;
    task.root = {1000, 1000, 0755};
    const std::string memory = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(shared_memory_.get());
    task.examiner[2] = task.mountpoint;
    task.examiner[3] = memory.c_str();
    task.mounter[2] = memory.c_str();
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) supervise(task);
    device_.reset();
  }

  /// The next answer that the "kernel" gets: the request it is for, and the error.
  std::pair<uint64_t, int> answer() {
    pollfd item{kernel_.get(), POLLIN, 0};
    if (::poll(&item, 1, static_cast<int>(kPatience.count())) != 1) return {0, 0};
    std::array<char, 4096> bytes{};
    fuse_out_header header{};
    if (::read(kernel_.get(), bytes.data(), bytes.size()) < static_cast<ssize_t>(sizeof header)) return {0, 0};
    std::memcpy(&header, bytes.data(), sizeof header);
    return {header.unique, header.error};
  }

  static fuse_in_header request(uint32_t opcode, uint64_t unique) {
    fuse_in_header header{};
    header.len = sizeof header;
    header.opcode = opcode;
    header.unique = unique;
    header.nodeid = 77;
    return header;
  }
  static void put(takeover::Slot& slot, const fuse_in_header& header) {
    std::memcpy(slot.request(), &header, sizeof header);
  }
  /// What a child of ours, or of one that has ended, ended with; none within the patience: -1, and it is killed.
  static int ending_of(pid_t pid) {
    const Deadline limit = Deadline::after(kPatience);
    int status = -1;
    while (::waitpid(pid, &status, WNOHANG) != pid) {
      if (limit.passed() && ::kill(pid, SIGKILL) == 0) return -1;
      (void)::poll(nullptr, 0, 5);
    }
    return status;
  }
  int end() {
    int status = 0;
    (void)::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

  std::optional<takeover::Region> region_;
  Fd shared_memory_;
  Shared* shared_ = nullptr;
  Fd kernel_;
  Fd device_;
  pid_t pid_ = -1;
  std::string log_ = "/dev/null";

 private:
  [[noreturn]] void supervise(const Task& task) {
    const std::array<std::pair<int, int>, 4> places{{{region_->fd(), kRegionFd},
                                                     {shared_memory_.get(), kSettingsFd},
                                                     {device_.get(), kNotesFd},
                                                     {::open("/proc/self/exe", O_PATH | O_CLOEXEC), kProgramFd}}};
    std::array<int, 4> high{};
    for (size_t i = 0; i < places.size(); ++i) high[i] = ::fcntl(places[i].first, F_DUPFD_CLOEXEC, 100);
    for (size_t i = 0; i < places.size(); ++i) {
      if (::dup2(high[i], places[i].second) < 0) ::_exit(99);
    }
    Result<takeover::Region> region = takeover::Region::attach(Fd(high[0]));
    if (!region) ::_exit(98);
    count_allocations();
    const uint64_t before = allocations.load();
    const int code = Loop(task, *region).run();
    shared_->allocations.store(allocations.load() - before);
    ::_exit(code);
  }
};

TEST_F(WholeSupervisor, AllocatesNothingWhateverHappens) {
  INDUCTORFS_NEEDS_NO_EMULATOR("execveat(2)");
  takeover::RequestSlots slots(*region_);
  put(slots.of_thread(0), request(FUSE_LOOKUP, 1));
  put(slots.of_thread(1), request(FUSE_MKDIR, 2));
  fuse_out_header known{};
  known.len = sizeof known;
  known.unique = 2;
  known.error = -EEXIST;
  slots.of_thread(1).keep_reply({reinterpret_cast<const char*>(&known), sizeof known});
  for (uint64_t unique = 10; unique < 40; ++unique) {
    takeover::Slot& thread = slots.of_thread(0);
    put(thread, request(FUSE_LOOKUP, unique));
    ASSERT_NE(slots.detach(thread), nullptr);
  }
  put(slots.of_thread(0), request(FUSE_LOOKUP, 1));

  start({.crashes = 1});
  std::map<uint64_t, int> got;
  for (int i = 0; i < 32; ++i) got.insert(answer());
  EXPECT_EQ(got.size(), 32U);
  EXPECT_EQ(got[1], -ENOENT);
  EXPECT_EQ(got[2], -EEXIST) << "as the worker had answered it";
  EXPECT_EQ(got[39], -ENOENT);
  for (uint64_t unique = 100; unique < 110; ++unique) {
    const fuse_in_header read = request(FUSE_READ, unique);
    ASSERT_EQ(::write(kernel_.get(), &read, sizeof read), static_cast<ssize_t>(sizeof read));
    EXPECT_EQ(answer(), std::make_pair(unique, -EIO));
  }
  ASSERT_EQ(::kill(pid_, SIGTERM), 0);
  EXPECT_EQ(end(), 1 << 8) << "no worker was left that could unmount";
  EXPECT_EQ(shared_->leaves, 1U) << "so another process did";
  EXPECT_EQ(shared_->strangers, 0U);
  EXPECT_EQ(shared_->starts, 6U);
  EXPECT_EQ(shared_->allocations, 0U);
}

TEST_F(WholeSupervisor, StartsAnotherExaminerWhenOneHasEndedOrIsSilent) {
  INDUCTORFS_NEEDS_NO_EMULATOR("execveat(2)");
  shared_->keeps_examiner = true;
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0) << "of what an examiner leaves";
  start({.crashes = 1});
  EXPECT_EQ(end(), 0);
  EXPECT_EQ(shared_->examiners, 3U);
  for (const auto& child : shared_->stopped) {
    ASSERT_GT(child, 0);
    EXPECT_EQ(ending_of(child), SIGKILL) << "it goes with its examiner, whatever it was about to do";
  }
  EXPECT_GE(shared_->mounters, 1U);
  EXPECT_EQ(shared_->leaves, 0U) << "the worker has said that nothing is left";
  EXPECT_EQ(shared_->strangers, 0U) << "they have nothing of the mount's";
  EXPECT_EQ(shared_->allocations, 0U);
}

TEST_F(WholeSupervisor, ThatAllocatesWouldBeSeen) {
  const uint64_t before = allocations.load();
  count_allocations();
  delete new std::string(100, 'x');
  EXPECT_GT(allocations.load(), before);
}

}  // namespace
}  // namespace inductorfs::supervisor

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "worker") == 0) return inductorfs::supervisor::be_worker();
  if (argc > 3 && std::strcmp(argv[1], "examiner") == 0) return inductorfs::supervisor::be_examiner(argv[3]);
  if (argc > 2 && std::strcmp(argv[1], "mounter") == 0) return inductorfs::supervisor::be_mounter(argv[2], argc > 3);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
