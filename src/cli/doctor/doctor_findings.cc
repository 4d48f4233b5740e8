// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/doctor_findings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>

#include "cli/common/shell_word.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"

namespace inductorfs::cli {

using config::flag_at;
using config::Json;
using config::number_at;
using config::part_of;
using config::plain_item;
using config::text_at;
using Kind = Diagnosis::Kind;

namespace {

/// With less than this, what one job of the C++ backend needs is evicted while it runs.
constexpr uint64_t kSmallStore = uint64_t{2} << 30;
constexpr size_t kMostOfOneKind = 5;

void add_remote(const Json& status, const std::string& mount, std::vector<Diagnosis>& findings) {
  const Json& remote = part_of(status, "remote");
  if (!flag_at(remote, "configured")) {
    findings.push_back({Kind::kWarning, mount + " has no remote: what is compiled here stays here",
                        "mount with --remote redis://HOST to share it"});
  } else if (!flag_at(remote, "reachable")) {
    const std::string why = text_at(remote, "last_error");
    findings.push_back(
        {Kind::kBad, mount + ": " + text_at(remote, "address") + " is not reachable" + (why.empty() ? "" : ": " + why),
         "check host, port, password and firewall from this host; jobs compile meanwhile, and what they "
         "make is published later"});
  } else {
    const std::string refusal = text_at(remote, "refuses_writes");  // a warning of the mount has it
    findings.push_back({refusal.empty() ? Kind::kGood : Kind::kNote,
                        mount + ": " + text_at(remote, "address") + " answers, Redis " + text_at(remote, "version") +
                            (refusal.empty() ? "" : ", and refuses writes"),
                        refusal.empty() ? "" : "mend what it says of that: see the line with its refusal"});
  }
  const Json& cluster = part_of(status, "cluster");
  if (const std::string why = text_at(cluster, "why"); flag_at(cluster, "frozen")) {
    findings.push_back({Kind::kBad, mount + ": " + why + ": nothing of the cluster is shown, nothing is published",
                        "inductorfs freeze --lift " + shell_word(mount) + ", when the reason is gone"});
  }
  if (const std::string why = text_at(cluster, "why_not_listed"); flag_at(remote, "reachable") && !why.empty()) {
    findings.push_back({Kind::kNote, mount + " is not listed by inductorfs nodes: " + why,
                        "nothing, if its user may only read; its jobs do not notice"});
  }
  const Json& catalog = part_of(status, "catalog");
  if (const std::string error = text_at(catalog, "oldest_queued_error"); !error.empty()) {
    findings.push_back({Kind::kWarning,
                        mount + ": " + std::to_string(number_at(catalog, "queued")) +
                            " groups wait to be published; the oldest: " + error,
                        "mend what the server says; inductorfs sync waits for them"});
  }
}

/// A warning of a mount says what is wrong, and behind its last semicolon what to do, as a rule.
std::string remedy_in(const std::string& warning, const std::string& mount) {
  const size_t end = warning.rfind("; ");
  if (end != std::string::npos) return warning.substr(end + 2);
  return "do what the line says; inductorfs status " + shell_word(mount) + " shows what depends on it";
}

/// The finding about a cache root that is shared with nobody; `why` has its remedy.
Diagnosis finding_of_root(const std::string& path, uint64_t owner, const std::string& why, uid_t user) {
  // As the daemon says it (fingerprint/trust.cc). Root reads no cache of others; a user who was led there does.
  const bool is_a_trap = why.starts_with("everybody may write") && user != 0 && owner != 0 && owner != user;
  if (!is_a_trap) return {Kind::kWarning, path + " is shared with nobody", why};
  return {Kind::kBad, path + " belongs to uid " + std::to_string(owner) + ", and everybody may write to it",
          "let no job of yours use it: ask root to remove it, or name another directory with inductorfs env --root"};
}

void add_sharing(const Json& status, const std::string& mount, uid_t user, std::vector<Diagnosis>& findings) {
  const Json& files = part_of(status, "file_system");
  if (const uint64_t foreign = number_at(files, "foreign"); foreign > 0) {
    const Json& reasons = part_of(files, "foreign_reasons");
    const std::string why = reasons.is_array() && !reasons.empty() ? ": " + plain_item(reasons.front()) : "";
    findings.push_back({Kind::kWarning, mount + ": " + std::to_string(foreign) + " artefacts stay on this host" + why,
                        "inductorfs status " + shell_word(mount) + " lists all reasons"});
  }
  size_t shown = 0;
  for (const Json& one : part_of(status, "unknown_programs")) {
    if (++shown > kMostOfOneKind) break;
    findings.push_back({Kind::kWarning,
                        mount + ": " + std::to_string(number_at(one, "processes")) + " programs of uid " +
                            std::to_string(number_at(one, "user")) + " share nothing: " + text_at(one, "why"),
                        "mend that and start them again"});
  }
  shown = 0;
  for (const Json& family : part_of(status, "private_families")) {
    if (++shown > kMostOfOneKind) break;
    findings.push_back({Kind::kWarning,
                        mount + ": " + text_at(family, "family") + " is not shared: " + text_at(family, "why"),
                        "inductorfs fingerprint --families shows each family"});
  }
  shown = 0;
  constexpr std::string_view kNobody = "nobody: ";
  for (const Json& root : part_of(files, "first_roots")) {
    const std::string with = text_at(root, "shared_with");
    if (!with.starts_with(kNobody) || ++shown > kMostOfOneKind) continue;
    findings.push_back(finding_of_root(mount + "/" + text_at(root, "path"), number_at(root, "owner"),
                                       with.substr(kNobody.size()), user));
  }
}

}  // namespace

std::string_view to_string(Diagnosis::Kind kind) {
  switch (kind) {
    case Kind::kGood:
      return "ok";
    case Kind::kNote:
      return "note";
    case Kind::kWarning:
      return "warning";
    case Kind::kBad:
      return "BAD";
  }
  return {};
}

std::vector<Diagnosis> findings_of_mount(const Json& status, uid_t user) {
  std::vector<Diagnosis> findings;
  const std::string mount = text_at(status, "mountpoint");
  if (const std::string error = text_at(status, "error"); !error.empty()) {
    if (config::flag_at(status, "elsewhere")) return {{Kind::kNote, mount + " cannot be asked here", error}};
    findings.push_back({Kind::kBad, mount + " has no daemon that answers", error});
    return findings;
  }
  findings.push_back({Kind::kGood, mount + " answers", {}});
  add_remote(status, mount, findings);
  const Json& store = part_of(status, "store");
  if (auto small = finding_of_limit(mount + ": its store", number_at(store, "size_limit"))) {
    findings.push_back(std::move(*small));
  }
  if (const std::string version = text_at(status, "version"); version != INDUCTORFS_VERSION) {
    findings.push_back({Kind::kWarning,
                        mount + " is served by version " + version + ", and this is " INDUCTORFS_VERSION,
                        "run inductorfs upgrade " + shell_word(mount) + "; no job notices"});
  }
  const std::string refusal = text_at(part_of(status, "remote"), "refuses_writes");
  for (const Json& warning : part_of(status, "warnings")) {
    const std::string text = plain_item(warning);
    const bool is_refusal = !refusal.empty() && text.find(refusal) != std::string::npos;
    findings.push_back(
        {is_refusal ? Kind::kBad : Kind::kWarning, mount + ": " + text,
         is_refusal ? "mend what the server says; then what waits is published by itself" : remedy_in(text, mount)});
  }
  add_sharing(status, mount, user, findings);
  return findings;
}

std::vector<Diagnosis> findings_of_variables(const GetVariable& variable, const MountOf& mount_of,
                                             const std::string& mountpoint) {
  std::vector<Diagnosis> findings;
  const std::string put = "eval \"$(inductorfs env " + shell_word(mountpoint) + ")\" in the job's shell";
  const auto directory = variable("TORCHINDUCTOR_CACHE_DIR").value_or("");
  if (directory.empty()) {
    findings.push_back(
        {Kind::kNote, "TORCHINDUCTOR_CACHE_DIR is not set here: a job of this shell would use no mount", put});
  } else if (const std::string mount = mount_of(directory); mount.empty()) {
    findings.push_back(
        {Kind::kBad, "TORCHINDUCTOR_CACHE_DIR=" + config::printable(directory) + " lies in no mount", put});
  } else {
    findings.push_back(
        {Kind::kGood, "TORCHINDUCTOR_CACHE_DIR=" + config::printable(directory) + " lies in " + mount, {}});
  }
  const auto triton = variable("TRITON_CACHE_DIR").value_or("");
  if (!triton.empty() && mount_of(triton).empty()) {
    findings.push_back({Kind::kBad, "TRITON_CACHE_DIR=" + config::printable(triton) + " lies in no mount",
                        put + ", or unset it: torch then puts its kernels below TORCHINDUCTOR_CACHE_DIR"});
  }
  if (const auto manager = variable("TRITON_CACHE_MANAGER").value_or(""); !manager.empty()) {
    findings.push_back({Kind::kWarning,
                        "TRITON_CACHE_MANAGER=" + config::printable(manager) +
                            " puts Triton's kernels where that class puts them, which no mount sees",
                        "unset it, unless that class writes below TRITON_CACHE_DIR as Triton's own does"});
  }
  for (const auto& [name, value] :
       {std::pair{"TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1"}, std::pair{"TORCHINDUCTOR_FX_GRAPH_CACHE", "0"},
        std::pair{"TORCHINDUCTOR_AUTOGRAD_CACHE", "0"}, std::pair{"VLLM_DISABLE_COMPILE_CACHE", "1"},
        std::pair{"TRITON_ALWAYS_COMPILE", "1"}}) {
    if (variable(name).value_or("") != value) continue;
    findings.push_back(
        {Kind::kBad, std::string(name) + "=" + value + " turns a cache off, whatever lies in it", "unset it"});
  }
  return findings;
}

Diagnosis finding_of_device(const std::string& path) {
  constexpr unsigned kMajor = 10;  // Documentation/admin-guide/devices.txt
  constexpr unsigned kMinor = 229;
  struct stat status {};
  const Fd device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int error = errno;
  if (device && ::fstat(device.get(), &status) == 0 && S_ISCHR(status.st_mode) &&
      status.st_rdev == makedev(kMajor, kMinor)) {
    return {Kind::kGood, path + " can be opened", {}};
  }
  if (device) return {Kind::kBad, path + " is another file than the device of FUSE", "rm it, and modprobe fuse"};
  if (error == ENOENT) {
    return {Kind::kBad, path + " does not exist",
            "modprobe fuse, or pass the device to the container (--device /dev/fuse)"};
  }
  if (error == EACCES || error == EPERM) {
    return {Kind::kBad, path + " may not be opened", "chmod 666 it, or run this container with that device"};
  }
  return {Kind::kBad, path + " is no FUSE device: " + error_from_errno(error, "open", path).what(), "modprobe fuse"};
}

Diagnosis finding_of_helper(const std::string& search) {
  for (const std::string_view directory : parts_of(search, ':')) {
    const std::string program = std::string(directory) + "/fusermount3";
    struct stat status {};
    if (::stat(program.c_str(), &status) != 0) continue;
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid == 0)
      return {Kind::kGood, program + " mounts for this user", {}};
    return {Kind::kBad, program + " is not set-user-ID root, so only root can mount", "install fuse3 again"};
  }
  return {Kind::kBad, "there is no fusermount3 in PATH, so only root can mount", "apt install fuse3"};
}

std::optional<Diagnosis> finding_of_limit(const std::string& store, uint64_t limit) {
  if (limit == 0 || limit >= kSmallStore) return std::nullopt;
  return Diagnosis{
      Kind::kWarning,
      store + " holds " + config::human_bytes(limit) + " at most, and the precompiled header of one torch has 150 MB",
      "mount with a larger --store-limit"};
}

Diagnosis finding_of_store(const std::string& directory, std::string_view type) {
  constexpr std::string_view kNetworks[] = {
      "nfs",        "nfs4",     "cifs",   "smb3",   "ceph",           "fuse.ceph", "fuse.ceph-fuse",
      "lustre",     "gpfs",     "beegfs", "wekafs", "glusterfs",      "fuse.s3fs", "fuse.glusterfs",
      "fuse.sshfs", "virtiofs", "9p",     "afs",    "fuse.inductorfs"};
  constexpr std::string_view kMemory[] = {"tmpfs", "ramfs"};
  if (std::ranges::find(kMemory, type) != std::end(kMemory)) {
    return {Kind::kWarning,
            "the store " + directory + " lies in memory (" + std::string(type) +
                "): what waits to be published is lost at a reboot",
            "mount with a --store on a local disk"};
  }
  if (std::ranges::find(kNetworks, type) == std::end(kNetworks)) {
    return {Kind::kGood, "the store " + directory + " lies on a local disk", {}};
  }
  return {Kind::kBad, "the store " + directory + " lies on a network disk (" + std::string(type) + ")",
          "mount with a --store on a local disk: else each miss goes over the network twice"};
}

}  // namespace inductorfs::cli
