// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/loose_thread.h"
#include "looker.h"
#include "opened_process.h"

namespace inductorfs::fingerprint {
namespace {

/// The supervisor knows these threads by it (supervisor::kLooseThread).
constexpr const char* kLookName = "loose-look";

class NearLooker final : public Looker {
 public:
  explicit NearLooker(const std::string& proc) : reader_(proc) {}

  Looked<Process> look_at(pid_t pid, const ProcessIdentity& identity) override {
    Looked<Process> looked;
    (void)run_loose(kLookName, [&] {
      auto opened = reader_.open(pid, identity, Opening::kMaps);
      if (!opened || !fingerprint::look_at(*opened)) return;
      looked.found = std::move(opened->process);
      // A descriptor of that thread is none of this one's. Who may look himself sees an exec without it.
      looked.found->memory.reset();
    });
    return looked;
  }

  std::optional<ProcessIdentity> identity_of(pid_t pid) override {
    const auto stat = reader_.stat_of(pid);
    return stat ? std::optional(stat->identity) : std::nullopt;
  }

  Looked<Variables> variables_of(const Process& process) override {
    Looked<Variables> looked;
    (void)run_loose(kLookName, [&] {
      auto opened = reader_.open(process.pid, process.identity, Opening::kVariables);
      if (!opened) return;
      opened->process = process;
      auto environment = environment_of(*opened);
      if (!environment) return;
      auto files = files_of(*opened, *environment);
      looked.found = Variables{std::move(*environment), std::move(files)};
    });
    return looked;
  }

  Looked<std::shared_ptr<const Held>> hold(const Process& process) override {
    auto held = reader_.hold(process);
    return held ? Looked<std::shared_ptr<const Held>>{false, std::move(held)} : Looked<std::shared_ptr<const Held>>{};
  }

  std::optional<Fact> read_package(const PackageRequest& request) override {
    return fingerprint::read_package(request);
  }

 private:
  const ProcReader reader_;
};

}  // namespace

std::unique_ptr<Looker> make_near_looker(const std::string& proc) { return std::make_unique<NearLooker>(proc); }

}  // namespace inductorfs::fingerprint
