// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "vfs/host.h"

namespace inductorfs::testing {

/// What a plain local file system would hold after the same operations: the reference of the random tests.
struct ModelFile {
  std::string bytes;
  mode_t mode = 0644;
  bool mode_is_chosen = false;  ///< by chmod, under a name of a family or with several names
};

struct ModelItem {
  enum class Type { kFile, kDirectory, kLink };
  Type type = Type::kFile;
  std::shared_ptr<ModelFile> file;  ///< kFile; two links of a file share it
  std::string target;               ///< kLink
};

/// One host and what it must show. Its own files are exactly as on a local disk. A shared name that it has not made
/// itself is absent or has bytes that some host gave to that name, and none that this host has deleted.
struct ModelHost {
  std::unique_ptr<Host> host;
  std::map<std::string, ModelItem> own;
  std::map<std::string, std::set<std::string>> dead;
  /// Of these, what another host has published anew: it may show, or stay away.
  std::map<std::string, std::set<std::string>> revived;
  struct Open {
    vfs::NodeId node{};
    std::shared_ptr<ModelFile> file;
  };
  std::vector<Open> open;
};

/// Random operations on hosts of one cluster, each compared with the model. Needs external synchronisation.
class ModelRun {
 public:
  /// Whose environment the writers of all hosts have.
  enum class Writers { kEveryone, kTheMounts, kAnother };
  ModelRun(uint32_t seed, size_t hosts, Writers writers = Writers::kEveryone);
  /// False when something differed (reported to gtest).
  bool run(int steps);
  /// All that was published has arrived, and all hosts agree on names that none of them covers.
  bool settle();

 private:
  using Item = ModelItem;
  size_t pick(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }
  const std::string& pick_file() { return files_[pick(files_.size())]; }
  std::string new_bytes();
  [[nodiscard]] bool is_shared(const std::string& path) const { return shared_.contains(path); }
  void say(const std::string& what);
  bool expect(bool held, const std::string& what);

  void step();
  void write_new(const std::string& path);
  void create_in_place(const std::string& path);
  void change_bytes(const std::string& path);
  void change_mode(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void exchange(const std::string& a, const std::string& b);
  void rename_directory();
  void link(const std::string& from, const std::string& to);
  void make_symlink(const std::string& path);
  void unlink(const std::string& path);
  void make_directory();
  void remove_directory();
  void open_handle(const std::string& path);
  void use_handle();
  void forget(const std::string& path);
  void publish(const std::string& path, const std::string& bytes);
  void restart();
  void take_over();

  void set_own(const std::string& path, std::shared_ptr<ModelFile> file);
  void own_changed(const std::shared_ptr<ModelFile>& file);
  void own_parents(const std::string& path);
  void bury(const std::string& path, const std::string& bytes);
  [[nodiscard]] bool parent_is_there(const std::string& path);
  bool verify(const std::string& path);
  [[nodiscard]] bool has_more_names(const std::shared_ptr<ModelFile>& file) const;
  [[nodiscard]] mode_t shown_mode(const std::string& path, const std::shared_ptr<ModelFile>& file) const;
  bool verify_all();
  bool verify_listing(const std::string& directory);
  bool may_be(const std::string& path, const std::string& bytes);

  const uint32_t seed_;
  const Writers writers_;
  std::mt19937 random_;
  std::shared_ptr<remote::MemoryCluster> cluster_ = remote::make_memory_cluster();
  std::vector<ModelHost> hosts_;
  ModelHost* at_ = nullptr;  ///< whose turn it is
  std::vector<std::string> files_;
  std::set<std::string> shared_;
  std::vector<std::string> directories_;
  std::map<std::string, std::set<std::string>> published_;
  std::deque<std::string> log_;
  int step_ = 0;
  int counter_ = 0;
  bool failed_ = false;
};

}  // namespace inductorfs::testing
