// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// Who uses what the jobs of a cache root make. An artefact is code: whoever loads it runs it with his own rights.
namespace inductorfs::fingerprint {

/// `--trust`. What lies in directories of root is everybody's under each of these.
enum class TrustPolicy {
  kUser,   ///< a user's roots share with the roots of the same user, on all hosts
  kGroup,  ///< they share with the roots of the same group
  kAll,    ///< all roots share with all
};
[[nodiscard]] std::string_view to_string(TrustPolicy policy);
[[nodiscard]] Result<TrustPolicy> trust_from_string(std::string_view word);

enum class Account { kUser, kGroup };
/// Returns the name of a user or group, an empty text when there is none of this number, or an error when the name
/// service does not answer. It may block.
using AskName = std::function<Result<std::string>(Account kind, id_t number)>;
/// Asks the name service of this host (nsswitch.conf(5)) by getent(1), in a child process with a deadline: the service
/// may be a network away, and its libraries stay out of this process.
[[nodiscard]] Result<std::string> ask_name_service(Account kind, id_t number);

/// Says for cache roots what the trust facet of their artefacts is. Safe for concurrent use.
class Trust {
 public:
  explicit Trust(TrustPolicy policy, AskName ask = ask_name_service);
  ~Trust();
  Trust(const Trust&) = delete;
  Trust& operator=(const Trust&) = delete;

  [[nodiscard]] TrustPolicy policy() const { return policy_; }
  /// Returns the facet for a root whose directory has this owner, group and mode: "none" for everybody, "user=NAME" or
  /// "group=NAME", with the number in place of a name where there is none ("user=#1000"). Unknown, with the reason,
  /// while the name service has not answered, and for a group whose directory everybody may write to. Blocks for
  /// kFirstWait at most, when a number is asked for the first time.
  [[nodiscard]] Fact of(uid_t owner, gid_t group, mode_t mode);
  static constexpr Milliseconds kFirstWait{250};

 private:
  struct Names;
  [[nodiscard]] Fact name_of(Account kind, id_t number);
  const TrustPolicy policy_;
  const std::shared_ptr<Names> names_;
};

}  // namespace inductorfs::fingerprint
