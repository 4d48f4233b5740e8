// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/remote/index.h"

namespace inductorfs::remote {

/// Checks a scope's information. kInvalid unless the id is the text's digest, and both texts are within their limits
/// and can be shown to a person.
[[nodiscard]] Result<void> check_information(const ScopeInformation& scope);

/// Encodes a scope's information as it is stored:
///     value := version:u8=1 family_length:u8 family text
[[nodiscard]] std::string encode_information(const ScopeInformation& scope);
/// The longest value that encode_information() returns.
inline constexpr size_t kInformationLimit = 2 + kScopeFamilyLimit + kScopeTextLimit;
/// Decodes a value; empty unless it is well formed and belongs to this id.
[[nodiscard]] std::optional<ScopeInformation> decode_information(const ScopeId& id, std::string_view value);

/// Remembers what this process has announced, and when it has to announce it again. Safe for concurrent use.
class Announcements {
 public:
  /// A host has a scope for each set of facets. Scopes beyond this number are forgotten, and so announced again.
  static constexpr size_t kLimit = 256;

  explicit Announcements(Milliseconds interval) : interval_(interval) {}

  /// Returns true when the caller must send the announcement now; the caller calls failed() when that did not work.
  [[nodiscard]] bool claim(const ScopeInformation& scope, SteadyTime now);
  void failed(const ScopeId& id);
  /// Returns the announcement that has to be sent again now, if any, and claims it for one interval.
  [[nodiscard]] std::optional<ScopeInformation> due(const ScopeId& id, SteadyTime now);

 private:
  struct Sent {
    ScopeInformation scope;
    SteadyTime at{};
  };
  using Known = std::map<ScopeId, Sent>;

  const Milliseconds interval_;
  Guarded<Known> known_;
};

}  // namespace inductorfs::remote
