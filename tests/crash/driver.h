// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "crash/ledger.h"
#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {

/// A host over a store that outlives this process and a Redis that does too, with everything that it does in a ledger.
/// Needs external synchronisation.
class Driver {
 public:
  Driver(const std::string& store, const std::string& redis_url, const std::string& ledger);

  /// What another host publishes before.
  void prepare();
  /// Passes every fail point of the manifest.
  void work();
  /// Prints each broken promise; answers how many.
  int verify();
  /// After a power cut: what was not on the disk may be gone, and nothing that is shown is torn.
  int verify_cut();

 private:
  void write_private_files();
  void write_shared_files();
  void change_sealed_files();
  void merge_timings();
  void change_facts_with_a_queue();
  void lose_an_entry();
  void evict_everything();
  void leave_unfinished_work();
  void restart_with_other_facts();
  void lose_the_catalog();
  void drop_a_dead_writers_set();

  void own(const std::string& path, const std::string& value);
  void put(const std::string& path, const std::string& value);
  void mine(const std::string& path, const std::string& value);
  void drop(const std::string& path);
  void set(const std::string& directory, const std::string& writer);
  void parcel(const std::string& directory, const std::string& writer);
  void leave(const std::string& path);
  void lose_changes(const std::string& path, const std::string& value);
  void sync();

  void check_locally(const std::string& path, const Ledger::Expected& expected);
  void check_parcel(const std::string& path, const Ledger::Expected& expected);
  void check_index();
  void check_set(const std::string& path, const Ledger::Expected& expected);
  void check_after_cut(Host& other, const std::string& path, const Ledger::Expected& expected);
  void check_elsewhere(Host& other, const std::string& path, const Ledger::Expected& expected);
  void broken(const std::string& path, const std::string& what);

  const std::string store_;
  const std::string redis_url_;
  const std::string ledger_file_;
  Ledger ledger_;
  std::shared_ptr<Fault> fault_ = std::make_shared<Fault>();
  std::unique_ptr<Host> host_;
  int broken_ = 0;
};

}  // namespace inductorfs::testing
