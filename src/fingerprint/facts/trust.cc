// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/trust.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "fingerprint/common/background.h"
#include "fingerprint/common/child.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

/// The superuser is one on every host, whatever the name service calls him.
constexpr std::string_view kRoots = "user=root";

constexpr Milliseconds kServicePatience{5'000};
constexpr size_t kNameLimit = 4'096;
constexpr size_t kThreads = 2;
constexpr uint64_t kPasswdLimit = uint64_t{16} << 20;
/// getent(1): "one or more supplied key could not be found in the database".
constexpr int kNotFound = 2;
/// Root runs these: not what the PATH of whoever mounts has under such a name.
constexpr const char* kGetent = "/usr/bin/getent";
constexpr const char* kId = "/usr/bin/id";

std::string_view word_of(Account kind) { return kind == Account::kGroup ? "group" : "user"; }

/// A name is a part of a scope's text and of lines for people.
bool is_plain(std::string_view name) {
  constexpr size_t kLongest = 256;
  return !name.empty() && name.size() <= kLongest && name.front() != '#' &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c == '=' || c >= 0x7f; });
}

Result<std::string> ask_groups_of(const std::string& user) {
  ChildOptions options;
  options.bare = true;
  INDUCTORFS_TRY_ASSIGN(const auto answer, run_child({kId, "-G", user}, kServicePatience, options));
  if (answer.exit_code != 0) return std::string();  // "no such user"
  return answer.out.substr(0, answer.out.find('\n'));
}

/// The fields of a line of passwd(5) or group(5).
std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t end = 0; end != std::string_view::npos; line.remove_prefix(end + 1)) {
    end = line.find(':');
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return fields;
}

/// Those whom the group lists, and those of this host's own users whose first group it is: a directory service does not
/// list all of its users.
Result<std::string> ask_members_of(const std::string& group) {
  ChildOptions options;
  options.bare = true;
  INDUCTORFS_TRY_ASSIGN(const auto listed, run_child({kGetent, "group", group}, kServicePatience, options));
  if (listed.exit_code == kNotFound) return std::string();
  const auto fields = fields_of(std::string_view(listed.out).substr(0, listed.out.find('\n')));
  if (listed.exit_code != 0 || fields.size() != 4) {
    return fail(ErrorCode::kUnavailable, "getent ended with " + std::to_string(listed.exit_code));
  }
  std::string members(fields[3]);
  std::ranges::replace(members, ',', ' ');
  INDUCTORFS_TRY_ASSIGN(const auto users, read_file(AT_FDCWD, "/etc/passwd", kPasswdLimit));
  for (const std::string_view line : parts_of(users, '\n')) {
    const auto user = fields_of(line);
    if (user.size() > 3 && user[3] == group) members.append(" ").append(user[0]);
  }
  return members;
}

/// The first of these names, with blanks between them, that is another one.
std::string first_other(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(one.size() + 1, names.size()));
    if (!one.empty() && one != name) return std::string(one);
  }
  return {};
}

struct Name {
  bool asking = false;
  bool asked = false;     ///< at least once, whatever came of it
  bool answered = false;  ///< `text` is an answer, perhaps of a while ago
  std::string text;       ///< empty: nobody has this number
  std::string problem;    ///< of the last question
  SteadyTime at;          ///< of the last question's end
  uint64_t accounts = 0;  ///< Trust::accounts() before it
  [[nodiscard]] bool is_due() const {
    if (asking) return false;
    const bool is_good = answered && !text.empty() && problem.empty();
    return !asked || system_clock().now() - at >= (is_good ? Trust::kKeep : Trust::kAskAgain);
  }
};

using Key = std::pair<Account, id_t>;

}  // namespace

struct Trust::Names {
  explicit Names(AskName service) : ask(std::move(service)) {}
  const AskName ask;
  Guarded<std::map<Key, Name>> known;
  Background threads{"account-names", kThreads, kThreads};
};

std::string_view to_string(TrustPolicy policy) {
  if (policy == TrustPolicy::kUser) return "user";
  return policy == TrustPolicy::kGroup ? "group" : "all";
}

Result<TrustPolicy> trust_from_string(std::string_view word) {
  for (const TrustPolicy policy : {TrustPolicy::kUser, TrustPolicy::kGroup, TrustPolicy::kAll}) {
    if (word == to_string(policy)) return policy;
  }
  return fail(ErrorCode::kInvalid, "give user, group or all");
}

Result<std::string> ask_name_service(Account kind, id_t number) {
  const std::string wanted = std::to_string(number);
  if (kind == Account::kGroupsOf) return ask_groups_of(wanted);
  if (kind == Account::kMembers) return ask_members_of(wanted);
  ChildOptions options;
  options.bare = true;
  INDUCTORFS_TRY_ASSIGN(const auto answer, run_child({kGetent, kind == Account::kUser ? "passwd" : "group", wanted},
                                                     kServicePatience, options));
  if (answer.exit_code == kNotFound) return std::string();
  // "alice:x:1000:...": passwd(5), group(5).
  const size_t first = answer.out.find(':');
  const size_t second = first == std::string::npos ? first : answer.out.find(':', first + 1);
  const bool fits = second != std::string::npos && answer.out.compare(second + 1, wanted.size() + 1, wanted + ":") == 0;
  if (answer.exit_code != 0 || !fits) {
    return fail(ErrorCode::kUnavailable, "getent ended with " + std::to_string(answer.exit_code));
  }
  return answer.out.substr(0, first);
}

Trust::Trust(TrustPolicy policy, AskName ask, std::string directory)
    : policy_(policy), directory_(std::move(directory)), names_(std::make_shared<Names>(std::move(ask))) {}

uint64_t Trust::accounts() const {
  uint64_t mixed = 0;
  for (const char* name : {"/passwd", "/group"}) {
    struct stat status {};
    if (::stat((directory_ + name).c_str(), &status) != 0) continue;
    for (const auto number : {static_cast<uint64_t>(status.st_ino), static_cast<uint64_t>(status.st_ctim.tv_sec),
                              static_cast<uint64_t>(status.st_ctim.tv_nsec)}) {
      mixed = (mixed ^ number) * 0x9e3779b97f4a7c15ULL;
    }
  }
  return mixed;
}

Trust::~Trust() = default;

struct Trust::Answer {
  bool known = false;
  std::string text;
  std::string problem;
};

Fact Trust::of(uid_t owner, gid_t group, mode_t mode, Milliseconds patience) {
  if (policy_ == TrustPolicy::kAll) return known_fact(std::string(kNone), {});
  // Into a directory of root that others may write to anybody may put an artefact on this host, too.
  const bool is_roots_alone = (mode & (S_IWGRP | S_IWOTH)) == 0;
  if (owner == 0) return known_fact(std::string(is_roots_alone ? kRoots : kNone), {});
  if ((mode & S_IWOTH) != 0) {
    return unknown_fact("everybody may write to this directory of a user: chmod o-w it, or mount with --trust all", {});
  }
  return policy_ == TrustPolicy::kUser ? user_fact(owner, group, mode, patience) : group_fact(owner, group, patience);
}

Fact Trust::user_fact(uid_t owner, gid_t group, mode_t mode, Milliseconds patience) {
  Fact user = name_of(Account::kUser, owner, patience);
  if (!user.known || (mode & S_IWGRP) == 0) return user;
  // A group of that user's own, as most systems give to each user.
  const Fact of_group = name_of(Account::kGroup, group, patience);
  if (!of_group.known) return of_group;
  const auto name = [](const Fact& fact) { return fact.value.substr(fact.value.find('=') + 1); };
  std::string who = "the group " + name(of_group);
  if (name(of_group) == name(user)) {
    const Answer members = ask(Account::kMembers, group, patience);
    if (!members.known) return unknown_fact("the members of " + who + " are not known" + members.problem, {});
    const std::string other = first_other(members.text, name(user));
    if (other.empty()) return user;
    who = other + ", a member of " + who + ",";
  }
  return unknown_fact(who + " may write to this directory of a user: chmod g-w it, or mount with --trust group", {});
}

Fact Trust::group_fact(uid_t owner, gid_t group, Milliseconds patience) {
  Fact name = name_of(Account::kGroup, group, patience);
  if (!name.known) return name;
  const Answer groups = ask(Account::kGroupsOf, owner, patience);
  if (!groups.known)
    return unknown_fact("the groups of user " + std::to_string(owner) + " are not known" + groups.problem, {});
  // Below a set-group-ID directory anybody's directory has its group.
  if (is_member(owner, group)) return name;
  return unknown_fact("user " + std::to_string(owner) + ", to whom this directory belongs, is not in its group (" +
                          name.value.substr(6) + "): chgrp it, or mount with --trust user",
                      {});
}

bool Trust::is_asking(uid_t owner, gid_t group) const {
  if (policy_ == TrustPolicy::kAll || owner == 0) return false;
  const Account of_owner = policy_ == TrustPolicy::kUser ? Account::kUser : Account::kGroupsOf;
  return names_->known.with([&](const std::map<Key, Name>& known) {
    const auto waits = [&known](const Key& key) {
      const auto found = known.find(key);
      return found != known.end() && found->second.asking && !found->second.answered;
    };
    return waits({of_owner, owner}) || waits({Account::kGroup, group}) || waits({Account::kMembers, group});
  });
}

bool Trust::is_member(uid_t user, gid_t group, Milliseconds patience) {
  const Answer groups = ask(Account::kGroupsOf, user, patience);
  return groups.known && (" " + groups.text + " ").find(" " + std::to_string(group) + " ") != std::string::npos;
}

Fact Trust::name_of(Account kind, id_t number, Milliseconds patience) {
  const Answer answer = ask(kind, number, patience);
  const std::string who(word_of(kind));
  if (!answer.known) {
    return unknown_fact("the name of " + who + " " + std::to_string(number) + " is not known" + answer.problem +
                            "; see `getent " + (kind == Account::kUser ? "passwd " : "group ") +
                            std::to_string(number) + "`",
                        {});
  }
  return known_fact(who + "=" + (is_plain(answer.text) ? answer.text : "#" + std::to_string(number)), "getent");
}

Trust::Answer Trust::ask(Account kind, id_t number, Milliseconds patience) {
  const Key key{kind, number};
  bool first = false;
  const uint64_t accounts = this->accounts();
  const bool begins = names_->known.with([&](std::map<Key, Name>& known) {
    if (known.size() > kNameLimit) std::erase_if(known, [](const auto& one) { return !one.second.asking; });
    Name& name = known[key];
    // The number may be another user's by now, who must not pass for the earlier one until that is known.
    if (!name.asking && name.accounts != accounts) name = {};
    if (!name.asking) name.accounts = accounts;
    first = !name.asked;
    const bool due = name.is_due();
    name.asking = name.asking || due;
    name.asked = true;
    return due;
  });
  const auto keep = [key, names = std::weak_ptr(names_)](Result<std::string> answer) {
    const auto all = names.lock();
    if (!all) return;
    all->known.notify_with([&](std::map<Key, Name>& known) {
      Name& name = known[key];
      name.asking = false;
      name.asked = true;
      name.at = system_clock().now();
      name.problem = answer ? std::string() : answer.error().what();
      if (!answer) return;
      name.answered = true;
      name.text = std::move(*answer);
    });
  };
  if (begins) {
    const bool taken =
        names_->threads.run(number, [key, ask = names_->ask, keep] { keep(ask(key.first, key.second)); });
    if (!taken) keep(fail(ErrorCode::kUnavailable, "too many names wait for the name service"));
  }
  const auto is_there = [&](const std::map<Key, Name>& known) {
    const auto found = known.find(key);
    return found == known.end() || !found->second.asking;
  };
  return names_->known.wait_until(
      Deadline::after(first ? patience : Milliseconds(0)).at(), is_there, [&](std::map<Key, Name>& known) {
        const Name& name = known[key];
        return Answer{name.answered, name.text, name.problem.empty() ? " yet" : ": " + name.problem};
      });
}

}  // namespace inductorfs::fingerprint
