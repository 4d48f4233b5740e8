// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/user_charges.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <tuple>

#include "inductorfs/base/log.h"
#include "inductorfs/base/own_user.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr int64_t kHour = 3600;

int64_t seconds_now() {
  const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since_boot).count() + 1;
}

uint32_t blocks_of(uint64_t size) {
  return static_cast<uint32_t>(std::min<uint64_t>(size / kBlock + (size % kBlock != 0 ? 1 : 0), UINT32_MAX));
}

std::optional<struct stat> look(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? std::optional(status) : std::nullopt;
}

/// The store's own name does not count.
uint32_t names_of(const struct stat& status, UserCharges::Holds holds) {
  if (S_ISDIR(status.st_mode)) return 1;
  const auto names = static_cast<uint32_t>(std::min<uint64_t>(status.st_nlink, UINT32_MAX));
  return std::max(names - (holds == UserCharges::Holds::kBlob && names > 0 ? 1U : 0U), 1U);
}

/// Exact: whoever is refused has taken nothing meanwhile.
bool add_within(std::atomic<int64_t>& total, int64_t more, uint64_t most) {
  int64_t now = total.load();
  do {
    if (static_cast<uint64_t>(std::max<int64_t>(now + more, 0)) > most) return false;
  } while (!total.compare_exchange_weak(now, now + more));
  return true;
}

}  // namespace

UserCharges::NewFile::~NewFile() {
  if (charges_ != nullptr) charges_->user(user_).files.fetch_sub(1);
}

UserCharges::UserCharges(Limits limits) : limits_(limits), own_(own_uid()) {}

UserCharges::User& UserCharges::user(uid_t id) {
  return users_[id % kShards].with([&](Users& users) -> User& {
    auto& one = users[id];
    if (!one) one = std::make_unique<User>(id);
    return *one;
  });
}

tl::unexpected<Error> UserCharges::refuse(User& user, const char* what, uint64_t limit) {
  const int64_t now = seconds_now();
  if (now - user.refused_at.exchange(now) > kHour) user.refused = 0;
  user.refused.fetch_add(1);
  int64_t told = user.told.load();
  if ((told == 0 || now - told > kHour) && user.told.compare_exchange_strong(told, now)) {
    log::write_limited(log::Level::kWarning, "view.over_limit", {{"user", user.id}, {"of", what}, {"limit", limit}});
  }
  return fail(ErrorCode::kOverQuota, "user " + std::to_string(user.id) + " has as many " + what + " as one may have");
}

Result<UserCharges::NewFile> UserCharges::admit(uid_t id) {
  User& owner = user(id);
  if (limits_.files == 0 || !is_limited(id)) {
    owner.files.fetch_add(1);
  } else if (!add_within(owner.files, 1, limits_.files)) {
    return refuse(owner, "files", limits_.files);
  }
  return NewFile(*this, id);
}

UserCharges::NewFile UserCharges::admit_made(uid_t id) {
  user(id).files.fetch_add(1);
  return {*this, id};
}

Result<bool> UserCharges::admit(int file, uint64_t size) {
  const auto status = look(file);
  if (!status) return true;
  return shard(status->st_ino).with([&](Charges& charges) -> Result<bool> {
    const auto known = charges.find(status->st_ino);
    // One that is written to is no blob's any more.
    if (known == charges.end() || known->second.holds == Holds::kBlob) return false;
    Charge& charge = known->second;
    const uint32_t blocks = blocks_of(size);
    if (charge.holds == Holds::kBytes && blocks > charge.blocks) {
      INDUCTORFS_TRY(add_blocks(user(charge.user), int64_t{blocks} - charge.blocks));
      charge.blocks = blocks;
    }
    ++charge.writers;
    return true;
  });
}

Result<void> UserCharges::add_blocks(User& user, int64_t more, int64_t replaced) {
  const uint64_t most = limits_.bytes / kBlock + static_cast<uint64_t>(replaced);
  if (limits_.bytes == 0 || !is_limited(user.id)) {
    user.blocks.fetch_add(more);
  } else if (!add_within(user.blocks, more, most)) {
    return refuse(user, "bytes", limits_.bytes);
  }
  return {};
}

int64_t UserCharges::blocks_of_inode(uint64_t inode) {
  return shard(inode).with([&](Charges& charges) -> int64_t {
    const auto known = charges.find(inode);
    return known == charges.end() || known->second.names > 1 ? 0 : known->second.blocks;
  });
}

Result<void> UserCharges::may_copy(uint64_t size, uid_t id, uint64_t replaced) {
  User& owner = user(id);
  if (limits_.bytes == 0 || !is_limited(id)) return {};
  const int64_t less = replaced == 0 ? 0 : blocks_of_inode(replaced);
  const int64_t then = owner.blocks.load() + blocks_of(size) - less;
  return then <= static_cast<int64_t>(limits_.bytes / kBlock) ? Result<void>{} : refuse(owner, "bytes", limits_.bytes);
}

Result<void> UserCharges::admit_copy(int file, uid_t id, uint64_t replaced) {
  const auto made = look(file);
  if (!made) return {};
  const int64_t less = replaced == 0 ? 0 : blocks_of_inode(replaced);
  return shard(made->st_ino).with([&](Charges& charges) -> Result<void> {
    const uint32_t blocks = blocks_of(static_cast<uint64_t>(made->st_size));
    if (const auto stale = charges.find(made->st_ino); stale != charges.end()) take(charges, stale);
    User& owner = user(id);
    INDUCTORFS_TRY(add_blocks(owner, blocks, less));
    owner.files.fetch_add(1);
    charges.emplace(made->st_ino, Charge{id, blocks, 1, Holds::kBytes});
    return {};
  });
}

void UserCharges::take(Charges& charges, Charges::iterator at) {
  User& owner = user(at->second.user);
  owner.blocks.fetch_sub(at->second.blocks);
  owner.files.fetch_sub(at->second.names);
  charges.erase(at);
}

void UserCharges::put(Charges& charges, uint64_t inode, Charge charge, NewFile* made) {
  if (const auto known = charges.find(inode); known != charges.end()) {
    charge.writers = known->second.writers;
    const bool is_written = charge.writers > 0 && charge.holds == known->second.holds;
    if (is_written) charge.blocks = std::max(charge.blocks, known->second.blocks);
    take(charges, known);
  }
  User& owner = user(charge.user);
  owner.blocks.fetch_add(charge.blocks);
  const bool has_place = made != nullptr && made->charges_ == this && made->user_ == charge.user;
  if (has_place) made->charges_ = nullptr;
  owner.files.fetch_add(int64_t{charge.names} - (has_place ? 1 : 0));
  charges.emplace(inode, charge);
}

void UserCharges::count(int file, const Owner& owner, NewFile* made, bool known_too) {
  const auto named = look(file);
  if (!named) return;
  shard(named->st_ino).with([&](Charges& charges) {
    const auto now = look(file);  // under the lock, so that who looks last has seen all changes
    if (!now || now->st_nlink == 0 || (!known_too && charges.contains(now->st_ino))) return;
    const uint32_t blocks = owner.holds == Holds::kBytes ? blocks_of(static_cast<uint64_t>(now->st_size)) : 0;
    if (owner.holds == Holds::kBlob && now->st_nlink == 1) {  // its name has gone since it was looked at
      if (const auto known = charges.find(now->st_ino); known != charges.end()) take(charges, known);
      return;
    }
    put(charges, now->st_ino, {owner.user, blocks, names_of(*now, owner.holds), owner.holds}, made);
  });
}

void UserCharges::resize(int file) {
  const auto named = look(file);
  if (!named) return;
  shard(named->st_ino).with([&](Charges& charges) {
    const auto known = charges.find(named->st_ino);
    const auto now = look(file);
    if (known == charges.end()) return;
    Charge& charge = known->second;
    if (charge.writers > 0) --charge.writers;
    if (charge.holds != Holds::kBytes || !now) return;
    const uint32_t blocks = blocks_of(static_cast<uint64_t>(now->st_size));
    // Another one may be about to make it as large as was admitted.
    if (charge.writers > 0 && blocks < charge.blocks) return;
    user(charge.user).blocks.fetch_add(int64_t{blocks} - charge.blocks);
    charge.blocks = blocks;
  });
}

void UserCharges::left_store(uint64_t inode, uint64_t size) {
  shard(inode).with([&](Charges& charges) {
    const auto known = charges.find(inode);
    if (known == charges.end() || known->second.holds != Holds::kBlob) return;
    known->second.holds = Holds::kBytes;
    known->second.blocks = blocks_of(size);
    user(known->second.user).blocks.fetch_add(known->second.blocks);
  });
}

void UserCharges::count_names(int file, bool lost_in_view) {
  const auto left = look(file);
  if (!left) return;
  shard(left->st_ino).with([&](Charges& charges) {
    const auto known = charges.find(left->st_ino);
    if (known == charges.end()) return;
    const bool is_only_blob = known->second.holds == Holds::kBlob && (lost_in_view || left->st_nlink == 1);
    if (left->st_nlink == 0 || is_only_blob) return take(charges, known);
    const uint32_t names = names_of(*left, known->second.holds);
    user(known->second.user).files.fetch_add(int64_t{names} - known->second.names);
    known->second.names = names;
  });
}

void UserCharges::forget(uint64_t inode) {
  shard(inode).with([&](Charges& charges) {
    if (const auto known = charges.find(inode); known != charges.end()) take(charges, known);
  });
}

void UserCharges::may_miss() {
  Count begun = Count::kBegun;
  (void)count_.compare_exchange_strong(begun, Count::kAgain);  // else none goes on, or it is known already
}

bool UserCharges::end_count(bool in_any_case) {
  Count begun = Count::kBegun;
  if (count_.compare_exchange_strong(begun, Count::kDone)) return true;
  if (in_any_case) count_.store(Count::kDone);
  return in_any_case;
}

std::vector<UserHolding> UserCharges::report(size_t most) const {
  std::vector<UserHolding> all;
  const int64_t now = seconds_now();
  const auto positive = [](int64_t number) { return static_cast<uint64_t>(std::max<int64_t>(number, 0)); };
  for (const auto& shard : users_) {
    shard.with([&](const Users& users) {
      for (const auto& [id, user] : users) {
        const UserHolding one{id, positive(user->blocks.load()) * kBlock, positive(user->files.load()), is_limited(id),
                              now - user->refused_at < kHour ? user->refused.load() : 0};
        if (one.files > 0 || one.refused > 0) all.push_back(one);
      }
    });
  }
  std::sort(all.begin(), all.end(), [](const UserHolding& one, const UserHolding& other) {
    return std::tuple(one.refused > 0, one.bytes, one.files) > std::tuple(other.refused > 0, other.bytes, other.files);
  });
  all.resize(std::min(all.size(), most));
  return all;
}

}  // namespace inductorfs::vfs
