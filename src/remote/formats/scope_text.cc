// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/scope_text.h"

#include <algorithm>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::remote {
namespace {

constexpr uint8_t kVersion = 1;

/// These texts come from other hosts and end up on an operator's terminal.
bool is_showable(std::string_view text) {
  while (!text.empty()) {
    const size_t length = text.front() == '\n' || text.front() == '\t' ? 1 : showable_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Result<void> check_information(const ScopeInformation& scope) {
  if (scope.family.empty() || scope.family.size() > kScopeFamilyLimit || !is_showable(scope.family)) {
    return fail(ErrorCode::kInvalid, "a family's name has 1 to " + std::to_string(kScopeFamilyLimit) + " characters");
  }
  if (scope.text.size() > kScopeTextLimit || !is_showable(scope.text)) {
    return fail(ErrorCode::kInvalid, "a scope's text has at most " + std::to_string(kScopeTextLimit) +
                                         " bytes of UTF-8, none of them a control character");
  }
  if (codec::digest_of(scope.text).to_hex() != scope.id) {
    return fail(ErrorCode::kInvalid, "a scope's id is the digest of its text");
  }
  return {};
}

std::string encode_information(const ScopeInformation& scope) {
  std::string value;
  append_integer(value, kVersion);
  append_integer(value, static_cast<uint8_t>(scope.family.size()));
  return value + scope.family + scope.text;
}

std::optional<ScopeInformation> decode_information(const ScopeId& id, std::string_view value) {
  if (value.size() > kInformationLimit) return std::nullopt;
  ByteReader reader(value);
  const auto version = reader.integer<uint8_t>();
  const std::string_view family = reader.bytes(reader.integer<uint8_t>());
  const std::string_view text = reader.bytes(reader.left());
  if (!reader.complete() || version != kVersion) return std::nullopt;
  ScopeInformation scope{id, std::string(family), std::string(text)};
  if (!check_information(scope)) return std::nullopt;
  return scope;
}

bool Announcements::claim(const ScopeInformation& scope, SteadyTime now) {
  return known_.with([&](Known& known) {
    if (known.contains(scope.id)) return false;
    if (known.size() >= kLimit) {
      known.erase(std::ranges::min_element(known, {}, [](const auto& one) { return one.second.at; }));
    }
    known.emplace(scope.id, Sent{scope, now});
    return true;
  });
}

void Announcements::failed(const ScopeId& id) {
  known_.with([&](Known& known) { known.erase(id); });
}

std::optional<ScopeInformation> Announcements::due(const ScopeId& id, SteadyTime now) {
  return known_.with([&](Known& known) -> std::optional<ScopeInformation> {
    const auto found = known.find(id);
    if (found == known.end() || now - found->second.at < interval_) return std::nullopt;
    found->second.at = now;
    return found->second.scope;
  });
}

}  // namespace inductorfs::remote
