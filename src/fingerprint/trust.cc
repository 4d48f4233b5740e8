// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/trust.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "background.h"
#include "child.h"
#include "facts.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::fingerprint {
namespace {

constexpr Milliseconds kServicePatience{5'000};
/// A directory service that is away for a while may say that a user does not exist.
constexpr Milliseconds kAskAgain{60'000};
constexpr size_t kNameLimit = 4'096;
constexpr size_t kThreads = 2;
/// getent(1): "one or more supplied key could not be found in the database".
constexpr int kNotFound = 2;

std::string_view word_of(Account kind) { return kind == Account::kUser ? "user" : "group"; }

/// A name is a part of a scope's text and of lines for people.
bool is_plain(std::string_view name) {
  constexpr size_t kLongest = 256;
  return !name.empty() && name.size() <= kLongest && name.front() != '#' &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c == '=' || c == 0x7f; });
}

struct Name {
  bool asking = false;
  bool answered = false;
  std::string text;  ///< empty: nobody has this number
  std::string problem;
  SteadyTime at;  ///< of the last answer
  [[nodiscard]] bool is_due() const {
    return !asking && (!answered || (text.empty() && system_clock().now() - at >= kAskAgain));
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
  ChildOptions options;
  options.bare = true;
  const std::string wanted = std::to_string(number);
  INDUCTORFS_TRY_ASSIGN(const auto answer, run_child({"getent", kind == Account::kUser ? "passwd" : "group", wanted},
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

Trust::Trust(TrustPolicy policy, AskName ask) : policy_(policy), names_(std::make_shared<Names>(std::move(ask))) {}

Trust::~Trust() = default;

Fact Trust::of(uid_t owner, gid_t group, mode_t mode) {
  if (policy_ == TrustPolicy::kAll || owner == 0) return known_fact(std::string(kNone), {});
  if (policy_ == TrustPolicy::kUser) return name_of(Account::kUser, owner);
  if ((mode & S_IWOTH) != 0) {
    return unknown_fact(
        "everybody may write to the directory of this cache root, and --trust is group: chmod o-w it, "
        "or mount with --trust all",
        {});
  }
  return name_of(Account::kGroup, group);
}

Fact Trust::name_of(Account kind, id_t number) {
  const Key key{kind, number};
  const auto begins = names_->known.with([&](std::map<Key, Name>& known) {
    if (known.size() > kNameLimit) std::erase_if(known, [](const auto& one) { return !one.second.asking; });
    Name& name = known[key];
    const bool due = name.is_due();
    name.asking = name.asking || due;
    return due;
  });
  const auto keep = [key, names = std::weak_ptr(names_)](Result<std::string> answer) {
    const auto all = names.lock();
    if (!all) return;
    all->known.notify_with([&](std::map<Key, Name>& known) {
      Name& name = known[key];
      name.asking = false;
      name.at = system_clock().now();
      name.problem = answer ? std::string() : answer.error().what();
      if (!answer) return;
      name.answered = true;
      name.text = is_plain(*answer) ? std::move(*answer) : std::string();
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
      Deadline::after(begins ? kFirstWait : Milliseconds(0)).at(), is_there, [&](std::map<Key, Name>& known) {
        const Name& name = known[key];
        const std::string who = std::string(word_of(kind));
        if (name.answered) {
          return known_fact(who + "=" + (name.text.empty() ? "#" + std::to_string(number) : name.text), "getent");
        }
        return unknown_fact("the name of " + who + " " + std::to_string(number) + " is not known" +
                                (name.problem.empty() ? " yet" : ": " + name.problem) + "; see `getent " +
                                (kind == Account::kUser ? "passwd " : "group ") + std::to_string(number) + "`",
                            {});
      });
}

}  // namespace inductorfs::fingerprint
