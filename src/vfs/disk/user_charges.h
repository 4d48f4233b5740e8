// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/vfs/report.h"

namespace inductorfs::vfs {

/// What each user has on the local disk, and how much of it one user may have: to the disk's own quotas all is the
/// daemon's. A file counts for its owner, as one for each of its names, and with its size in whole blocks of 4 KiB, so
/// that a hole counts too: what is refused is refused where a program asks for it, and not where the kernel writes a
/// mapping back. It is known what each inode was counted with; whoever has changed one has it looked at again, so that
/// no order of changes makes a difference. Who runs the daemon, and root, are counted and never refused. Safe for
/// concurrent use; no call blocks.
class UserCharges {
 public:
  /// 0: no limit.
  struct Limits {
    uint64_t bytes = 0;
    uint64_t files = 0;
  };
  /// The place of a file that is about to be made; given back when there is none after all. Confined to one thread.
  class NewFile {
   public:
    NewFile(UserCharges& charges, uid_t user) : charges_(&charges), user_(user) {}
    NewFile(NewFile&& other) noexcept : charges_(std::exchange(other.charges_, nullptr)), user_(other.user_) {}
    NewFile& operator=(NewFile&&) = delete;
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile();

   private:
    friend class UserCharges;
    UserCharges* charges_;
    uid_t user_;
  };
  enum class Holds {
    kNothing,  ///< no bytes that count: a directory, a symbolic link, a FIFO
    kBytes,
    kBlob,  ///< the store's, and nobody's
  };
  /// Whose an inode is.
  struct Owner {
    uid_t user = 0;
    Holds holds = Holds::kNothing;
  };

  explicit UserCharges(Limits limits);

  /// A further name. kOverQuota: the user has as many as one may have.
  [[nodiscard]] Result<NewFile> admit(uid_t user);
  /// The place of one that is there and was not counted.
  [[nodiscard]] NewFile admit_made(uid_t user);
  /// Before an open file gets this size, if it has less; resize() follows. False: it is not known.
  [[nodiscard]] Result<bool> admit(int file, uint64_t size);
  /// Of a new file of this user that has its bytes already, and takes the place of the inode `replaced`; 0: of none.
  [[nodiscard]] Result<void> admit_copy(int file, uid_t user, uint64_t replaced);
  /// Whether admit_copy() would be refused, so that nothing is copied in vain.
  [[nodiscard]] Result<void> may_copy(uint64_t size, uid_t user, uint64_t replaced);
  /// Counts an open file as it is now. `made` is its place.
  void set(int file, const Owner& owner, NewFile* made = nullptr) { count(file, owner, made, true); }
  /// The same of one that may be known already: whoever has changed it knows better.
  void find(int file, const Owner& owner) { count(file, owner, nullptr, false); }
  /// After an attempt to change the size of a file for which admit() was asked.
  void resize(int file);
  /// The store has let go of a blob whose inode has further names: its bytes are its owner's again, who is not asked.
  void left_store(uint64_t inode, uint64_t size);
  /// After an open file has got a further name.
  void gained_name(int file) { count_names(file, false); }
  /// After an open file has lost a name. `in_view`: a blob of the store's has no other one that counts.
  void lost_name(int file, bool in_view) { count_names(file, in_view); }
  /// Before the inode goes.
  void forget(uint64_t inode);

  /// A count of all files begins; it is over when it says so, unless it may have missed some meanwhile.
  void begin_count() { count_.store(Count::kBegun); }
  void may_miss();
  [[nodiscard]] bool end_count(bool in_any_case);
  [[nodiscard]] bool all_counted() const { return count_.load() == Count::kDone; }

  [[nodiscard]] const Limits& limits() const { return limits_; }
  /// The first of those who have something: who was refused, then who has most.
  [[nodiscard]] std::vector<UserHolding> report(size_t most) const;

 private:
  struct User {
    explicit User(uid_t number) : id(number) {}
    const uid_t id;
    std::atomic<int64_t> blocks{0};
    std::atomic<int64_t> files{0};
    std::atomic<uint64_t> refused{0};
    std::atomic<int64_t> refused_at{0};  ///< in seconds, as the next
    std::atomic<int64_t> told{0};        ///< when the log was told last, in seconds
  };
  struct Charge {
    uid_t user = 0;
    uint32_t blocks = 0;
    uint32_t names = 1;
    Holds holds = Holds::kNothing;
    uint16_t writers = 0;  ///< between admit() and resize(): what they were admitted with stays
  };
  enum class Count { kNone, kBegun, kAgain, kDone };
  using Users = std::map<uid_t, std::unique_ptr<User>>;
  using Charges = std::unordered_map<uint64_t, Charge>;  ///< by inode

  [[nodiscard]] User& user(uid_t id);
  [[nodiscard]] Guarded<Charges>& shard(uint64_t inode) { return charges_[inode % kShards]; }
  [[nodiscard]] bool is_limited(uid_t user) const { return user != 0 && user != own_; }
  void count(int file, const Owner& owner, NewFile* made, bool known_too);
  void count_names(int file, bool lost_in_view);
  void put(Charges& charges, uint64_t inode, Charge charge, NewFile* made);
  void take(Charges& charges, Charges::iterator at);
  [[nodiscard]] Result<void> add_blocks(User& user, int64_t more, int64_t replaced = 0);
  [[nodiscard]] int64_t blocks_of_inode(uint64_t inode);
  [[nodiscard]] tl::unexpected<Error> refuse(User& user, const char* what, uint64_t limit);

  static constexpr size_t kShards = 64;
  const Limits limits_;
  const uid_t own_;
  std::atomic<Count> count_{Count::kNone};
  std::array<Guarded<Charges>, kShards> charges_;
  std::array<Guarded<Users>, kShards> users_;  ///< by id; none is removed
};

}  // namespace inductorfs::vfs
