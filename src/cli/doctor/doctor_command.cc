// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/child_answer.h"
#include "cli/common/command.h"
#include "cli/common/mount_arguments.h"
#include "cli/doctor/doctor_findings.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {
namespace {

using config::Json;

/// Each mount has this long: one that hangs is a finding.
constexpr Milliseconds kPatience{5'000};
constexpr const char* kDevice = "/dev/fuse";
constexpr const char* kFuseConfiguration = "/etc/fuse.conf";
/// For the sizes of all caches of a user together.
constexpr Milliseconds kCachesPatience{3'000};
constexpr uint64_t kTableLimit = uint64_t{64} << 20;
/// The options of a mount that doctor looks at.
constexpr std::string_view kOptions[] = {"remote", "password-file", "ca-file", "cert-file",  "key-file",
                                         "store",  "store-limit",   "python",  "allow-other"};
constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";

class DoctorCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("MOUNTPOINT", path_, "directory of the mount; without it all mounts of this user and of root");
    words.add_json(json_);
    options_.add_chosen_to(words, "look at what a mount with this TOML file would need", kOptions);
  }
  [[nodiscard]] Result<void> check() const override { return options_.check(); }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const Result<config::Settings> settings = options_.facts_settings();
    if (!settings) return fail_options(settings.error(), json_);
    // Who asks about a server, or a mount that is planned, does not ask about the mounts that stand.
    const bool planned = options_.values().contains("remote") || !options_.file().empty();
    std::vector<Diagnosis> findings = findings_of_host(*settings, environment, planned || !has_mount());
    // What `mount` would refuse, whatever its mountpoint.
    config::Settings complete = *settings;
    complete.mountpoint = complete.alias = "/MOUNTPOINT";
    const auto refused = config::complete(complete, config::current_user(environment), environment);
    if (!refused) findings.push_back({Diagnosis::Kind::kBad, refused.error().what(), "mend this option of the mount"});
    add(findings, findings_of_options(*settings));
    std::string named = "MOUNTPOINT";
    if (!path_.empty() || !planned) add(findings, findings_of_mounts(environment, named));
    add(findings, findings_of_user(environment, named));
    const int printed = print(json_ ? json_of(findings) : findings_text(findings));
    const bool bad =
        std::ranges::any_of(findings, [](const Diagnosis& one) { return one.kind == Diagnosis::Kind::kBad; });
    return printed == kExitDone && bad ? kExitFailed : printed;
  }

 private:
  /// Says whether somebody has mounted here, perhaps from outside of this container.
  static bool has_mount() { return std::ranges::any_of(read_mount_table(), &MountEntry::is_ours); }
  /// `mounts`: whether this user is to mount. Who uses a mount that stands needs no device.
  static std::vector<Diagnosis> findings_of_host(const config::Settings& settings,
                                                 const config::Environment& environment, bool mounts) {
    std::vector<Diagnosis> findings{finding_of_device(kDevice)};
    if (::geteuid() != 0) findings.push_back(finding_of_helper(environment("PATH").value_or(kUsualPath)));
    for (Diagnosis& one : findings) {
      if (mounts || one.kind != Diagnosis::Kind::kBad) continue;
      one.kind = Diagnosis::Kind::kNote;
      one.what += "; only who mounts needs it, and a mount is here";
    }
    add(findings, finding_of_allow_other(settings.allow_other.value_or(false), ::geteuid(), kFuseConfiguration));
    utsname kernel{};
    if (::uname(&kernel) == 0) findings.push_back(finding_of_kernel(kernel.release));
    return findings;
  }
  /// What the options of a mount that may not stand yet lead to.
  static std::vector<Diagnosis> findings_of_options(const config::Settings& settings) {
    std::vector<Diagnosis> findings;
    if (!settings.remote.empty()) {
      const auto servers = mount::examine_servers(settings);
      if (!servers) findings.push_back(finding_of_no_server(servers.error().what()));
      for (const remote::ServerExamination& server : servers.value_or(std::vector<remote::ServerExamination>())) {
        add(findings, findings_of_server(server));
      }
    }
    add(findings, finding_of_limit("a store with this --store-limit", settings.store_limit));
    if (!settings.store.empty()) add(findings, findings_of_store(settings.store, settings.store_limit));
    if (settings.python.empty()) return findings;
    host::FactsRequest request = mount::facts_request(settings);
    request.cache_file.clear();
    const auto facts = host::learn_facts(request);
    if (!facts) {
      findings.push_back({Diagnosis::Kind::kBad, "--python " + settings.python + ": " + facts.error().what(),
                          "name the interpreter of the jobs"});
      return findings;
    }
    // Its line has the remedy behind the last semicolon.
    if (const std::string warning = mount::sharing_warning(settings, *facts); !warning.empty()) {
      findings.push_back({Diagnosis::Kind::kBad, warning, "name the jobs' interpreter with --python"});
    }
    if (const auto& gpu = facts->get(fingerprint::Facet::kGpu); !gpu.problem.empty()) {
      findings.push_back({Diagnosis::Kind::kBad, "gpu: " + gpu.problem,
                          "an NVIDIA device needs its nodes and libcuda.so.1 in this container, for this user, so that "
                          "nvidia-smi works here; of other devices what depends on them stays on this host"});
    }
    return findings;
  }
  /// Of a store that may not be made yet. By a child: it may be named on a disk that hangs.
  static std::vector<Diagnosis> findings_of_store(const std::string& store, uint64_t limit) {
    const auto wrong = answer_of_child(::geteuid(), Deadline::after(kCachesPatience), [&] {
      const Result<void> fit = mount::check_place_of_store(store);
      return fit ? std::string() : fit.error().what();
    });
    if (!wrong.value_or("").empty()) return {{Diagnosis::Kind::kBad, *wrong, "name another --store, on a local disk"}};
    std::vector<Diagnosis> findings;
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const disk = places::find_mount_of(table, store);
    if (disk != nullptr) findings.push_back(finding_of_store(store, disk->type));
    add(findings, finding_of_size(store, limit));
    return findings;
  }
  /// What the variables and directories of this user lead to.
  static std::vector<Diagnosis> findings_of_user(const config::Environment& environment, const std::string& named) {
    const auto variable = [&](const char* name) { return environment(name); };
    std::vector<Diagnosis> findings = findings_of_variables(variable, mount_around, named);
    const config::User user = config::current_user(environment);
    const std::string torch = config::torch_default_directory(user, environment);
    const bool uses_mount = !mount_around(environment("TORCHINDUCTOR_CACHE_DIR").value_or("")).empty();
    if (uses_mount) add(findings, finding_of_headers(mount_around, torch));
    add(findings, findings_of_engines(variable, mount_around, named, user.home, Deadline::after(kCachesPatience)));
    add(findings, findings_of_caches(variable, mount_around, user.home, torch, Deadline::after(kCachesPatience)));
    return findings;
  }
  static void add(std::vector<Diagnosis>& findings, std::optional<Diagnosis> more) {
    if (more) findings.push_back(std::move(*more));
  }
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
      const bool elsewhere = mount.error().code() == ErrorCode::kNotSupported;
      findings.push_back({elsewhere ? Diagnosis::Kind::kNote : Diagnosis::Kind::kBad,
                          absolute(path_) + " cannot be asked" + (elsewhere ? " here" : ""), mount.error().what()});
      return findings;
    }
    if (!mounts.empty()) named = mounts.front().mountpoint;
    if (mounts.empty()) {
      findings.push_back({Diagnosis::Kind::kBad, "no inductorfs mount of this user or of root is here",
                          "inductorfs mount MOUNTPOINT --remote redis://HOST"});
    }
    for (const Located& missing : path_.empty() ? missing_mounts(mounts, environment) : std::vector<Located>()) {
      findings.push_back({Diagnosis::Kind::kBad, missing.mountpoint + " is not mounted", missing.why_missing});
    }
    if (path_.empty()) add(findings, finding_of_unused_stores(environment));
    const std::vector<MountEntry> table = read_mount_table();
    for (const Json& status : statuses(mounts, kPatience, environment)) {
      add(findings, findings_of_mount(status, ::geteuid()));
      // By the table: another user's daemon may name a directory on a disk that hangs.
      const std::string store = config::text_at(config::part_of(status, "store"), "directory");
      const MountEntry* const disk = store.empty() ? nullptr : places::find_mount_of(table, store);
      if (disk != nullptr) findings.push_back(finding_of_store(store, disk->type));
      add(findings, finding_of_size(store, config::number_at(config::part_of(status, "store"), "size_limit")));
      if (status.contains("error")) continue;
      const std::string mountpoint = config::text_at(status, "mountpoint");
      add(findings, findings_of_access(mountpoint, environment));
      add(findings,
          finding_of_propagation(read_file(AT_FDCWD, "/proc/self/mountinfo", kTableLimit).value_or(""), mountpoint));
      add(findings, finding_of_pid_namespace("/proc/" + std::to_string(config::number_at(status, "pid")), mountpoint));
    }
    return findings;
  }
  /// At the default place. By a child: the disk may hang.
  static std::optional<Diagnosis> finding_of_unused_stores(const config::Environment& environment) {
    const std::string store = config::default_store("/MOUNTPOINT", config::current_user(environment), environment);
    const auto paths = answer_of_child(::geteuid(), Deadline::after(kCachesPatience),
                                       [&] { return stores_without_a_mount(store.substr(0, store.rfind('/'))); });
    return paths ? finding_of_stores(*paths) : std::nullopt;
  }
  /// By a child: another user's daemon may name a disk that hangs.
  static std::optional<Diagnosis> finding_of_size(const std::string& store, uint64_t limit) {
    if (store.empty()) return std::nullopt;
    const auto size = answer_of_child(::geteuid(), Deadline::after(kCachesPatience), [&] {
      const auto found = size_of_disk(store);
      return found ? std::to_string(*found) : std::string();
    });
    if (!size || size->empty()) return std::nullopt;
    return finding_of_disk(store, limit, std::stoull(*size));
  }
  /// Where the job's variables lead into the mount, those places count, and else the mountpoint.
  static std::vector<Diagnosis> findings_of_access(const std::string& mountpoint,
                                                   const config::Environment& environment) {
    std::vector<Diagnosis> findings;
    bool is_named = false;
    for (const char* name : {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}) {
      const std::string given = environment(name).value_or("");
      const std::string place = given.empty() ? mountpoint : absolute(given);
      if (place == mountpoint || mount_around(place) != mountpoint) continue;
      is_named = true;
      add(findings, finding_of_access(place, name));
    }
    if (!is_named) add(findings, finding_of_access(mountpoint));
    return findings;
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
  MountArguments options_;
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
