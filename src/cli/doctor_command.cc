// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>

#include "answer_text.h"
#include "answers.h"
#include "command.h"
#include "doctor_findings.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/text.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {
namespace {

using config::Json;

/// Each mount has this long: one that hangs is a finding.
constexpr Milliseconds kPatience{5'000};
constexpr const char* kDevice = "/dev/fuse";
constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";

class DoctorCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "doctor"; }
  [[nodiscard]] std::string_view help() const override {
    return "Look for what keeps mounts of this host, or one, from sharing, with a remedy for each";
  }
  void add_to(CLI::App& app) override {
    add_path(app, "MOUNTPOINT", path_, "directory of the mount; without it all mounts of this user and of root")
        ->required(false);
    add_json(app, json_);
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    std::vector<Diagnosis> findings{finding_of_device(kDevice)};
    if (::geteuid() != 0) findings.push_back(finding_of_helper(environment("PATH").value_or(kUsualPath)));
    std::string named = "MOUNTPOINT";
    add(findings, findings_of_mounts(environment, named));
    add(findings, findings_of_variables([&](const char* name) { return environment(name); }, mount_around, named));
    const int printed = print(json_ ? json_of(findings) : findings_text(findings));
    const bool bad =
        std::ranges::any_of(findings, [](const Diagnosis& one) { return one.kind == Diagnosis::Kind::kBad; });
    return printed == kExitDone && bad ? kExitFailed : printed;
  }

 private:
  static void add(std::vector<Diagnosis>& findings, std::vector<Diagnosis> more) {
    std::ranges::move(more, std::back_inserter(findings));
  }
  /// `named` becomes one of the mounts, if there is one.
  [[nodiscard]] std::vector<Diagnosis> findings_of_mounts(const config::Environment& environment,
                                                          std::string& named) const {
    std::vector<Diagnosis> findings;
    std::vector<Located> mounts;
    if (path_.empty()) {
      mounts = all_mounts(environment);
    } else if (auto mount = locate_mount(absolute(path_), environment)) {
      mounts.push_back(std::move(*mount));
    } else {
      findings.push_back({Diagnosis::Kind::kBad, absolute(path_) + " cannot be asked", mount.error().what()});
      return findings;
    }
    if (!mounts.empty()) named = mounts.front().mountpoint;
    if (mounts.empty()) {
      findings.push_back({Diagnosis::Kind::kBad, "no inductorfs mount of this user or of root is here",
                          "inductorfs mount MOUNTPOINT --remote redis://HOST"});
    }
    const std::vector<MountEntry> table = read_mount_table();
    for (const Json& status : statuses(mounts, kPatience, environment)) {
      add(findings, findings_of_mount(status));
      // By the table: another user's daemon may name a directory on a disk that hangs.
      const std::string store = config::text_at(config::part_of(status, "store"), "directory");
      const MountEntry* const disk = store.empty() ? nullptr : places::find_mount_of(table, store);
      if (disk != nullptr) findings.push_back(finding_of_store(store, disk->type));
    }
    return findings;
  }
  static std::string mount_around(const std::string& path) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const mount = places::find_mount_of(table, absolute(path));
    return mount != nullptr && mount->is_ours() ? mount->mount_point : std::string();
  }
  static std::string json_of(const std::vector<Diagnosis>& findings) {
    Json all = Json::array();
    for (const Diagnosis& one : findings) {
      all.push_back({{"kind", to_string(one.kind)}, {"what", one.what}, {"remedy", one.remedy}});
    }
    return config::to_pretty(all) + "\n";
  }

  std::string path_;
  bool json_ = false;
};

}  // namespace

std::string findings_text(const std::vector<Diagnosis>& findings) {
  constexpr size_t kWidth = 9;
  std::string text;
  for (const Diagnosis& one : findings) {
    std::string kind(to_string(one.kind));
    kind.resize(kWidth, ' ');
    text += kind + one.what + "\n";
    if (!one.remedy.empty()) text += std::string(kWidth, ' ') + "-> " + one.remedy + "\n";
  }
  const auto count = [&](Diagnosis::Kind kind) {
    return std::to_string(std::ranges::count(findings, kind, &Diagnosis::kind));
  };
  return text + count(Diagnosis::Kind::kBad) + " bad, " + count(Diagnosis::Kind::kWarning) + " warnings\n";
}

std::unique_ptr<Subcommand> doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace inductorfs::cli
