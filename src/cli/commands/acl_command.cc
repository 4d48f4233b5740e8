// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/mount/cluster_control.h"

namespace inductorfs::cli {
namespace {

using remote::Role;

constexpr std::array<std::pair<const char*, Role>, 4> kRoles = {{{"publisher", Role::kPublisher},
                                                                 {"consumer", Role::kConsumer},
                                                                 {"operator", Role::kOperator},
                                                                 {"sweeper", Role::kSweeper}}};

class AclCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    KnownWord& role = words.add("ROLE", &role_, "what the user does");
    role.required = true;
    for (const auto& [name, _] : kRoles) role.among.emplace_back(name);
    words.add("--prefix", &prefix_, "begin of every key, as for mount [ifs1]", "TEXT");
    words.add("--user", &user_, "name of the user [inductorfs-ROLE]", "NAME");
  }
  [[nodiscard]] Result<void> check() const override {
    for (const auto& [name, text] : {std::pair("--prefix", &prefix_), std::pair("--user", &user_)}) {
      if (text == &user_ && text->empty()) continue;
      if (!remote::is_good_prefix(*text)) {
        return fail(ErrorCode::kInvalid, std::string(name) + ": give 1 to 64 characters: letters, digits and -_.");
      }
    }
    return {};
  }
  [[nodiscard]] int run(const config::Environment&) override {
    const auto* const role = std::ranges::find(kRoles, role_, [](const auto& one) { return std::string(one.first); });
    return print(remote::acl_line(role->second, prefix_, user_.empty() ? "inductorfs-" + role_ : user_) + "\n");
  }

 private:
  std::string role_;
  std::string prefix_{defaults::kPrefix};
  std::string user_;
};

}  // namespace

std::unique_ptr<Subcommand> acl_command() { return std::make_unique<AclCommand>(); }

}  // namespace inductorfs::cli
