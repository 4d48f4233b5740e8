// SPDX-License-Identifier: Apache-2.0
#include "cli/common/command.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/host/place_reader.h"
#include "inductorfs/mount/process_commands.h"

/// The commands that processes of ours start.
namespace inductorfs::cli {
namespace {

/// Asks or reads something in a process of its own, which a deadline can end, or which has the rights of another user.
class ReaderCommand final : public Subcommand {
 public:
  explicit ReaderCommand(int (*body)()) : body_(body) {}
  [[nodiscard]] int run(const config::Environment&) override { return body_(); }

 private:
  int (*body_)();
};

/// A process of a mount. The mountpoint is there for whoever looks at the list of processes.
class WorkerCommand final : public Subcommand {
 public:
  void add_to(Words& words) override { words.add("MOUNTPOINT", &path_, ""); }
  [[nodiscard]] int run(const config::Environment&) override { return mount::worker_command(); }

 private:
  std::string path_;
};

class ExaminerCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add("MOUNTPOINT", &path_, "");
    words.add("CACHE", &cache_file_, "");
  }
  [[nodiscard]] int run(const config::Environment&) override { return mount::examiner_command(path_, cache_file_); }

 private:
  std::string path_;
  std::string cache_file_;
};

class MounterCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add("MOUNTPOINT", &path_, "");
    words.add("ONCE", &once_, "");
  }
  [[nodiscard]] int run(const config::Environment&) override { return mount::mounter_command(once_); }

 private:
  std::string path_;
  std::string once_;
};

}  // namespace

std::unique_ptr<Subcommand> gpu_probe_command() { return std::make_unique<ReaderCommand>(fingerprint::run_gpu_probe); }
std::unique_ptr<Subcommand> package_facts_command() {
  return std::make_unique<ReaderCommand>(fingerprint::run_package_reader);
}
std::unique_ptr<Subcommand> host_facts_command() {
  return std::make_unique<ReaderCommand>(fingerprint::run_host_reader);
}
std::unique_ptr<Subcommand> host_places_command() { return std::make_unique<ReaderCommand>(host::run_place_reader); }
std::unique_ptr<Subcommand> worker_command() { return std::make_unique<WorkerCommand>(); }
std::unique_ptr<Subcommand> examiner_command() { return std::make_unique<ExaminerCommand>(); }
std::unique_ptr<Subcommand> mounter_command() { return std::make_unique<MounterCommand>(); }

}  // namespace inductorfs::cli
