// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/file_system.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"
#include "vfs/fake_environment.h"

namespace inductorfs::testing {

/// Remembers what the file system told the kernel. Safe for concurrent use.
class RecordingKernel final : public vfs::KernelCache {
 public:
  void forget_name(vfs::NodeId parent, const std::string& name) override;
  void forget_content(vfs::NodeId node) override;
  [[nodiscard]] bool told_name(const std::string& name) const;
  /// Whether it was told of the content of this node since this was asked last.
  [[nodiscard]] bool take_content(vfs::NodeId node) {
    return contents_.with([node](auto& contents) { return contents.erase(node) > 0; });
  }
  /// Is called with each name, from the notify thread. To be set before the first one.
  std::function<void(vfs::NodeId parent, const std::string& name)> on_name;

 private:
  Guarded<std::set<std::string>> names_;
  Guarded<std::set<vfs::NodeId>> contents_;
};

struct HostOptions {
  std::string mountpoint = "/mnt/cache";
  std::string facts = "one";               ///< hosts with equal facts share all families
  std::string architectures{};             ///< of the GPUs, where the test is about them: "cc=8.0\ncc=9.0"
  std::shared_ptr<FakeWriters> writers{};  ///< none: every writer fits
  FakeEnvironment::Check check{};          ///< more than FakeEnvironment's own
  uint64_t store_limit = 1ULL << 30;
  Milliseconds quiet_time{50};
  Milliseconds sync_patience{5000};  ///< of start() with the cluster
  uint64_t prefetch_bytes = 0;
  size_t fetch_threads = 4;
  Milliseconds forget_wait = vfs::kForgetWait;
  Milliseconds compile_once{0};
  bool cluster_winners = false;
  bool chown_to_caller = false;               ///< files belong to Host::user, as under root's process
  uint64_t user_bytes = 0;                    ///< of vfs::FileSystemOptions
  uint64_t user_files = 0;                    ///< as well
  bool part_users = false;                    ///< FakeEnvironment::part_users()
  std::map<pid_t, std::string> jobs{};        ///< FakeEnvironment::learn(), unless empty
  mode_t root_mode = 0755;                    ///< of the directory that the mount covers
  std::vector<std::string> further_places{};  ///< of vfs::FileSystemOptions
  pid_t process = 0;                          ///< whose requests these are; 0: the test's own
  /// As of vfs::FileSystemOptions.
  decltype(vfs::FileSystemOptions::who_writes) who_writes{};
  decltype(vfs::FileSystemOptions::used) used{};
  bool quiet_is_complete = true;       ///< as well
  std::shared_ptr<FakeViews> views{};  ///< none: everybody sees the mountpoint
  /// Where everything lies, as a daemon lays it out, and stays; empty: a directory that goes with the host.
  std::string store{};
  /// Puts something between this host and its cluster.
  std::function<remote::Remote(remote::Remote)> wrap_remote{};
};

/// A host without a kernel: a real store, catalog and file system over a cluster in memory, and the path operations of
/// a program as the kernel would send them (every component looked up, nothing cached).
class Host {
 public:
  Host(std::shared_ptr<remote::MemoryCluster> cluster, HostOptions options = {});
  ~Host();

  /// Ends the layers and opens them again over the same directory, as a restart of the daemon does.
  void restart() {
    stop();
    start();
  }
  /// As another worker takes over a mount that stays: who has a file open goes on with it.
  void take_over() {
    stop();
    start(true);
  }
  void stop();
  void start(bool resume = false, bool requests_finished = true);
  /// The facts of the host become others, under the mount or, after stop(), before the next one.
  void change_facts(const std::string& facts, const std::string& architectures = {});
  /// Whose requests these are from now on; 0: as the options say.
  void act_as(pid_t process) { acting_ = process; }

  // What a program does. Errors as the file system gave them.
  Result<vfs::Found> look_up(const std::string& path, pid_t process = 0);
  bool exists(const std::string& path) { return look_up(path).has_value(); }
  Result<void> make_directory(const std::string& path, mode_t mode = 0755);
  Result<void> make_directories(const std::string& path);
  Result<void> create(const std::string& path, const std::string& bytes, mode_t mode = 0644);
  Result<void> append(const std::string& path, const std::string& bytes);
  Result<void> truncate(const std::string& path, uint64_t size);
  Result<std::string> read(const std::string& path, pid_t process = 0);
  Result<void> rename(const std::string& from, const std::string& to, pid_t process = 0,
                      vfs::RenameMode mode = vfs::RenameMode::kReplace);
  Result<void> unlink(const std::string& path);
  Result<void> remove_directory(const std::string& path);
  Result<std::vector<std::string>> list(const std::string& path);
  /// Opens a directory that is there, as opendir(3) does; the future is ready when it is open.
  Result<std::future<void>> open_directory(const std::string& path, pid_t process);
  /// torch's write_atomic: temporary name, then rename.
  Result<void> publish_file(const std::string& path, const std::string& bytes, mode_t mode = 0644);
  /// Triton's put (temporary directory, rename, removedirs), by a process.
  Result<void> triton_put(const std::string& key_directory, const std::string& name, const std::string& bytes,
                          pid_t process);
  /// All files of a kernel, the group file last, as `process`. Their text names the writer.
  /// `architecture`: what the metadata name as the target's, 90 for 9.0; 0: none.
  Result<void> triton_compile(const std::string& key_directory, const std::string& writer, pid_t process,
                              int architecture = 0);

  /// The group file alone.
  Result<void> triton_group(const std::string& key_directory, pid_t process);

  // What a kernel asks for, and what the daemon tells.
  vfs::NameOperations& names() { return file_system->operations().names; }
  vfs::AttributeOperations& attributes() { return file_system->operations().attributes; }
  vfs::DataOperations& data() { return file_system->operations().data; }
  vfs::Inspection& inspection() { return file_system->inspection(); }

  Result<void> sync();
  /// Waits until the catalog of this host has the entry.
  bool wait_for_entry(const std::string& canonical);
  bool wait_until_gone(const std::string& canonical);
  [[nodiscard]] uint64_t count(const std::string& counter) { return counters->get(counter).get(); }

  TemporaryDirectory directory;
  FakeEnvironment environment;
  std::unique_ptr<Counters> counters;
  remote::Remote remote;
  std::unique_ptr<store::BlobStore> store;
  std::unique_ptr<catalog::Catalog> catalog;
  std::unique_ptr<vfs::FileSystem> file_system;
  RecordingKernel kernel;
  uid_t user = ::getuid();  ///< whose calls these are; another one for root only

 private:
  Result<vfs::Found> walk(const std::string& path, pid_t process);
  Result<vfs::NodeId> parent_of(const std::string& path);
  [[nodiscard]] vfs::Caller caller(pid_t process) const;

  std::shared_ptr<remote::MemoryCluster> cluster_;
  const HostOptions options_;
  std::optional<takeover::Region> region_;
  pid_t acting_ = 0;
};

/// Waits for a condition with a deadline; false when it never held.
bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience = std::chrono::seconds(20));

/// A name of torch's form: a prefix letter and 51 characters of a hash.
std::string code_name(const std::string& seed, char prefix = 'c');
/// "ab/<name>" in the directory that torch gives it.
std::string in_code_directory(const std::string& name);
/// A Triton key of 52 characters.
std::string triton_key_of(const std::string& seed);

}  // namespace inductorfs::testing
