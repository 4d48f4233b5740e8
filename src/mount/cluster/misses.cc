// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/misses.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/config/json.h"
#include "inductorfs/host/report.h"
#include "inductorfs/layout/scope.h"
#include "mount/cluster/hash_factors.h"

namespace inductorfs::mount {

using config::Json;

namespace {

constexpr size_t kMostExplained = 10;
constexpr size_t kMostScopes = 1000;
/// The scopes that are asked for a key; each has to be asked for itself.
constexpr size_t kMostAsked = 128;
constexpr Milliseconds kPatience{2'000};
/// Of one question in the background, for which the end of the mount waits.
constexpr Milliseconds kQuestionPatience{1'000};
/// How long the cluster's scopes are believed: a job misses many keys at once.
constexpr Milliseconds kScopesKept{30'000};

using Scopes = std::vector<remote::ScopeInformation>;
using vfs::UseKind;

/// As it is, for a name may have any byte.
std::string raw(const Json& miss, const char* name) { return miss.value(name, std::string()); }

/// The same for a path: what was looked up may be the directory of the artefact that was meant.
std::string artefact(const std::string& path) {
  const auto asked = layout::key_asked_by(path);
  const std::string canonical = layout::canonical_path(path);
  return asked && asked->key.starts_with(canonical + "/") ? path + asked->key.substr(canonical.size()) : path;
}

/// An artefact that may stand at this canonical path, or in this directory.
std::string content_at(const std::string& place) {
  constexpr size_t kContentHash = 51;
  return layout::is_candidate_directory(place) ? place + "/" + std::string(kContentHash, 'a') : place;
}

Json because(const char* reason, std::string text) { return {{"reason", reason}, {"text", std::move(text)}}; }

std::string followed_by(const std::string& why) { return why.empty() ? std::string() : ": " + why; }

/// What the cluster can say of misses. Confined to one thread.
class Misses {
 public:
  Misses(Layers& layers, const ClusterState& cluster) : layers_(layers), cluster_(cluster) {}

  [[nodiscard]] Json explain(const ledger::MissQuestion& miss, Deadline deadline) {
    deadline_ = deadline;
    const std::string place = artefact(miss.place);
    switch (miss.why) {
      case UseKind::kNothing:
      case UseKind::kRemoved:
        return explain_nothing(miss, place);
      case UseKind::kPrivate:
        return because("private", "nothing is shared there" + followed_by(explained(place).why_private) +
                                      "; `inductorfs status` names what is not known");
      case UseKind::kFrozen:
        return because("frozen", cluster_.why_frozen() + "; lift it with inductorfs freeze --lift");
      case UseKind::kDeleted:
        return because("deleted",
                       "the cluster has it, and a program has deleted it in this directory (rm, fresh_cache(), caches "
                       "that are switched off): it comes back when the directory is removed whole, or when a job has "
                       "made it anew");
      case UseKind::kUnfit:
        return because("unfit", "the cluster has it, and a check of this host refused it" +
                                    followed_by(layers_.catalog->why_unfit(layout::name_of(place))));
      case UseKind::kAway:
        return explain_away();
      case UseKind::kUnread:
        return because("unread",
                       "the mount, or this environment in it, had just begun, and what the cluster has was not read "
                       "yet; the next job finds it");
      case UseKind::kNoRoom:
        return because("no_room",
                       "the cluster has it, and the disk of --store had no room: give it room, or lower "
                       "--store-limit");
      case UseKind::kLost:
        return because("lost",
                       "the server had evicted or lost its bytes: see \"server\" in inductorfs status for its "
                       "memory");
      case UseKind::kLate:
        if (const vfs::Explanation now = explained(place); now.where == "store") {
          return because("unfit", now.why);  // its bytes are here, so that the server was not late: it was not unpacked
        }
        return because("late", "the bytes did not come within --lookup-patience: see \"remote\" in inductorfs status");
      case UseKind::kLocal:
      case UseKind::kCluster:
      case UseKind::kFetched:
      case UseKind::kMade:
      case UseKind::kAwaited:
      case UseKind::kRefused:
        break;
    }
    return because(ledger::Ledger::kUnexplained, "no reason fits: this is a defect of inductorfs");
  }

 private:
  [[nodiscard]] vfs::Explanation explained(const std::string& place) const {
    return layers_.file_system->inspection().explain(place);
  }

  [[nodiscard]] Json explain_away() const {
    const remote::Operators::Health health = layers_.remote.operators->health();
    return because("away", "the server was not asked, for it did not answer" +
                               (health.reachable ? " before" : followed_by(health.last_error)) +
                               "; what it has is not known: see \"remote\" in inductorfs status");
  }

  [[nodiscard]] Json explain_nothing(const ledger::MissQuestion& miss, const std::string& place) {
    const vfs::Explanation facts = explained(place);
    if (facts.scope_text.empty()) {
      return because("private", "nothing is shared there" + followed_by(facts.why_private) +
                                    "; `inductorfs status` names what is not known");
    }
    if (facts.visible && !facts.origin.empty() && facts.origin != layers_.origin) {
      return because("later", "another node (" + facts.origin + ") published it a moment later");
    }
    if (!cluster_.has_remote) {
      return because("local", "this mount has no --remote, so that it finds what was made in it alone");
    }
    if (miss.why == UseKind::kRemoved) return explain_removed(facts);
    const auto asked = layout::key_asked_by(artefact(miss.path));
    if (!asked || !learn_scopes()) {
      return because("away",
                     "nobody had published it for this environment as far as this mount knew, and whether "
                     "others have it cannot be asked" +
                         followed_by(trouble_));
    }
    const Scopes holders = holders_of(asked->key, facts.scope_text);
    if (trouble_.empty() && holders.empty()) return explain_first(facts);
    if (holders.empty()) return because("away", "whether others have it cannot be asked" + followed_by(trouble_));
    Json found = because("facts", "other nodes have this very key, made under other facts than count here");
    found["nearest"] = host::nearest_report(facts.scope_text, holders);
    return found;
  }

  [[nodiscard]] Json explain_removed(const vfs::Explanation& facts) const {
    if (const std::string purge = purge_of(facts); !purge.empty()) return because("purged", purge);
    return because("removed",
                   "the cluster had it and has it no more: the server has evicted it, an operator has purged it by its "
                   "digest, or it was found to be damaged, and nobody has made it since");
  }

  /// What a mount that has begun since knows: it was there before, or it was not.
  [[nodiscard]] std::string purge_of(const vfs::Explanation& facts) const {
    const std::string purge = cluster_.purged(content_at(facts.canonical), facts.scope);
    return purge.empty() ? purge
                         : "an operator has purged such artefacts (" + purge + "), and nobody has made it since";
  }

  [[nodiscard]] Json explain_first(const vfs::Explanation& facts) const {
    if (const std::string full = cluster_.why_full(); !full.empty()) {
      return because("full", "nobody has published it, and the server takes nothing: " + full);
    }
    if (const std::string purge = purge_of(facts); !purge.empty()) return because("purged", purge);
    return because("first",
                   "nobody in this cluster has published this key, under whatever facts" +
                       (left_out_ == 0 ? std::string()
                                       : " (the " + std::to_string(kMostAsked) + " nearest were asked, and not " +
                                             std::to_string(left_out_) + " others)") +
                       ": it is a compile that nobody has done, or torch's key has something that differs");
  }

  bool learn_scopes() {
    trouble_.clear();
    if (learned_ != SteadyTime{} && std::chrono::steady_clock::now() - learned_ < kScopesKept) return true;
    Result<Scopes> scopes = layers_.remote.index->list_scopes(kMostScopes, deadline_);
    if (scopes) {
      scopes_ = std::move(*scopes);
      learned_ = std::chrono::steady_clock::now();
    } else {
      trouble_ = "the cluster's scopes cannot be listed: " + scopes.error().what();
    }
    return trouble_.empty();
  }

  /// The scopes of the same facets that have the key, those first that differ in the fewest.
  [[nodiscard]] Scopes holders_of(const std::string& key, const std::string& scope) {
    std::vector<std::pair<size_t, const remote::ScopeInformation*>> others;
    for (const remote::ScopeInformation& other : scopes_) {
      if (other.text == scope || !host::have_same_facets(other.text, scope)) continue;
      others.emplace_back(layout::compare_scopes(scope, other.text).size(), &other);
    }
    std::stable_sort(others.begin(), others.end(),
                     [](const auto& one, const auto& two) { return one.first < two.first; });
    left_out_ = others.size() - std::min(others.size(), kMostAsked);
    if (left_out_ > 0) others.resize(kMostAsked);
    std::vector<remote::ScopeId> ids;
    for (const auto& [differences, other] : others) ids.push_back(other->id);
    const Result<std::vector<remote::ScopeId>> found = layers_.remote.index->scopes_with(key, ids, deadline_);
    if (!found) trouble_ = found.error().what();
    Scopes holders;
    for (const auto& [differences, other] : others) {
      if (found && std::find(found->begin(), found->end(), other->id) != found->end()) holders.push_back(*other);
    }
    return holders;
  }

  Layers& layers_;
  const ClusterState& cluster_;
  Deadline deadline_ = Deadline::after(kPatience);
  SteadyTime learned_{};  ///< when the scopes were listed
  Scopes scopes_;
  std::string trouble_;
  size_t left_out_ = 0;  ///< scopes that holders_of() did not ask
};

/// vLLM's names are hashes of its settings, and it asks for them first: behind them come the misses of a whole compile.
bool is_named_by_settings(const Json& miss) {
  const auto asked = layout::key_asked_by(raw(miss, "path"));
  return asked && (asked->family == layout::Family::kVllmModel || asked->family == layout::Family::kVllmIndex);
}

}  // namespace

Json explain_miss(const ledger::MissQuestion& miss, Layers& layers, const ClusterState& cluster, Deadline deadline) {
  return Misses(layers, cluster).explain(miss, deadline);
}

void compare_hashes(Json& report, Layers& layers) {
  const auto list = report.find("misses");
  if (list == report.end() || !list->is_array()) return;
  const Deadline deadline = Deadline::after(kPatience);
  size_t compared = 0;
  Json differs;
  for (Json& miss : *list) {
    const std::string reason = raw(miss, "reason");
    if (!is_named_by_settings(miss) || (reason != "first" && reason != "nothing")) continue;
    if (compared++ == kMostExplained) return;
    const std::string place = artefact(raw(miss, "place"));
    const std::string scope = layers.file_system->inspection().explain(place).scope;
    Json other = other_hash_report(layers, scope, place, deadline);
    miss["text"] = other.is_null()
                       ? "Nobody in this cluster has published this hash. Which variable differs can be said when this "
                         "host has compiled, and another hash of this environment is there"
                       : "Nobody had published this hash: vLLM's settings differ from those of other pods";
    if (other.is_null()) continue;
    miss["reason"] = "settings";
    miss["other_hash"] = std::move(other);
    differs = miss;
  }
  if (differs.is_null()) return;
  // The verdict of the job: these are the names that vLLM asks for first.
  for (Json& reason : report["reasons"]) {
    const std::string word = raw(reason, "reason");
    const bool is_vllms = config::to_line(reason["families"]).find("vllm_") != std::string::npos;
    if (!is_vllms || (word != "first" && word != "nothing")) continue;
    reason["reason"] = "settings";
    reason["text"] = differs["text"];
  }
}

void MissExplainer::start() {
  thread_ = start_thread("misses", [this](const std::stop_token& stop) {
    Misses misses(layers_, cluster_);
    while (true) {
      const std::vector<ledger::MissQuestion> asked = layers_.ledger->await_questions();
      if (asked.empty()) return;
      const Activity activity("finds out why jobs missed what they asked for");
      for (const ledger::MissQuestion& one : asked) {
        if (stop.stop_requested()) return;
        layers_.ledger->note_explained(one, misses.explain(one, Deadline::after(kQuestionPatience)));
      }
    }
  });
}

void MissExplainer::stop() {
  thread_.request_stop();
  layers_.ledger->stop_asking();
  if (thread_.joinable()) thread_.join();
}

}  // namespace inductorfs::mount
