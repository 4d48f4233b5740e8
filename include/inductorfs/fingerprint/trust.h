// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// Who uses what the jobs of a cache root make. An artefact is code: whoever loads it runs it with his own rights.
namespace inductorfs::fingerprint {

/// `--trust`. What lies in directories of root that others may write to is everybody's under each of these.
enum class TrustPolicy {
  kUser,   ///< a user's roots share with the roots of the same user, on all hosts, if nobody else may write to them
  kGroup,  ///< they share with the roots of the same group, if its members alone may write to them
  kAll,    ///< all roots share with all
};
[[nodiscard]] std::string_view to_string(TrustPolicy policy);
[[nodiscard]] Result<TrustPolicy> trust_from_string(std::string_view word);

enum class Account {
  kUser,      ///< the name of a user
  kGroup,     ///< the name of a group
  kGroupsOf,  ///< the numbers of a user's groups, with a blank between them
  kMembers,   ///< the names of a group's members, with a blank between them; also those whose first group it is
};
/// Returns what is asked for, an empty text when nobody has this number, or an error when the name service does not
/// answer. It may block.
using AskName = std::function<Result<std::string>(Account kind, id_t number)>;
/// Asks the name service of this host (nsswitch.conf(5)) by getent(1) and id(1), in a child process with a
/// deadline: the service may be a network away, and its libraries stay out of this process.
[[nodiscard]] Result<std::string> ask_name_service(Account kind, id_t number);
/// Has a worker's examiner ask, which has the task.
[[nodiscard]] AskName ask_names_by(std::shared_ptr<const ExaminerLink> examiner);
inline constexpr std::string_view kNamesTask = "names";
[[nodiscard]] ExaminerTask names_task();

/// Says for cache roots what the trust facet of their artefacts is. Safe for concurrent use.
class Trust {
 public:
  /// `directory` has the files passwd and group of this host.
  explicit Trust(TrustPolicy policy, AskName ask = ask_name_service, std::string directory = "/etc");
  ~Trust();
  Trust(const Trust&) = delete;
  Trust& operator=(const Trust&) = delete;

  [[nodiscard]] TrustPolicy policy() const { return policy_; }
  /// Returns the facet for a root whose directory has this owner, group and mode: "none" for everybody, "user=NAME" or
  /// "group=NAME", with the number in place of a name where there is none ("user=#1000"). Unknown, with the reason,
  /// while the name service has not answered, and where others may write to the directory than those who share. Blocks
  /// for `patience` at most, and only when a number is asked for the first time. An answer is asked for anew in the
  /// background, after kKeep, or kAskAgain when it was none. When accounts() has changed, no earlier answer counts.
  [[nodiscard]] Fact of(uid_t owner, gid_t group, mode_t mode, Milliseconds patience = kFirstWait);
  /// Returns another number when this host's own files of users and groups have changed: a number may have been given
  /// to somebody else. Does two stat(2).
  [[nodiscard]] uint64_t accounts() const;
  /// Says whether the name service is being asked, for the first time, about what of() of this owner and group depends
  /// on: then of() has another answer soon. Does not block.
  [[nodiscard]] bool is_asking(uid_t owner, gid_t group) const;
  /// Says whether a user is known to be in a group. Blocks as of().
  [[nodiscard]] bool is_member(uid_t user, gid_t group, Milliseconds patience = kFirstWait);
  /// Says whether a group is known to have this user alone, as most systems give to each user. Blocks as of().
  [[nodiscard]] bool is_own_group(uid_t user, gid_t group) {
    return user_fact(user, group, kGroupWrites, kFirstWait).known;
  }
  static constexpr Milliseconds kFirstWait{250};
  static constexpr Milliseconds kKeep{300'000};
  static constexpr Milliseconds kAskAgain{60'000};
  static constexpr mode_t kGroupWrites = 0770;

 private:
  struct Names;
  struct Answer;
  [[nodiscard]] Answer ask(Account kind, id_t number, Milliseconds patience);
  [[nodiscard]] Fact name_of(Account kind, id_t number, Milliseconds patience);
  [[nodiscard]] Fact user_fact(uid_t owner, gid_t group, mode_t mode, Milliseconds patience);
  [[nodiscard]] Fact group_fact(uid_t owner, gid_t group, Milliseconds patience);
  const TrustPolicy policy_;
  const std::string directory_;
  const std::shared_ptr<Names> names_;
};

}  // namespace inductorfs::fingerprint
