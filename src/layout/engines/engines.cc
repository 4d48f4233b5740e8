// SPDX-License-Identifier: Apache-2.0
// What is asked of the table of engines.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/codec/parcel.h"
#include "layout/engines/engine.h"
#include "layout/name_shapes.h"

namespace inductorfs::layout {
namespace {

bool fits(const Component& component, std::string_view name) {
  if (component.shape != nullptr) return component.shape(name);
  if (name.size() != component.text.size() + component.digits + component.ending.size()) return false;
  if (!name.starts_with(component.text) || !name.ends_with(component.ending)) return false;
  return component.digits == 0 || consists_of(name.substr(component.text.size(), component.digits), kHex);
}

/// The components of a place's paths, without the first name of its tree.
size_t size_of(const EnginePlace& place) {
  const auto* const end = std::ranges::find_if(place.components, &Component::is_end);
  return static_cast<size_t>(end - place.components.begin());
}

const Component& last_of(const EnginePlace& place) { return place.components[size_of(place) - 1]; }

/// Says whether the path of the table is a directory that holds what is of the family, and is nothing of it itself.
bool holds_names(const EnginePlace& place) {
  const Component& last = last_of(place);
  return place.below == Below::kNames || (place.below == Below::kSame && last.shape == nullptr && last.digits == 0);
}

enum class Match : uint8_t {
  kNone,
  kLeads,  ///< a directory on the way
  kIs,
  kBelow,
};

/// Compares all components but the first, which is the tree's.
Match match(const EnginePlace& place, const PathParts& parts, size_t begin) {
  const size_t count = parts.count - begin - 1;
  const size_t size = size_of(place);
  for (size_t i = 0; i < std::min(count, size); ++i) {
    if (!fits(place.components[i], parts[begin + 1 + i])) return Match::kNone;
  }
  if (count > size) return place.below == Below::kNothing ? Match::kNone : Match::kBelow;
  return count == size ? Match::kIs : Match::kLeads;
}

/// Returns the tree that has the first name of the path; nullptr when the path is of no engine. classify() asks at each
/// component of a path whether a root ends there, and nearly always the first name says no.
const EngineTree* tree_of(const PathParts& parts, size_t begin) {
  for (const Engine* const engine : kEngines) {
    for (const EngineTree& tree : engine->trees) {
      if (fits(tree.first, parts[begin])) return &tree;
    }
  }
  return nullptr;
}

std::span<const EnginePlace> places_of(const PathParts& parts) {
  const EngineTree* const tree = tree_of(parts, 0);
  return tree == nullptr ? std::span<const EnginePlace>() : tree->places;
}

bool is_private_file(std::string_view name) {
  return std::ranges::any_of(kEngines, [name](const Engine* engine) {
    return std::ranges::any_of(engine->private_files,
                               [name](std::string_view begin) { return name.starts_with(begin); });
  });
}

Result<ParcelMembers> members_of(const Artefact& artefact) {
  auto head = codec::decode_parcel_head(artefact.bytes);
  if (!head && head.error().code() == ErrorCode::kNotSupported) return fail(std::move(head).error());
  if (!head) return corrupt(artefact, head.error().what());
  auto bodies = codec::parcel_bodies(*head, artefact.bytes);
  if (!bodies) return corrupt(artefact, bodies.error().what());
  ParcelMembers members;
  for (size_t i = 0; i < head->items.size(); ++i) {
    const codec::ParcelItem& item = head->items[i];
    if (item.directory) return corrupt(artefact, item.path + " is a directory");
    const auto [member, is_new] = members.try_emplace(item.path);
    if (is_new) member->second = {member->first, (*bodies)[i], (*bodies)[i].size()};
  }
  return members;
}

}  // namespace

const Engine* engine_of(Family family) {
  const auto* const found = std::ranges::find_if(kEngines, [family](const Engine* engine) {
    return engine->rules.front().family <= family && family <= engine->rules.back().family;
  });
  return found == std::end(kEngines) ? nullptr : *found;
}

bool is_plain_name(std::string_view name) {
  return name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_in(c, kBase64Url) || c == '.' || c == '+'; });
}

bool is_json_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".json";
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && is_plain_name(name);
}

bool is_identifier(std::string_view name) {
  const auto in_identifier = [](char c) { return is_in(c, kBase64Url) && c != '-'; };
  return !name.empty() && !is_in(name.front(), kDigit) && std::all_of(name.begin(), name.end(), in_identifier);
}

bool is_no_inner_root(std::string_view name) { return name != "inductor_cache" && name != "triton_cache"; }

bool is_of_an_engine(const PathParts& parts, size_t begin) {
  const EngineTree* const tree = tree_of(parts, begin);
  if (tree == nullptr) return false;
  // Directories of this program (`.inductorfs-...`), which nobody sees, are no names.
  size_t top = begin;
  while (top > 0 && parts[top - 1].starts_with(".inductorfs-")) --top;
  if (!tree->around.is_end() && top > 0 && !fits(tree->around, parts[top - 1])) return false;
  return std::ranges::any_of(tree->places,
                             [&](const EnginePlace& place) { return match(place, parts, begin) != Match::kNone; });
}

Family engine_family_of(const PathParts& parts) {
  for (const EnginePlace& place : places_of(parts)) {
    const Match found = match(place, parts, 0);
    if (found == Match::kNone || found == Match::kLeads) continue;
    if (found == Match::kIs && holds_names(place)) return Family::kOther;
    if (found == Match::kBelow && place.below == Below::kMembers) return Family::kParcelMember;
    return place.is_shared == nullptr || place.is_shared(parts.last) ? place.family : Family::kEnginePrivate;
  }
  return is_private_file(parts.last) ? Family::kEnginePrivate : Family::kOther;
}

std::optional<bool> is_common_to_engines(const PathParts& parts) {
  std::optional<bool> is_common;
  for (const EnginePlace& place : places_of(parts)) {
    const Match found = match(place, parts, 0);
    if (found == Match::kNone) continue;
    const bool is_name_of_all = found == Match::kLeads || (found == Match::kIs && holds_names(place));
    if (is_name_of_all || place.below == Below::kNames) return true;
    if (place.below == Below::kMembers) is_common = false;
  }
  return is_common;
}

std::optional<AskedKey> asked_by_directory(const std::string& canonical) {
  const PathParts parts = split(canonical);
  if (!parts.clean) return std::nullopt;
  for (const EnginePlace& place : places_of(parts)) {
    const Rule& rule = rule_of(place.family);
    if (parts.count != size_of(place) || match(place, parts, 0) != Match::kLeads) continue;
    if (rule.is_listed) return AskedKey{rule.family, canonical};
    if (rule.is_alone) return AskedKey{rule.family, canonical + "/" + std::string(last_of(place).text)};
  }
  return std::nullopt;
}

std::optional<std::string> index_beside(std::string_view path) {
  const std::string_view directory = path.substr(0, path.rfind('/') + 1);
  for (const Engine* const engine : kEngines) {
    if (engine->index.empty()) continue;
    std::string index(directory);
    index += engine->index;
    if (rule_of(classify(index).family).form == Form::kIndex) return index;
  }
  return std::nullopt;
}

Result<void> check_engine_artefact(const Engine& engine, const Classification& classified, const Artefact& artefact,
                                   const HostLimits& host) {
  const bool is_file = rule_of(classified.family).form == Form::kFile;
  INDUCTORFS_TRY_ASSIGN(const auto members, is_file ? ParcelMembers() : members_of(artefact));
  return engine.check({classified, artefact, host, members});
}

Result<const Artefact*> required(const EngineArtefact& parcel, std::string_view name) {
  const auto found = parcel.members.find(name);
  if (found == parcel.members.end()) return corrupt(parcel.artefact, "lacks " + std::string(name));
  if (found->second.size == 0) return corrupt(parcel.artefact, std::string(name) + " is empty");
  return &found->second;
}

Result<void> check_engine_library(const Artefact& artefact, const HostLimits& host) {
  HostLimits limits = host;
  limits.resolves = nullptr;
  return check_shared_object(artefact, limits);
}

}  // namespace inductorfs::layout
