// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/catalog/catalog_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "catalog/database/database.h"
#include "catalog/database/publish_codec.h"
#include "catalog/load.h"

namespace inductorfs::catalog {
namespace {

constexpr size_t kPageRows = 4096;

/// Needs external synchronisation.
class Checker {
 public:
  Checker(Database& database, std::string name, const store::CheckedStore& store, bool repair,
          store::Findings& findings)
      : database_(database), name_(std::move(name)), store_(store), repair_(repair), findings_(findings) {}

  Result<CheckedCatalog> run() {
    INDUCTORFS_TRY_ASSIGN(auto scopes, database_.scopes_with_entries());
    for (const auto& scope : scopes) INDUCTORFS_TRY(check_entries(scope));
    INDUCTORFS_TRY(check_queue());
    return result_;
  }

 private:
  Result<void> check_entries(const remote::ScopeId& scope) {
    std::string after;
    std::vector<std::string> bad;
    for (bool more = true; more;) {
      auto rows = database_.read_entries(scope, after, kPageRows, [&](std::string_view path, std::string_view value) {
        after = path;
        ++result_.entries;
        if (!codec::decode_entry(path, value)) bad.emplace_back(path);
      });
      if (!rows) return fail(std::move(rows).error());
      more = *rows == kPageRows;
    }
    const bool removed = repair_ && !bad.empty() && database_.apply(scope, {}, bad, nullptr) &&
                         database_.forget_position(scope);  // it is read anew from the cluster
    for (const auto& path : bad) {
      findings_.add({name_, "the entry " + path + " cannot be read", false, removed ? "removed" : ""});
    }
    return {};
  }

  /// Why the group can never be published; empty when it can.
  [[nodiscard]] std::string fault_of(const std::string& payload) const {
    const auto publish = decode_publish(payload);
    if (!publish) return publish.error().text();
    for (const auto& entry : publish->entries) {
      if (!store_.has(entry.digest)) return entry.path + " has no blob " + entry.digest.to_hex();
    }
    return {};
  }

  Result<void> check_queue() {
    std::vector<std::pair<int64_t, std::string>> bad;
    INDUCTORFS_TRY(database_.read_queue([&](const Database::QueueRow& row) {
      ++result_.queued;
      if (auto fault = fault_of(row.payload); !fault.empty()) bad.emplace_back(row.id, std::move(fault));
    }));
    // The next mount queues again what sound files have a seal for.
    const bool noted = repair_ && !bad.empty() && database_.note_queue(false);
    for (auto& [id, fault] : bad) {
      const bool removed = noted && database_.dequeue(id);
      findings_.add({name_, "a queued group cannot be published: " + fault, false, removed ? "removed" : ""});
    }
    return {};
  }

  Database& database_;
  const std::string name_;
  const store::CheckedStore& store_;
  const bool repair_;
  store::Findings& findings_;
  CheckedCatalog result_;
};

/// To be tried again before it is believed that the file is damaged: a read may have failed once.
Result<Database> open_sound(const std::string& file, const std::shared_ptr<Fd>& lock) {
  INDUCTORFS_TRY_ASSIGN(auto database, Database::open(file, lock));
  INDUCTORFS_TRY_ASSIGN(const auto damages, database.damages(1));
  if (!damages.empty()) return fail(ErrorCode::kCorrupt, damages.front());
  return database;
}

}  // namespace

Result<CheckedCatalog> check(const std::string& directory, const std::string& name, const store::CheckedStore& store,
                             bool repair, store::Findings& findings) {
  const std::string file = directory + "/" + name;
  if (::access(file.c_str(), F_OK) != 0 && errno == ENOENT) return CheckedCatalog{};
  INDUCTORFS_TRY_ASSIGN(auto lock, Database::lock(file));
  auto database = open_sound(file, lock);
  if (!database && database.error().code() == ErrorCode::kCorrupt) database = open_sound(file, lock);
  if (database) {
    auto checked = Checker(*database, name, store, repair, findings).run();
    if (checked || checked.error().code() != ErrorCode::kCorrupt) return checked;
    database = fail(checked.error());  // closed
    database = open_sound(file, lock);
    if (database) return checked;
  }
  if (database.error().code() != ErrorCode::kCorrupt) return fail(std::move(database).error());
  store::Finding finding{name, database.error().what(), false, {}};
  if (repair) {
    lock.reset();
    Counters unused;
    database = renew(file, unused);
    if (!database) return fail(std::move(database).error());
    finding.repair = "set aside as " + name + ".damaged, and made anew";
  }
  findings.add(std::move(finding));
  if (!repair) return CheckedCatalog{};
  return Checker(*database, name, store, repair, findings).run();
}

}  // namespace inductorfs::catalog
