// SPDX-License-Identifier: Apache-2.0
#include "vfs/origin/marks.h"

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/user_lines.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kReasonLimit = 512;
constexpr size_t kReasonsKept = 20;
/// A file has one name in practice, and a second one after a rename or a link between families.
constexpr size_t kScopesLimit = 8;
constexpr size_t kUnjudgedLimit = 8;
constexpr uint64_t kMetadataLimit = 1 << 20;
constexpr std::string_view kGroupPrefix = "__grp__";

}  // namespace

bool Provenance::is_for(std::string_view scope) const {
  if (scope.empty()) return false;
  for (std::string_view rest = scopes; !rest.empty();) {
    const size_t end = rest.find(' ');
    if (rest.substr(0, end) == scope) return true;
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  return false;
}

void Provenance::make_private(std::string_view why) {
  why_private = why.empty() ? "its writer has another environment" : std::string(why.substr(0, kReasonLimit));
  scopes.clear();
  unjudged.clear();
}

void Provenance::add_scope(const std::string& scope) {
  if (is_for(scope)) return;
  if (static_cast<size_t>(std::count(scopes.begin(), scopes.end(), ' ')) + 1 >= kScopesLimit) {
    scopes.erase(0, scopes.find(' ') + 1);
  }
  if (!scopes.empty()) scopes += ' ';
  scopes += scope;
}

void Provenance::add(const WriterVerdict& verdict) {
  if (is_private()) return;
  switch (verdict.judgement.match) {
    case fingerprint::Match::kLater:
      if (unjudged.size() >= kUnjudgedLimit) return make_private("too many processes wrote to it at once");
      unjudged.push_back(verdict.writer);
      break;
    case fingerprint::Match::kMatches:
      break;
    case fingerprint::Match::kDiffers:
    case fingerprint::Match::kUnknown:
      return make_private(verdict.judgement.why);
  }
  if (!verdict.scope.empty()) add_scope(verdict.scope);
}

WriterVerdict Marks::glance(const std::string& path, layout::Family family, std::string_view architecture,
                            pid_t process) const {
  const auto& rule = layout::rule_of(family);
  layout::Scope scope;
  const bool settling = rule.shared && scopes_.is_settling(path);  // before the scope: the name may come in between
  if (rule.shared) scope = scopes_.scope_of(path, family, architecture);
  WriterVerdict verdict{scope.id, {}, nullptr};
  if (scope.id.empty() && !settling) {
    verdict.judgement = {fingerprint::Match::kUnknown, scope.why_private};
    // Another reason than the family's own: only artefacts for this device are private.
    const bool own = !architecture.empty() && scopes_.scope_of(path, family).why_private != scope.why_private;
    if (own) verdict.other_device = scope.why_private;
    return verdict;
  }
  if (process == kOtherNamespace) counters_.get("writers.other_namespace").add();
  fingerprint::Writers* const writers = host_.writers();
  if (writers == nullptr) {
    verdict.judgement.match = scope.id.empty() ? fingerprint::Match::kLater : fingerprint::Match::kMatches;
    return verdict;
  }
  if (process == kOtherNamespace) {
    verdict.judgement.why = kWriterElsewhere;
    return verdict;
  }
  verdict.writer = writers->identify(process);
  verdict.judgement.match = fingerprint::Match::kLater;
  if (!scope.id.empty()) {
    verdict.judgement = writers->glance(verdict.writer.get(), rule.facets, *scopes_.expected(path));
  }
  return verdict;
}

std::optional<std::string> Marks::judge(const std::string& path, layout::Family family,
                                        std::span<const std::shared_ptr<const fingerprint::Writer>> writers) const {
  fingerprint::Writers* const judges = host_.writers();
  if (judges == nullptr) return std::string();
  bool later = false;
  const auto expected = scopes_.expected(path);
  for (const auto& writer : writers) {
    auto judgement = judges->judge(writer.get(), layout::rule_of(family).facets, *expected);
    later = later || judgement.match == fingerprint::Match::kLater;
    if (judgement.match == fingerprint::Match::kMatches || judgement.match == fingerprint::Match::kLater) continue;
    return judgement.why.empty() ? std::string("its writer has another environment") : std::move(judgement.why);
  }
  return later ? std::nullopt : std::optional<std::string>(std::string());
}

Provenance Marks::read(const std::string& place) const {
  Provenance result;
  const auto why_private = read_mark(disk_, place, kPrivateMark);
  const bool is_unread = !why_private && is_of_host(why_private.error().code());
  if (is_unread) result.why_private = "the disk does not say whether it is private";
  if (why_private) result.why_private = why_private->value_or("");
  if (!result.is_private()) result.scopes = mark_of(disk_, place, kScopeMark).value_or("");
  return result;
}

void Marks::write(const std::string& place, const Provenance& before, const Provenance& now) const {
  const bool shows_scopes = !now.is_private() && now.unjudged.empty() && !now.scopes.empty();
  if (shows_scopes) {
    set_mark(disk_, place, kScopeMark, now.scopes);
    fail_point("mark.written");
  } else if (!before.scopes.empty()) {
    remove_mark(disk_, place, kScopeMark);
  }
  if (now.is_private() && now.why_private == before.why_private) return;  // or the disk did not say (read())
  if (now.is_private()) {
    set_mark(disk_, place, kPrivateMark, now.why_private);
  } else if (before.is_private()) {
    remove_mark(disk_, place, kPrivateMark);
  }
}

std::string Marks::architecture_of_set(const std::string& directory) const {
  for (const auto& item : disk_.list(directory).value_or(std::vector<LocalTree::Item>{})) {
    if (!layout::is_group_file(item.name)) continue;
    // triton/compiler/compiler.py: compile() names the group after the metadata file.
    const std::string metadata = item.name.substr(kGroupPrefix.size());
    const auto text = disk_.read_file(join(directory, metadata), kMetadataLimit);
    if (!text) continue;
    if (auto architecture = layout::triton_architecture(*text); !architecture.empty()) return architecture;
  }
  return {};
}

std::string Marks::architecture_of(const std::string& path) const {
  if (layout::classify(path).family != layout::Family::kTritonKernel) return {};
  return architecture_of_set(LocalTree::view(path.substr(0, path.rfind('/'))));
}

std::vector<std::string> Marks::scopes_now(const std::string& path) const {
  const auto family = layout::classify(path).family;
  std::vector<std::string> ids;
  // Files of a set that came one by one were marked before its architecture could be read.
  for (const auto& architecture : {architecture_of(path), std::string()}) {
    if (auto scope = scopes_.scope_of(path, family, architecture); !scope.id.empty())
      ids.push_back(std::move(scope.id));
  }
  return ids;
}

Result<std::string> Marks::why_not_shared(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto of_file, makers_of(disk_, LocalTree::view(path)));
  std::string why = scopes_.why_not_shared(path, of_file);
  const size_t root = layout::name_of(path).root.size();
  for (std::string above = parent_path(path); why.empty() && above.size() > root; above = parent_path(above)) {
    INDUCTORFS_TRY_ASSIGN(auto makers, makers_of(disk_, LocalTree::view(above)));
    std::erase(makers.users, 0U);  // who prepares directories for others
    why = scopes_.why_not_shared(path, makers);
    if (!why.empty()) why = "of its directory " + last_component(above) + ": " + why;
  }
  return why;
}

bool Marks::is_for_these_facts(const std::string& path, const Provenance& found) const {
  const auto family = layout::classify(path).family;
  return found.is_for(host_.scope_of(family, architecture_of(path)).id) || found.is_for(host_.scope_of(family, {}).id);
}

bool Marks::is_in_no_environment(const std::string& path) const {
  return host_.learns() && environment_in(path).empty();
}

void Marks::has_no_scope(const std::string& path, uint64_t files) {
  if (is_in_no_environment(path)) return stays_here(path, std::string(kNoEnvironment), files);
  counters_.get("seal.unknown").add(files);  // a fact of this host is not known
}

void Marks::stays_here(const std::string& path, const std::string& why, uint64_t files) {
  counters_.get("seal.foreign").add(files);
  remember(path, why, files);
  log::write_limited(log::Level::kWarning, "seal.foreign", {{"path", shown_path(path)}, {"why", why}});
}

void Marks::still_here(const std::string& path, const std::string& why) {
  // The remedy that the earlier mount named may be in force by now, and does not help what is marked already.
  constexpr std::string_view kRemedy = "; remove it from the mount, so that it is made again and shared";
  remember(path, everyone_fits() ? "an earlier mount kept it here: " + why + std::string(kRemedy) : why, 1);
}

void Marks::remember(const std::string& path, const std::string& why, uint64_t files) {
  const auto found = disk_.stat(LocalTree::view(path));
  const Reason reason{why, found && *found ? std::optional((*found)->st_uid) : std::nullopt};
  foreign_.with([&](Foreign& foreign) {
    auto& reasons = foreign.reasons;
    foreign.files += files;
    if (std::ranges::find(reasons, reason) != reasons.end()) return;
    reasons.push_back(reason);
    if (reasons.size() > kReasonsKept)
      reasons.erase(std::ranges::find(reasons, owner_of_most(reasons), &Reason::owner));
  });
}

uint64_t Marks::foreign() const {
  return foreign_.with([](const Foreign& foreign) { return foreign.files; });
}

std::vector<std::string> Marks::reasons() const {
  return foreign_.with([](const Foreign& foreign) {
    std::vector<std::string> texts;
    for (const Reason& reason : foreign.reasons) {
      if (std::ranges::find(texts, reason.text) == texts.end()) texts.push_back(reason.text);
    }
    return texts;
  });
}

}  // namespace inductorfs::vfs
