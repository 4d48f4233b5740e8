// SPDX-License-Identifier: Apache-2.0
#include "check_command.h"

#include <cstdio>

#include "inductorfs/catalog/check.h"
#include "inductorfs/daemon/daemon.h"
#include "inductorfs/store/check.h"
#include "inductorfs/vfs/check.h"
#include "json.h"
#include "paths.h"
#include "process.h"
#include "text.h"

namespace inductorfs::daemon {
namespace {

// As layers.cc gives them to the layers.
constexpr const char* kCatalog = "catalog.sqlite";
constexpr const char* kFiles = "files";

struct Checked {
  std::string directory;
  uint64_t blobs = 0;
  uint64_t bytes = 0;
  catalog::CheckedCatalog catalog;
  vfs::CheckedView view;
  store::Findings findings;
};

Result<Checked> check_all(const std::string& directory, bool repair) {
  Checked checked;
  checked.directory = directory;
  const auto blobs = store::check(directory, repair, checked.findings);
  if (!blobs) return fail(blobs.error());
  checked.blobs = blobs->blobs.size();
  checked.bytes = blobs->bytes;
  const auto catalog = catalog::check(directory, kCatalog, *blobs, repair, checked.findings);
  if (!catalog) return fail(catalog.error());
  checked.catalog = *catalog;
  const auto view = vfs::check(directory, kFiles, *blobs, repair, checked.findings);
  if (!view) return fail(view.error());
  checked.view = *view;
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
  text += line("blobs", std::to_string(checked.blobs) + " sound, " + human_bytes(checked.bytes));
  text += line("catalog", std::to_string(checked.catalog.entries) + " entries, " +
                              std::to_string(checked.catalog.queued) + " groups queued");
  text += line("files",
               std::to_string(checked.view.files) + ", " + std::to_string(checked.view.sealed) + " of them sealed");
  text += line("verdict", left > 0 ? std::to_string(left) + " things are wrong: see --repair"
                          : checked.findings.repaired() > 0
                              ? "sound, after " + std::to_string(checked.findings.repaired()) + " repairs"
                              : "sound");
  return text;
}

}  // namespace

int check_command(const Invocation& invocation) {
  const Result<Checked> checked = check_all(absolute_path(invocation.store, working_directory()), invocation.repair);
  if (!checked) {
    (void)std::fputs(error_line(checked.error()).c_str(), stderr);
    return kExitFailed;
  }
  const std::string answer = invocation.json ? to_pretty(json_of(*checked)) + "\n" : text_of(*checked);
  // An answer that nobody can read is a failure too.
  const bool printed = std::fputs(answer.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed && checked->findings.sound() ? kExitDone : kExitFailed;
}

}  // namespace inductorfs::daemon
