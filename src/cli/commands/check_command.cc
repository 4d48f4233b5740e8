// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/catalog/catalog_check.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/store/store_check.h"
#include "inductorfs/vfs/view_check.h"

namespace inductorfs::cli {

using config::Json;
using config::line;
using config::printable;

namespace {

struct Checked {
  std::string directory;
  uint64_t blobs = 0;
  uint64_t bytes = 0;
  catalog::CheckedCatalog catalog;
  vfs::CheckedView view;
  store::Findings findings;
};

/// What root would leave in another user's store that user's worker could not use, and might lead elsewhere.
Result<void> act_as_owner(const std::string& directory) {
  struct stat found {};
  if (::geteuid() != 0 || ::stat(directory.c_str(), &found) != 0 || found.st_uid == 0) return {};
  const auto own = become_user(found.st_uid, found.st_gid, {});
  // A user namespace without that user: then root's rights do not reach his files either.
  if (!own) return ::geteuid() == 0 ? Result<void>() : own;
  if (::access(directory.c_str(), R_OK | X_OK) == 0 || errno != EACCES) return {};
  return fail(ErrorCode::kNotPermitted,
              "store " + directory + ": it is checked as the user to whom it belongs, " + std::to_string(found.st_uid) +
                  ", who may not reach it: run chmod o+x on the directories above it, or chown -R root on a copy");
}

Result<Checked> check_all(const std::string& directory, bool repair) {
  INDUCTORFS_TRY(act_as_owner(directory));
  Checked checked;
  checked.directory = directory;
  INDUCTORFS_TRY_ASSIGN(const auto blobs, store::check(directory, repair, checked.findings));
  checked.blobs = blobs.blobs.size();
  checked.bytes = blobs.bytes;
  INDUCTORFS_TRY_ASSIGN(const auto catalog,
                        catalog::check(directory, config::kCatalogFile, blobs, repair, checked.findings));
  checked.catalog = catalog;
  INDUCTORFS_TRY_ASSIGN(const auto view, vfs::check(directory, config::kLocalFiles, blobs, repair, checked.findings));
  checked.view = view;
  return checked;
}

Json json_of(const Checked& checked) {
  Json findings = Json::array();
  for (const store::Finding& finding : checked.findings.all()) {
    findings.push_back({{"path", printable(finding.path)},
                        {"what", printable(finding.what)},
                        {"harmless", finding.harmless},
                        {"repair", finding.repair}});
  }
  return {{"store", printable(checked.directory)},
          {"sound", checked.findings.sound()},
          {"blobs", checked.blobs},
          {"bytes", checked.bytes},
          {"entries", checked.catalog.entries},
          {"queued", checked.catalog.queued},
          {"files", checked.view.files},
          {"sealed", checked.view.sealed},
          {"harmful", checked.findings.harmful()},
          {"harmless", checked.findings.harmless()},
          {"repaired", checked.findings.repaired()},
          {"findings", std::move(findings)}};
}

std::string text_of(const Checked& checked) {
  std::string text;
  for (const store::Finding& finding : checked.findings.all()) {
    text += printable(finding.path) + ": " + printable(finding.what);
    if (!finding.repair.empty()) text += ": " + finding.repair;
    if (finding.harmless && finding.repair.empty()) text += " (harmless)";
    text += "\n";
  }
  const uint64_t left = checked.findings.harmful() - checked.findings.repaired();
  text += line("store", printable(checked.directory));
  text += line("blobs", std::to_string(checked.blobs) + " sound, " + config::human_bytes(checked.bytes));
  text += line("catalog", std::to_string(checked.catalog.entries) + " entries, " +
                              std::to_string(checked.catalog.queued) + " groups queued");
  text += line("files",
               std::to_string(checked.view.files) + ", " + std::to_string(checked.view.sealed) + " of them sealed");
  text += line("verdict", left > 0 ? std::to_string(left) + " problems found; run again with --repair to fix them"
                          : checked.findings.repaired() > 0
                              ? "sound, after " + std::to_string(checked.findings.repaired()) + " repairs"
                              : "sound");
  return text;
}

class CheckCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("--store", store_, "directory of the store", "DIR").required = true;
    words.add("--repair", &repair_, "remove damaged blobs and files, and set a damaged catalog aside");
    words.add_json(json_);
  }
  [[nodiscard]] int run(const config::Environment&) override {
    const Result<Checked> checked = check_all(absolute(store_), repair_);
    if (!checked) {
      // A newer format, or no right to read: not the store is damaged.
      const ErrorCode code = checked.error().code();
      const bool is_named_wrongly = code == ErrorCode::kNotSupported || code == ErrorCode::kNotPermitted;
      return is_named_wrongly ? fail_options(checked.error(), json_) : fail_query(checked.error(), json_);
    }
    const int printed = print(json_ ? config::to_pretty(json_of(*checked)) + "\n" : text_of(*checked));
    return printed == kExitDone && checked->findings.sound() ? kExitDone : kExitFailed;
  }

 private:
  std::string store_;
  bool repair_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> check_command() { return std::make_unique<CheckCommand>(); }

}  // namespace inductorfs::cli
