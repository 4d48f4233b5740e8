// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// kInvalid unless the id is the text's digest and both texts are within their limits and can be shown to a person.
[[nodiscard]] Result<void> check_information(const ScopeInformation& scope);

/// As it is stored:
///     value := version:u8=1 family_length:u8 family text
[[nodiscard]] std::string encode_information(const ScopeInformation& scope);
/// The longest that encode_information gives.
inline constexpr size_t kInformationLimit = 2 + kScopeFamilyLimit + kScopeTextLimit;
/// Nothing unless the value is one and belongs to this id.
[[nodiscard]] std::optional<ScopeInformation> decode_information(const ScopeId& id, std::string_view value);

/// What this process has announced, and when it has to say so again. Safe for concurrent use.
class Announcements {
 public:
  /// A host has a scope for each set of facets; what a process has announced beyond this is announced again.
  static constexpr size_t kLimit = 256;

  explicit Announcements(Milliseconds interval) : interval_(interval) {}

  /// True: the caller must send it now, and call failed() when that did not work.
  [[nodiscard]] bool claim(const ScopeInformation& scope, SteadyTime now);
  void failed(const ScopeId& id);
  /// What has to be sent again now, if anything. Claimed for one interval.
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
