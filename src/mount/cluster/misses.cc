// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/misses.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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
constexpr size_t kMostAsked = 64;
constexpr Milliseconds kPatience{2'000};

using Scopes = std::vector<remote::ScopeInformation>;

/// As it is, for a name may have any byte.
std::string raw(const Json& miss, const char* name) { return miss.value(name, std::string()); }

/// The same for a path: what was looked up may be the directory of the artefact that was meant.
std::string artefact(const Json& miss, const char* name) {
  std::string path = raw(miss, name);
  const auto asked = layout::key_asked_by(path);
  const std::string canonical = layout::canonical_path(path);
  return asked && asked->key.starts_with(canonical + "/") ? path + asked->key.substr(canonical.size()) : path;
}

/// What the cluster can say of misses. Confined to one request.
class Misses {
 public:
  explicit Misses(Layers& layers) : layers_(layers) {}

  void explain(Json& miss) {
    const std::string why = raw(miss, "why");
    const vfs::Explanation now = layers_.file_system->inspection().explain(artefact(miss, "place"));
    if (now.visible) {
      miss["text"] = "was not here then, and is by now: " + now.why;
      // What a pod has compiled since does not say why it had to.
      if (why == "nothing" && now.origin == layers_.origin) (void)explain_hash(miss);
    } else if (why == "nothing") {
      explain_nothing(miss);
    } else if (why == "private") {
      miss["text"] = "nothing of the cluster is shown there" + (now.why_private.empty() ? "" : ": " + now.why_private);
    } else if (why == "unfit" || (why == "late" && now.where == "store")) {
      miss["text"] = now.why;  // its bytes are here, so that the cluster was not late: it was not unpacked
    } else {
      miss["text"] = why == "late" ? "the cluster did not send it in time, or was away"
                                   : "the cluster named it, and had lost its bytes";
    }
  }

 private:
  void explain_nothing(Json& miss) {
    const std::string path = artefact(miss, "path");
    const auto asked = layout::key_asked_by(path);
    const std::string scope = scope_text_at(artefact(miss, "place"));
    if (!asked || scope.empty() || !learn_scopes()) {
      miss["text"] =
          "nobody has published it for this environment" + (trouble_.empty() ? std::string() : "; " + trouble_);
      return;
    }
    const Scopes holders = holders_of(asked->key, scope);
    if (holders.empty()) {
      if (!explain_hash(miss)) {
        miss["text"] =
            "nobody in this cluster has published this key, under whatever facts: it is a compile that nobody "
            "has done, or torch's key has something that differs";
      }
      return;
    }
    miss["nearest"] = host::nearest_report(scope, holders);
    miss["text"] = "other hosts have this very key, for which other facts count than here";
  }

  /// The name of vLLM's artefacts is a hash of its settings: that nobody has this one says nothing by itself. Returns
  /// false for other families.
  [[nodiscard]] bool explain_hash(Json& miss) {
    const layout::Family family = layout::classify(artefact(miss, "path")).family;
    if (family != layout::Family::kVllmModel && family != layout::Family::kVllmIndex) return false;
    const std::string place = artefact(miss, "place");
    const std::string scope = layers_.file_system->inspection().explain(place).scope;
    Json report = other_hash_report(layers_, scope, place, deadline_);
    miss["text"] = raw(miss, "text") + (raw(miss, "text").empty() ? "" : ". ") +
                   (report.is_null() ? "Nobody in this cluster has published this hash. Which variable differs can be "
                                       "said when this host has compiled, and another hash of this environment is there"
                                     : "Nobody had published this hash: vLLM's settings differ from those of other "
                                       "pods");
    if (!report.is_null()) miss["other_hash"] = std::move(report);
    return true;
  }

  /// The facts of the artefacts that would stand at this place. Those of a key directory are those of its files.
  [[nodiscard]] std::string scope_text_at(const std::string& place) const {
    constexpr size_t kContentHash = 51;
    const bool is_directory = layout::is_candidate_directory(place);
    return layers_.file_system->inspection()
        .explain(is_directory ? place + "/" + std::string(kContentHash, 'a') : place)
        .scope_text;
  }

  bool learn_scopes() {
    if (std::exchange(asked_, true)) return trouble_.empty();
    Result<Scopes> scopes = layers_.remote.index->list_scopes(kMostScopes, deadline_);
    if (scopes) {
      scopes_ = std::move(*scopes);
    } else {
      trouble_ = "the cluster's scopes cannot be listed: " + scopes.error().what();
    }
    return trouble_.empty();
  }

  /// The scopes of the same facets that have the key, those first that differ in the fewest.
  [[nodiscard]] Scopes holders_of(const std::string& key, const std::string& scope) {
    std::vector<std::pair<size_t, const remote::ScopeInformation*>> others;
    const size_t facets = layout::parse_scope_text(scope).facets.size();
    for (const remote::ScopeInformation& other : scopes_) {
      if (other.text == scope || layout::parse_scope_text(other.text).facets.size() != facets) continue;
      others.emplace_back(layout::compare_scopes(scope, other.text).size(), &other);
    }
    std::stable_sort(others.begin(), others.end(),
                     [](const auto& one, const auto& two) { return one.first < two.first; });
    if (others.size() > kMostAsked) others.resize(kMostAsked);
    std::vector<remote::ScopeId> ids;
    for (const auto& [differences, other] : others) ids.push_back(other->id);
    const Result<std::vector<remote::ScopeId>> found = layers_.remote.index->scopes_with(key, ids, deadline_);
    Scopes holders;
    for (const auto& [differences, other] : others) {
      if (found && std::find(found->begin(), found->end(), other->id) != found->end()) holders.push_back(*other);
    }
    return holders;
  }

  Layers& layers_;
  const Deadline deadline_ = Deadline::after(kPatience);
  bool asked_ = false;
  Scopes scopes_;
  std::string trouble_;
};

/// vLLM's names are hashes of its settings, and it asks for them first: behind them come the misses of a whole compile.
bool is_named_by_settings(const Json& miss) {
  const auto asked = layout::key_asked_by(raw(miss, "path"));
  return asked && (asked->family == layout::Family::kVllmModel || asked->family == layout::Family::kVllmIndex);
}

}  // namespace

void explain_misses(Json& report, Layers& layers) {
  const auto list = report.find("misses");
  if (list == report.end() || !list->is_array()) return;
  Misses misses(layers);
  for (const bool by_settings : {true, false}) {
    size_t explained = 0;
    for (Json& miss : *list) {
      if (is_named_by_settings(miss) != by_settings) continue;
      if (explained++ < kMostExplained) misses.explain(miss);
    }
  }
}

}  // namespace inductorfs::mount
