// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include "catalog/database/database.h"
#include "catalog/database/publish_codec.h"
#include "catalog/load.h"
#include "fuzz_target.h"
#include "support/temporary_directory.h"

namespace catalog = inductorfs::catalog;
namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;
using catalog::Database;

namespace {

const std::string kScope = "aa";
constexpr size_t kRowLimit = 1000;

void read_rows(Database& database) {
  // What cannot be read is an error, whatever it is; of what can be, only what the codecs take is believed.
  (void)database.once_followed({kScope});
  (void)database.position(kScope);
  (void)database.count_entries(kScope, kRowLimit);
  std::string last;
  (void)database.read_entries(kScope, "", kRowLimit, [&](std::string_view path, std::string_view value) {
    last = path;
    if (const auto entry = codec::decode_entry(path, value)) INDUCTORFS_CHECK(codec::is_clean_path(entry->path));
  });
  (void)database.read_entries(kScope, last, 1, [](std::string_view, std::string_view) {});
  (void)database.read_hidden([](std::string_view, std::string_view raw) { (void)codec::Digest::from_raw(raw); });
  (void)database.read_queue([](const Database::QueueRow& row) { (void)catalog::decode_publish(row.payload); });
  (void)database.queued_payload(1);
}

void write_rows(Database& database) {
  codec::Entry entry;
  entry.path = "ab/x";
  const inductorfs::remote::Position position{7, "nonce"};
  (void)database.note_release("another");
  (void)database.note_followed({kScope, "bb"});
  (void)database.apply(kScope, {&entry, 1}, {}, &position);
  (void)database.enqueue(0, "payload", {}, {});
  (void)database.forget_some(kScope, 1);
  (void)database.dequeue(1);
}

}  // namespace

/// The whole file of the catalog. Whatever it holds: each answer is a value or an error, and a new one takes its place
/// with what of the queue could be read.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const inductorfs::testing::TemporaryDirectory directory;
  static const std::string file = directory / "catalog.sqlite";
  for (const char* suffix : {"", "-wal", "-shm", ".damaged", ".damaged-wal"}) (void)::unlink((file + suffix).c_str());
  INDUCTORFS_CHECK(inductorfs::write_file_atomically(AT_FDCWD, file, fuzz::view(data, size)).has_value());
  {
    auto lock = Database::lock(file);
    INDUCTORFS_CHECK(lock.has_value());
    if (auto database = Database::open(file, *lock)) {
      read_rows(*database);
      write_rows(*database);
      read_rows(*database);
    }
  }
  inductorfs::Counters counters;
  auto renewed = catalog::renew(file, counters);
  INDUCTORFS_CHECK(renewed.has_value());
  const auto read = renewed->read_queue(
      [](const Database::QueueRow& row) { INDUCTORFS_CHECK(catalog::decode_publish(row.payload).has_value()); });
  INDUCTORFS_CHECK(read.has_value());
  return 0;
}
