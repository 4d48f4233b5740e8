// SPDX-License-Identifier: Apache-2.0
// What `doctor` finds about the caches of serving engines: on what an engine ends with an error.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "cli/common/child_answer.h"
#include "cli/common/shell_word.h"
#include "cli/doctor/doctor_findings.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/layout/user_caches.h"

namespace inductorfs::cli {
namespace {

using config::Json;
using Kind = Diagnosis::Kind;

constexpr const char* kIndex = "vllm_compile_cache.py";
constexpr uint64_t kIndexLimit = uint64_t{8} << 20;
/// Directories in one, and findings about one cache.
constexpr size_t kMostNames = 4096;
constexpr size_t kMostFindings = 5;
/// So many hashes are years of releases and options, or a hash that is another one in each pod.
constexpr size_t kManyHashes = 1000;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  if (!stream) return names;
  while (const dirent* const entry = ::readdir(stream.get())) {
    if (names.size() == kMostNames) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

constexpr std::string_view kEmpty = "is empty";
constexpr std::string_view kCut = "is cut off";

/// On which part of this index vLLM ends with an error, or nothing. It reads the index as a Python literal, and opens
/// each artifact that the index names, without catching an error (vllm/compilation/backends.py: CompilerManager).
std::string wrong_in_index(const std::string& directory) {
  const auto text = read_regular(directory + "/" + kIndex, kIndexLimit);
  if (!text) return {};  // none: then vLLM has nothing to read
  if (text->empty()) return std::string(kEmpty);
  // As a mount tells what it removes (layout::is_cut_index), for what pprint writes.
  if (text->find_first_not_of('\0') == std::string::npos) return std::string(kCut);
  if (text->front() != '{') return "is no dictionary";
  if ((*text)[text->find_last_not_of(" \n\r\t")] != '}') return std::string(kCut);
  constexpr std::string_view kArtifact = "'artifact_compile_range_";
  for (size_t at = text->find(kArtifact); at != std::string::npos; at = text->find(kArtifact, at + 1)) {
    const std::string name = text->substr(at + 1, std::min(text->find('\'', at + 1), text->size()) - at - 1);
    struct stat found {};
    if (name.find('/') != std::string::npos || ::stat((directory + "/" + name).c_str(), &found) == 0) continue;
    return "names " + config::printable(name) + ", which is not there";
  }
  return {};
}

/// The directories three levels below: <10 hex>/rank_<r>_<dp>/<tag>, and torch_aot_compile/<64 hex>/rank_<r>_<dp>.
std::vector<std::string> leaves_of(const std::string& compiled, const std::vector<std::string>& hashes,
                                   Deadline deadline) {
  std::vector<std::string> leaves;
  for (const std::string& hash : hashes) {
    for (const std::string& rank : names_in(compiled + "/" + hash)) {
      if (deadline.passed() || leaves.size() >= kMostNames) return leaves;
      const std::string directory = hash + "/" + rank;
      for (const std::string& tag : names_in(compiled + "/" + directory)) leaves.push_back(directory + "/" + tag);
    }
  }
  return leaves;
}

Json finding(Kind kind, const std::string& what, const std::string& remedy) {
  return {{"kind", to_string(kind)}, {"what", config::printable(what)}, {"remedy", config::printable(remedy)}};
}

Json finding_of_index(const std::string& directory, const std::string& wrong, bool in_mount) {
  const std::string removal = "rm -r " + shell_word(directory) + ", while no engine starts";
  const std::string what = directory + "/" + kIndex + " " + wrong;
  if (!in_mount || (wrong != kEmpty && wrong != kCut)) {
    return finding(Kind::kBad, what + ": vLLM ends with an error", removal);
  }
  return finding(Kind::kWarning, what + ": an engine is writing it, or was killed just now",
                 "nothing: the mount removes the file when no process has it open for writing. If doctor still finds "
                 "it after --quiet-time, " +
                     removal);
}

/// Looks at what vLLM wrote below its cache root. Blocks on that file system.
Json look_at_vllm(const std::string& root, bool in_mount, Deadline deadline) {
  Json findings = Json::array();
  const std::string compiled = root + "/torch_compile_cache";
  const auto hashes = names_in(compiled);
  for (const std::string& leaf : leaves_of(compiled, hashes, deadline)) {
    if (deadline.passed() || findings.size() >= kMostFindings) return findings;
    const std::string path = compiled + "/" + leaf;
    struct stat model {};
    if (leaf.starts_with("torch_aot_compile/") && ::stat((path + "/model").c_str(), &model) == 0 &&
        model.st_size == 0) {
      findings.push_back(finding(Kind::kWarning, path + "/model has 0 bytes: vLLM compiles again",
                                 "nothing: vLLM writes the file again"));
    }
    if (const std::string wrong = wrong_in_index(path); !wrong.empty()) {
      findings.push_back(finding_of_index(path, wrong, in_mount));
    }
  }
  const size_t many = std::max(hashes.size(), names_in(compiled + "/torch_aot_compile").size());
  if (many >= kManyHashes) {
    findings.push_back(finding(Kind::kWarning, compiled + " has " + std::to_string(many) + " hashes or more",
                               "nothing has to be done: what nobody uses for 30 days leaves the cluster, and the "
                               "store's limit evicts on this host. If they are of one release, inductorfs why-miss "
                               "says which variable gives each pod another hash"));
  }
  return findings;
}

void add_variable(const layout::UserCache& cache, const std::string& given, const MountOf& mount_of,
                  const std::string& mountpoint, Deadline deadline, std::vector<Diagnosis>& findings) {
  const std::string shown = std::string(cache.variable) + "=" + config::printable(given);
  const std::string lead = "export " + std::string(cache.variable) + "=" + shell_word(mountpoint + "/" + cache.below);
  if (mount_of(given).empty()) {
    const std::string more =
        cache.program == "vLLM" ? ", and vLLM sets TORCHINDUCTOR_CACHE_DIR to a directory below it" : "";
    findings.push_back({Kind::kBad, shown + " lies in no mount" + more, lead});
  }
  if (!cache.dies_read_only) return;
  const auto wrong = answer_of_child(::geteuid(), deadline, [&] { return wrong_with_writing(given); });
  if (!wrong || wrong->empty()) return;
  findings.push_back({Kind::kBad, shown + " " + *wrong + ": " + std::string(cache.program) + " ends with an error",
                      "give the job that directory with write access: in a container the mount without ro (readOnly). "
                      "To keep jobs from changing the cluster, mount with --read-only: they write to this host alone"});
}

}  // namespace

std::vector<Diagnosis> findings_of_engines(const GetVariable& variable, const MountOf& mount_of,
                                           const std::string& mountpoint, const std::string& home, Deadline deadline) {
  std::vector<Diagnosis> findings;
  for (const layout::UserCache& cache : layout::user_caches()) {
    const std::string given = variable(cache.variable).value_or("");
    const bool has_own_lines = cache.program == "torch" || cache.program == "Triton";
    if (has_own_lines || cache.below == nullptr || given.empty()) continue;
    add_variable(cache, given, mount_of, mountpoint, deadline, findings);
  }
  const layout::UserCache& vllm = *std::ranges::find(layout::user_caches(), "vLLM", &layout::UserCache::program);
  const std::string place = place_of(vllm, variable, home);
  const bool in_mount = !place.empty() && !mount_of(place).empty();
  const auto answer = answer_of_child(::geteuid(), deadline, [&]() -> std::optional<std::string> {
    struct stat found {};
    if (place.empty() || ::stat(place.c_str(), &found) != 0 || !become_user(found.st_uid)) return std::nullopt;
    return config::to_line(look_at_vllm(place, in_mount, deadline));
  });
  if (!answer) return findings;
  for (const Json& one : config::from_text(*answer)) {
    const bool is_bad = config::text_at(one, "kind") == to_string(Kind::kBad);
    findings.push_back(
        {is_bad ? Kind::kBad : Kind::kWarning, config::text_at(one, "what"), config::text_at(one, "remedy")});
  }
  return findings;
}

}  // namespace inductorfs::cli
