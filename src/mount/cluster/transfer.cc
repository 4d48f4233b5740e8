// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "mount/cluster/orders.h"

namespace inductorfs::mount {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kProbePatience{5'000};
constexpr mode_t kFileMode = 0644;
constexpr std::string_view kStandard = "-";

/// Removes what must not stay behind when the user ends the command; then the signal ends the process as usual. While
/// it lives, a pipe that nobody reads any more is an error of the write instead of a signal. Must be made before any
/// other thread. Safe for concurrent use.
class CleanEnd {
 public:
  CleanEnd() {
    ::sigemptyset(&awaited_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now {};
      // Under nohup, for instance, such a signal means nothing.
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::sigaddset(&awaited_, signal);
    }
    sigset_t blocked = awaited_;
    ::sigaddset(&blocked, SIGPIPE);
    (void)::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    thread_ = start_thread("clean-end", [this](const std::stop_token& stop) { watch(stop); });
  }
  void remove_at_end(const std::string& path) {
    paths_.with([&](std::vector<std::string>& paths) { paths.push_back(path); });
  }

 private:
  void watch(const std::stop_token& stop) {
    constexpr timespec kLook{0, 50'000'000};
    int signal = -1;
    while (signal < 0 && !stop.stop_requested()) signal = ::sigtimedwait(&awaited_, nullptr, &kLook);
    if (signal < 0) return;
    // The other thread still makes files there.
    constexpr int kRounds = 5;
    for (int round = 0; round < kRounds; ++round) {
      std::error_code ignored;
      for (const std::string& path : paths_.with([](const auto& paths) { return paths; }))
        fs::remove_all(path, ignored);
    }
    (void)::signal(signal, SIG_DFL);
    (void)::pthread_sigmask(SIG_UNBLOCK, &awaited_, nullptr);
    (void)::raise(signal);
  }

  sigset_t awaited_{};
  Guarded<std::vector<std::string>> paths_;
  std::jthread thread_;
};

/// As fail_errno(), of a path that a person gave: an absent one is named too, with a remedy.
tl::unexpected<Error> fail_to(const std::string& what, const std::string& path, const std::string& remedy) {
  if (errno != ENOENT) return fail_errno(what, path);
  return fail(ErrorCode::kNotFound, what + " " + path + ": there is no such file or directory; " + remedy);
}

/// A temporary directory with a store in it, from which nothing is evicted; both go with the object.
/// Needs external synchronisation.
class Spool {
 public:
  static Result<std::unique_ptr<Spool>> make(Counters& counters, CleanEnd& end) {
    const char* const given = ::getenv("TMPDIR");
    std::string path = std::string(given == nullptr || *given == '\0' ? "/tmp" : given) + "/inductorfs-archive-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return fail_to("make a temporary directory", path, "name another TMPDIR");
    end.remove_at_end(path);
    auto spool = std::make_unique<Spool>(path);
    store::StoreOptions options;
    options.directory = path + "/store";
    options.size_limit = UINT64_MAX / 2;
    options.free_floor = store::StoreOptions::kFloorByDisk;
    INDUCTORFS_TRY_ASSIGN(auto opened, store::BlobStore::open(options, counters));
    opened->set_eviction_guard([](const codec::Digest&) { return false; });
    spool->store_ = std::move(opened);
    return spool;
  }
  explicit Spool(std::string path) : path_(std::move(path)) {}
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool() {
    store_.reset();
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] store::BlobStore& store() { return *store_; }
  /// What may be put there without taking the disk from others.
  [[nodiscard]] uint64_t room() const {
    struct statvfs disk {};
    if (::statvfs(path_.c_str(), &disk) != 0) return 0;
    const uint64_t available = disk.f_bavail * disk.f_frsize;
    return available - std::min(available, store_->usage().free_floor);
  }

 private:
  const std::string path_;
  std::unique_ptr<store::BlobStore> store_;
};

Result<remote::Remote> open_named(const config::Settings& settings, Counters& counters) {
  if (settings.remote.empty()) {
    return fail(ErrorCode::kInvalid, "no cluster is named: give --remote URL, or set INDUCTORFS_REMOTE");
  }
  return open_cluster(settings, counters, "inductorfs-archive");
}

/// A file that is written under another name until it is whole. A device or a pipe is written as it is.
class OutputFile {
 public:
  static Result<OutputFile> open(const std::string& path, CleanEnd& end) {
    struct stat found {};
    const bool plain = ::stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode);
    OutputFile file;
    file.path_ = path;
    file.fresh_ = plain ? path + ".new" + std::to_string(::getpid()) : std::string();
    const int flags = plain ? O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC : O_WRONLY | O_CLOEXEC;
    file.fd_ = Fd(::open(plain ? file.fresh_.c_str() : path.c_str(), flags, kFileMode));
    if (!file.fd_) return wrong_path(fail_to("write the archive", path, "its directory has to be there").value());
    // What was no file may have become one, or a disk, of another user's choice.
    const bool is_stream = ::fstat(file.fd_.get(), &found) == 0 &&
                           (S_ISFIFO(found.st_mode) || S_ISCHR(found.st_mode) || S_ISSOCK(found.st_mode));
    if (!plain && !is_stream) return fail(ErrorCode::kInvalid, "write the archive: " + path + " is no plain file");
    if (plain) end.remove_at_end(file.fresh_);
    return file;
  }
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), fresh_(std::exchange(other.fresh_, {})), fd_(std::move(other.fd_)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() {
    if (!fresh_.empty()) (void)::unlink(fresh_.c_str());
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  Result<void> keep() {
    if (fresh_.empty()) return {};
    if (::fsync(fd_.get()) != 0) return fail_errno("write the archive", path_);
    if (::rename(fresh_.c_str(), path_.c_str()) != 0) return fail_errno("write the archive", path_);
    fresh_.clear();
    return {};
  }

 private:
  OutputFile() = default;
  std::string path_;
  std::string fresh_;
  Fd fd_;
};

}  // namespace

Result<archive::Report> export_cluster(const config::Settings& settings, const archive::Excerpt& excerpt,
                                       const std::string& file, const archive::OnProgress& progress) {
  CleanEnd end;
  Counters counters;
  config::Settings reading = settings;
  reading.read_only = true;  // its user may lack other rights
  INDUCTORFS_TRY_ASSIGN(const auto remote, open_named(reading, counters));
  INDUCTORFS_TRY_ASSIGN(const auto spool, Spool::make(counters, end));
  if (file == kStandard) {
    if (::isatty(STDOUT_FILENO) == 1) {
      return fail(ErrorCode::kInvalid, "an archive is no text for a terminal: name a file, or use a pipe");
    }
    return archive::write_archive(*remote.blobs, *remote.index, spool->store(), excerpt, STDOUT_FILENO, progress);
  }
  INDUCTORFS_TRY_ASSIGN(auto output, OutputFile::open(file, end));
  INDUCTORFS_TRY_ASSIGN(auto report, archive::write_archive(*remote.blobs, *remote.index, spool->store(), excerpt,
                                                            output.fd(), progress));
  INDUCTORFS_TRY(output.keep());
  return report;
}

Result<archive::Report> import_cluster(const config::Settings& settings, const std::string& file,
                                       const archive::Audience& audience, const archive::OnProgress& progress) {
  CleanEnd end;
  Counters counters;
  Fd input;
  if (file != kStandard) {
    input = Fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!input) return wrong_path(fail_to("read the archive", file, "name one that inductorfs export wrote").value());
  }
  INDUCTORFS_TRY_ASSIGN(const auto remote, open_named(settings, counters));
  const auto orders = remote.operators->read_orders(Deadline::after(kProbePatience));
  const auto parsed = orders ? parse_orders(orders->text) : std::nullopt;
  if (parsed && parsed->freeze.frozen) {
    return fail(ErrorCode::kUnavailable, frozen_text(parsed->freeze) + "; lift that with inductorfs freeze --lift");
  }
  INDUCTORFS_TRY_ASSIGN(const auto spool, Spool::make(counters, end));
  return archive::read_archive(*remote.index, spool->store(), input ? input.get() : STDIN_FILENO, audience,
                               spool->room(), progress);
}

}  // namespace inductorfs::mount
