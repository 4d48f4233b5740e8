// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/leases.h"
#include "vfs/nodes/key_directory.h"
#include "vfs/nodes/work_watch.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Has one process of the cluster at a time compile a graph (`--compile-once`): the process that misses the key
/// directory of a graph first gets a lease on it, and others that miss the same one wait until its artefact is there.
/// They wait where they open the directory, because a kernel that waits for a lookup keeps the directory above locked,
/// in which the compiling process of this host is to make a name. A process ends to be waited for when it asks for
/// another graph, has ended, or has taken the limit; then the next one compiles. So a process has one lease at most,
/// and none while it waits: no circle of processes waits for each other here. One that waits elsewhere, as in a
/// collective, for which torch needs those who wait here, is waited for by nobody. docs/decisions/0027.
///
/// It owns the `lease` thread, which asks the cluster; answers come from it, or at once. Never blocks its callers. Safe
/// for concurrent use.
class CompileLeases : Context {
 public:
  /// A graph that somebody has asked for.
  struct Asked {
    remote::LeaseName lease;
    std::string path;   ///< of its key directory, in the mount
    layout::Name name;  ///< of the same
    Caller caller;
    SetOwner process;  ///< the caller's
  };

  /// FileSystemOptions::compile_once is the limit. All must outlive this object.
  explicit CompileLeases(const Context& context);
  ~CompileLeases();
  CompileLeases(const CompileLeases&) = delete;
  CompileLeases& operator=(const CompileLeases&) = delete;

  [[nodiscard]] bool is_on() const { return limit_.count() > 0; }
  void start();
  /// Answers all who wait, and gives the leases up. Idempotent.
  void stop();

  /// Says whether this is one of the directories above the key directories of graphs, which have to be there for
  /// anybody to ask for one.
  [[nodiscard]] bool is_above_graphs(const layout::Name& name) const;
  /// Returns what a lookup of this name asks for, if it is a graph's key directory in a place that is shared, and it
  /// can be seen which process asks.
  [[nodiscard]] std::optional<Asked> asked(const std::string& path, const layout::Name& name,
                                           const Caller& caller) const;
  /// Says whether the key directory has an artefact. Blocks on the local disk; the caller holds no lock.
  [[nodiscard]] bool has_artefact(const Asked& asked) const;
  /// The key directory is not there. Calls `done(true)` if another process compiles the graph, and `done(false)` if the
  /// caller's is to.
  void take(const Asked& asked, std::function<void(bool by_another)> done);
  /// The key directory is being opened. Calls `done` when it has an artefact, or the caller's process is to compile.
  void wait(const Asked& asked, std::function<void()> done);

  /// A program gave a file of the mount this path.
  void made(const std::string& path);
  /// The cluster's entries under these canonical paths have changed.
  void changed(const std::vector<std::string>& paths);

 private:
  struct Waiter {
    Asked asked;
    std::function<void()> done;
    SteadyTime since{};
  };
  struct Lease {
    bool is_ours = false;
    SetOwner process;    ///< of this host, which compiles; none once it is made, or where the lease is another mount's
    layout::Name name;   ///< as that process sees it
    std::string holder;  ///< the mount whose it is
    SteadyTime since{};  ///< when it was taken, found to be another's, or made
    bool made = false;   ///< by a process of this host; it is on its way to the cluster
    bool idle = false;   ///< whoever compiles waits itself: nobody waits for it
    std::vector<Waiter> waiters;
  };
  /// By canonical path and scope.
  using Key = std::pair<std::string, std::string>;
  struct Question {
    Asked asked;
    std::function<void(bool)> done;
  };
  struct Table {
    std::map<Key, Lease> leases;
    std::vector<Question> questions;
    std::vector<remote::LeaseName> given_up;
    size_t waits = 0;                  ///< waiters of all leases
    std::map<uid_t, size_t> waits_of;  ///< those of a user
    bool reaches_cluster = true;       ///< what was made last did, in time
    bool stopping = false;
  };
  enum class End { kServed, kCompiles, kTooLong, kIdle };
  /// What is to be called once the table is not locked any more (change()).
  using Answers = std::vector<std::function<void()>>;

  /// Changes the table, and calls then what that has answered.
  template <typename Change>
  void change(const Change& make);
  [[nodiscard]] static Key key_of(const Asked& asked) { return {asked.lease.name, asked.lease.scope}; }
  /// Answers those who wait where this one does, if the artefact is there.
  void serve(const Asked& asked);
  [[nodiscard]] std::vector<Asked> waiting(const std::string& canonical) const;

  // The thread's.
  void run(const std::stop_token& stop);
  void ask(const std::vector<Question>& questions);
  void look_after();
  /// Lets those go who wait for a process that waits itself.
  void look_at_work();
  /// Tells other mounts of those of this one, and lets those go who wait for one of another mount.
  void tell_of_idle();
  [[nodiscard]] bool stays(Table& table, const Key& key, Lease& lease, Answers& answers);
  void renew(Table& table, const remote::LeaseName& name, const remote::Lease& now, Answers& answers);
  void give_up(const std::vector<remote::LeaseName>& names);

  [[nodiscard]] bool add_waiter(Table& table, Lease& lease, const Waiter& waiter);
  /// Answers the waiters of this lease for which that holds.
  void answer_if(Table& table, Lease& lease, End end, Answers& answers,
                 const std::function<bool(const Waiter&)>& holds);
  /// A process compiles one graph at a time: the one before is made, or will not be.
  void end_others_of(Table& table, const Asked& asked, Answers& answers);
  /// Has the next waiter compile. Returns false, and gives the lease up, if there is none.
  [[nodiscard]] bool pass_on(Table& table, const Key& key, Lease& lease, Answers& answers);
  void answer(const Waiter& waiter, End end, Answers& answers);
  void answer_all(Table& table, Lease& lease, End end, Answers& answers);
  void tell(const Asked& asked, UseKind use, std::chrono::nanoseconds waited) const;

  const Milliseconds limit_{options_.compile_once};
  const std::string holder_;
  Counter& taken_{counters_.get("leases.taken")};        ///< leases that processes of this mount got
  Counter& waits_{counters_.get("leases.waits")};        ///< processes that waited for another one
  Counter& served_{counters_.get("leases.served")};      ///< of these, those that got its artefact
  Counter& too_long_{counters_.get("leases.too_long")};  ///< of these, those that waited for the whole limit in vain
  Counter& idle_{counters_.get("leases.idle")};          ///< of these, those let go because the other one waited itself
  Histogram& wait_times_{counters_.histogram("lease.wait")};
  Guarded<Table> table_;
  WorkWatch work_;  ///< the thread's
  std::jthread thread_;
};

}  // namespace inductorfs::vfs
