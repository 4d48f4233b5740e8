// SPDX-License-Identifier: Apache-2.0
#include "crash/ledger.h"

#include <fcntl.h>

#include <sstream>
#include <stdexcept>

namespace inductorfs::testing {
namespace {

constexpr uint64_t kLedgerLimit = 4 << 20;

/// put: a shared file under its final name; own: a private one, made in place; mine: what makes a shared one private;
/// set: a Triton key directory; parcel: a directory that is one artefact; drop: deleted; leave: may go, and come back
/// from the cluster; lose: may go for good.
void apply(Ledger::Expected& now, const std::string& verb, const std::string& value, bool done) {
  now.unfinished = !done;
  if (verb == "leave" || verb == "lose") {
    now.may_be_absent = true;
    now.later = verb == "leave";
    now.shared = now.shared && now.later;
    return;
  }
  if (verb == "drop") {
    now.may_be_absent = true;
    now.shared = false;
    if (done) now.values.clear();
    return;
  }
  if (done) now.values.clear();
  now.values.insert(value);
  now.ever.insert(value);
  if (verb == "own" && !done) now.values.insert("");
  now.is_set = verb == "set";
  now.is_parcel = verb == "parcel";
  now.later = false;
  if (!done) return;
  now.may_be_absent = false;
  now.shared = verb == "put" || verb == "set" || verb == "parcel";
}

}  // namespace

Ledger::Ledger(const std::string& file) {
  auto opened = open_at(AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!opened) throw std::runtime_error(opened.error().to_string());
  file_ = std::move(*opened);
}

void Ledger::write(const std::string& line) {
  if (!write_full(file_.get(), line)) throw std::runtime_error("the ledger cannot be written");
}

void Ledger::tries(const std::string& verb, const std::string& path, const std::string& value) {
  write("try " + verb + " " + path + " " + value + "\n");
}

void Ledger::did(const std::string& verb, const std::string& path, const std::string& value) {
  write("did " + verb + " " + path + " " + value + "\n");
}

std::map<std::string, Ledger::Expected> Ledger::read(const std::string& file) {
  std::map<std::string, Expected> expected;
  std::istringstream lines(read_file(AT_FDCWD, file, kLedgerLimit).value_or(""));
  std::string when;
  std::string verb;
  std::string path;
  std::string value;
  while (lines >> when >> verb >> path >> value) apply(expected[path], verb, value, when == "did");
  return expected;
}

}  // namespace inductorfs::testing
