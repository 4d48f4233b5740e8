// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "vfs/overlay.h"

namespace inductorfs::vfs {

Explanation Overlay::explain(std::string_view path) {
  Explanation result;
  result.path = std::string(path);
  const auto place = layout::classify(path);
  const auto& rule = layout::rule_of(place.family);
  const auto scope = scope_of_(place.family);
  result.canonical = place.canonical.empty() ? layout::canonical_path(path) : place.canonical;
  result.family = std::string(rule.name);
  result.rule = std::string(rule.why) + " (" + std::string(rule.source) + ")";
  result.scope = scope.id;
  result.scope_text = scope.text;
  result.why_private = scope.why_private;
  explain_place(result);
  if (const auto state = catalog_.publish_state(result.canonical)) {
    switch (state->state) {
      case catalog::PublishState::kQueued:
        result.publish = "queued" + (state->why.empty() ? std::string() : ": " + state->why);
        break;
      case catalog::PublishState::kPublished:
        result.publish = "published";
        break;
      case catalog::PublishState::kKeptLocal:
        result.publish = "kept local: " + state->why;
        break;
      case catalog::PublishState::kRefused:
        result.publish = "refused: " + state->why;
        break;
    }
  }
  return result;
}

void Overlay::explain_place(Explanation& result) {
  const auto status = moves_.read([&](const Moves&) { return tree_.stat(LocalTree::view(result.path)); });
  const auto known = catalog_.find(result.canonical);
  if (status && *status) {
    result.visible = true;
    if (S_ISDIR((*status)->st_mode)) {
      result.where = "directory";
      result.why = "made on this host";
      return;
    }
    auto file = tree_.open_file(LocalTree::view(result.path), false);
    const auto seal = file ? tree_.seal_of(file->get()) : std::nullopt;
    result.where = seal ? "sealed local file" : "local file";
    result.digest = seal.value_or("");
    result.origin = options_.origin;
    result.why = seal ? "written on this host, and sealed" : "written on this host, and private so far";
    return;
  }
  if (!known) {
    result.visible = has_entries_below(result.canonical);
    result.where = result.visible ? "directory" : "nowhere";
    if (result.visible) {
      result.why = "entries of the cluster lie below it";
    } else {
      result.why = result.scope.empty() ? "no file here, and " + result.why_private
                                        : "no file here, and the cluster has no such entry in this scope";
    }
    return;
  }
  result.digest = known->entry.digest.to_hex();
  result.origin = known->entry.origin;
  result.where = store_.find(known->entry.digest) ? "store" : "cluster";
  result.visible = true;
  result.why = result.where == "store" ? "published by " + known->entry.origin + ", and its bytes are on this host"
                                       : "published by " + known->entry.origin + "; fetched and verified at first use";
}

}  // namespace inductorfs::vfs
