// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "content_checks.h"

namespace inductorfs::layout {
namespace {

constexpr JsonLimits kAutotuneLimits{.bytes = size_t{32} << 20U, .depth = 16, .values = size_t{1} << 20U};
/// PersistentCache has cache[op][inputs][precision][choice]: a choice's timing is whole, whatever it looks like.
constexpr size_t kTimingDepth = 4;

/// Members of both, ours first and in our order. `depth` is the number of names that led here.
void merge_into(JsonValue& ours, JsonValue& theirs, size_t depth) {
  std::unordered_map<std::string_view, size_t> index;
  for (size_t i = 0; i < ours.names.size(); ++i) index.emplace(ours.names[i], i);
  // Appended apart: growing ours.names would move the strings that the index looks at.
  std::vector<size_t> missing;
  for (size_t i = 0; i < theirs.names.size(); ++i) {
    const auto found = index.find(theirs.names[i]);
    if (found == index.end()) {
      missing.push_back(i);
      continue;
    }
    JsonValue& our_value = ours.values[found->second];
    const bool both_objects = our_value.is_object() && theirs.values[i].is_object();
    if (both_objects && depth + 1 < kTimingDepth) merge_into(our_value, theirs.values[i], depth + 1);
  }
  for (const size_t i : missing) {
    ours.names.push_back(std::move(theirs.names[i]));
    ours.values.push_back(std::move(theirs.values[i]));
  }
}

/// Requires: the value has that member (parse_system_autotune).
JsonValue& member(JsonValue& value, std::string_view name) {
  const JsonValue* found = value.find(name);
  INDUCTORFS_CHECK(found != nullptr);
  return value.values[static_cast<size_t>(found - value.values.data())];
}

}  // namespace

Result<JsonValue> parse_system_autotune(std::string_view text) {
  auto document = parse_json(text, kAutotuneLimits);
  if (!document) return document;
  const JsonValue* system = document->find("system");
  const JsonValue* cache = document->find("cache");
  const bool known =
      document->names.size() == 2 && system != nullptr && system->is_object() && cache != nullptr && cache->is_object();
  if (!known) return fail(ErrorCode::kCorrupt, "not {\"system\": {...}, \"cache\": {...}}");
  return document;
}

Result<std::string> merge_system_autotune(std::string_view ours, std::string_view theirs) {
  auto our_document = parse_system_autotune(ours);
  if (!our_document) return fail(std::move(our_document).error().with_context("our timings"));
  auto their_document = parse_system_autotune(theirs);
  if (!their_document) return fail(std::move(their_document).error().with_context("the cluster's timings"));
  if (!same_json(*our_document->find("system"), *their_document->find("system"))) {
    return fail(ErrorCode::kCorrupt, "timings of two systems under one name");
  }
  merge_into(member(*our_document, "cache"), member(*their_document, "cache"), 0);
  std::string merged = python_dump_indented(*our_document);
  if (merged.size() > kAutotuneLimits.bytes) return fail(ErrorCode::kTooLarge, "the merged timings are too large");
  return merged;
}

}  // namespace inductorfs::layout
