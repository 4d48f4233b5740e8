// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <vector>

#include "fake_file_system.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fuse/session.h"
#include "support/temporary_directory.h"

/// What a warm operation costs on a mount and on the local disk, both sides in one run, interleaved; medians. The mount
/// is served by another process, as in life.
namespace inductorfs {
namespace {

// Short rounds: on a busy host most of them are then not interrupted, and the median is of those.
constexpr int kRounds = 401;
constexpr int kCallsPerRound = 50;
constexpr size_t kFileSize = 16384;

/// A mount in a process of its own; goes with this object. Needs external synchronisation.
class ServedMount {
 public:
  ServedMount(const std::string& mountpoint, std::chrono::microseconds spin) : mountpoint_(mountpoint) {
    fuse::MountOptions where;
    where.mountpoint = mountpoint;
    auto device = fuse::mount(where);
    if (!device) {
      std::fprintf(stderr, "%s\n", device.error().to_string().c_str());
      std::exit(77);
    }
    pid_ = fork();
    if (pid_ == 0) serve(std::move(device->device), spin);
  }
  ~ServedMount() {
    (void)fuse::unmount(mountpoint_, true);  // ends the process; it is killed in any case
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServedMount(const ServedMount&) = delete;
  ServedMount& operator=(const ServedMount&) = delete;
  /// Processor time of the daemon so far.
  [[nodiscard]] double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

 private:
  [[noreturn]] static void serve(Fd device, std::chrono::microseconds spin) {
    testing::FakeFileSystem files;
    Counters counters;
    files.add_file("file", std::string(kFileSize, 'x'));
    fuse::SessionOptions options;
    options.spin = spin;
    auto session = fuse::Session::open(std::move(device), options, files, counters);
    if (!session) _exit(1);
    (*session)->start([] { _exit(0); });
    for (;;) pause();
  }
  std::string mountpoint_;
  pid_t pid_ = -1;
};

double microseconds_of(const std::function<void()>& call, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / calls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void open_read_close(const std::string& file) {
  std::array<char, kFileSize> bytes;
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::read(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  ::close(fd);
}

void compare(const char* what, const std::function<void()>& local, const std::function<void()>& mounted) {
  std::vector<double> local_times;
  std::vector<double> mounted_times;
  local();
  for (int i = 0; i < 3; ++i) mounted();
  for (int i = 0; i < kRounds; ++i) {
    local_times.push_back(microseconds_of(local, kCallsPerRound));
    mounted_times.push_back(microseconds_of(mounted, kCallsPerRound));
  }
  std::printf("%-28s local %7.2f us  mount %7.2f us  ratio %.2f\n", what, median(local_times), median(mounted_times),
              median(mounted_times) / median(local_times));
}

void measure_requests(const std::string& mountpoint, int spin, std::chrono::microseconds pause_between) {
  const ServedMount mount(mountpoint, std::chrono::microseconds(spin));
  const Fd fd(::open((mountpoint + "/file").c_str(), O_RDONLY | O_CLOEXEC));
  termios settings{};
  std::vector<double> times;
  const double cpu_before = mount.cpu_seconds();
  for (int i = 0; i < 2000; ++i) {
    times.push_back(microseconds_of([&] { (void)ioctl(fd.get(), TCGETS, &settings); }, 1));  // ENOTTY
    if (pause_between.count() == 0) continue;
    const auto until = std::chrono::steady_clock::now() + pause_between;  // work of the caller's own
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  std::printf("ioctl, spin %3d us, every %4lld us: %6.2f us, daemon %5.1f us of CPU each\n", spin,
              static_cast<long long>(pause_between.count()), median(times),
              (mount.cpu_seconds() - cpu_before) * 1e6 / static_cast<double>(times.size()));
}

int run() {
  const testing::TemporaryDirectory local;
  const testing::TemporaryDirectory mountpoint;
  if (!write_file_atomically(AT_FDCWD, local / "file", std::string(kFileSize, 'x'))) return 1;
  {
    const ServedMount mount(mountpoint.path(), std::chrono::microseconds(50));
    struct stat out {};
    compare(
        "open+read 16 KiB+close", [&] { open_read_close(local / "file"); },
        [&] { open_read_close(mountpoint / "file"); });
    compare(
        "stat", [&] { (void)::stat((local / "file").c_str(), &out); },
        [&] { (void)::stat((mountpoint / "file").c_str(), &out); });
    compare(
        "stat of a missing name", [&] { (void)::stat((local / "none").c_str(), &out); },
        [&] { (void)::stat((mountpoint / "none").c_str(), &out); });
  }
  for (const int pause_between : {0, 20, 100, 1000}) {
    for (const int spin : {0, 20, 50}) {
      measure_requests(mountpoint.path(), spin, std::chrono::microseconds(pause_between));
    }
  }
  return 0;
}

}  // namespace
}  // namespace inductorfs

int main() { return inductorfs::run(); }
