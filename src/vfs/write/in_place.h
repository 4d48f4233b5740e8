// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "vfs/nodes/notifier.h"
#include "vfs/origin/origin.h"
#include "vfs/tree/context.h"
#include "vfs/write/removal.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::vfs {

/// Files of shared families that a program wrote in place under their final names (cp does, and most programs other
/// than torch and Triton). The only sign that such a file is complete is that no process has it open for writing and
/// that nothing was written to it for the quiet time. Only a mount that publishes what any program writes (--writers
/// all) relies on that sign: a program of the mount's own environment (--writers matching and pod) renames, or removes
/// its build directory, and a file that it left half-written must stay here.
///
/// Every mount asks about an index (layout::Form::kIndex), which its program writes in place and reads without catching
/// an error. If nobody writes to it any more and it is cut, its writer was killed: the name is removed, so that the
/// next program finds none and writes it anew.
///
/// Every mount also asks about the files without a seal that an earlier worker or an earlier mount has left
/// (add_left()): nothing on the disk tells whether such a file was renamed to its name or is still being written there.
///
/// A file is unfinished (Content::unfinished) from the moment it is added until the kernel has said that no process has
/// it open for writing, and no byte has changed since the kernel was asked. The queue takes no unfinished file,
/// whichever caller adds it.
///
/// A thread of its own asks the kernel, because that blocks for as long as FileSystemOptions::who_writes does; no
/// function but drain(), hold() and stop() waits for it. start() and stop() need external synchronisation; everything
/// else is safe for concurrent use.
class InPlace : Context {
 public:
  explicit InPlace(const Context& context) : Context(context) {}

  /// Starts the thread, if somebody can ask the kernel.
  void start();
  /// Forbids (`held`) or allows questions to the kernel; a question that is under way is ended.
  void hold(bool held);
  /// Ends the thread and drops the files that are left; the next start finds them.
  void stop();

  /// Says whether such files are published at all.
  [[nodiscard]] bool is_on() const;
  /// Says whether there is a way to ask the kernel.
  [[nodiscard]] bool asks() const;
  /// Adds a file that got this name, or was written to: it is examined when it has been quiet. Returns false if this
  /// mount does not ask about such a file. Does nothing for a file of a family that is not shared.
  bool add(const NodePtr& node, const std::string& path);
  /// Adds a file without a seal that an earlier worker or an earlier mount has left, whatever process wrote it. Returns
  /// false if there is no way to ask the kernel: the caller seals the file by the sign of its family.
  [[nodiscard]] bool add_left(const std::string& path);
  /// Adds each file of a Triton set that has no seal, as add_left() does. Returns false if there is none.
  [[nodiscard]] bool add_left_set(const std::string& directory, const std::vector<std::string>& names);
  /// Adds all names of the file: a file with several names is a file of the cluster under each of them.
  void add_names(const NodePtr& node);
  /// Notes that another sign shows the file to be complete.
  void is_complete(const NodePtr& node);
  [[nodiscard]] bool is_unfinished(const NodePtr& node) const;
  /// Says whether a file of the Triton set in this directory is unfinished.
  [[nodiscard]] bool set_is_unfinished(const std::string& directory) const;

  [[nodiscard]] bool is_held() const;
  /// Waits until no file is left to be examined, or the questions are held. Returns false at the deadline.
  [[nodiscard]] bool drain(Deadline deadline);
  [[nodiscard]] size_t waiting() const;
  /// Returns "path: why it waits" for files that were examined; for all files if none was.
  [[nodiscard]] std::vector<std::string> reasons(size_t limit) const;
  /// Returns why this file waits; empty when it does not.
  [[nodiscard]] std::string why_waits(const std::string& path) const;

 private:
  struct Item {
    NodePtr node;  ///< pinned
    std::string path;
    SteadyTime due;
    uint64_t version = 0;            ///< Content::version when the kernel was asked
    std::optional<OpenState> state;  ///< the last answer
    int unknown = 0;                 ///< how often the kernel could not tell
  };
  using Key = std::pair<NodeId, std::string>;
  struct State {
    std::map<Key, Item> items;
    std::map<std::string, size_t> sets;  ///< the number of items of a Triton set, by its directory
    size_t leaving = 0;                  ///< items that are off the list, and on their way to the seal queue
    std::stop_source question;           ///< ends the question that is under way
    bool asking = false;
    bool held = false;
    bool stopped = false;
  };
  enum class Next { kAsk, kLater, kDrop };

  [[nodiscard]] bool watches(const NodePtr& node) const;
  [[nodiscard]] bool watches(const NodePtr& node, const std::string& path) const;
  void wait_for(const NodePtr& node, const std::string& path);
  void run(const std::stop_token& stop);
  [[nodiscard]] std::vector<Item> due_items(SteadyTime now) const;
  void look();
  [[nodiscard]] std::vector<OpenState> ask(const std::vector<OpenQuestion>& questions);
  [[nodiscard]] Next next_of(Item& item);
  void take_answer(const Item& item, OpenState state);
  void put_off(const Item& item, OpenState state, Milliseconds wait);
  void finish(const Item& item, OpenState answer);
  [[nodiscard]] bool remove_if_cut(const Item& item);
  void drop(const Item& item);
  [[nodiscard]] bool take(const Item& item, bool although_added_again, bool& last_of_set);
  void left(const Item& item);
  void queue_for_seal(const Item& item, bool complete, bool last_of_set);
  [[nodiscard]] static SteadyTime next_due(const State& state, SteadyTime latest);
  [[nodiscard]] static std::string why(const Item& item);

  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::vfs
