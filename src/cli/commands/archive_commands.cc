// SPDX-License-Identifier: Apache-2.0
// The commands `export` and `import`.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/common/mount_arguments.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/text.h"
#include "inductorfs/mount/transfer.h"

namespace inductorfs::cli {

using config::human_bytes;
using config::Json;

namespace {

std::string artefacts(uint64_t count) { return std::to_string(count) + (count == 1 ? " artefact" : " artefacts"); }

/// What both commands have in common: the server, the file, the progress and the report.
class ArchiveCommand : public Subcommand {
 public:
  void add_to(Words& words) override {
    options_.add_remote_to(words, "read the configuration file of a mount");
    words.add_json(json_);
    words.add_path("FILE", file_, "the archive; - is a standard stream").required = true;
  }
  [[nodiscard]] Result<void> check() const override { return options_.check(); }
  [[nodiscard]] int run(const config::Environment&) override {
    const auto settings = options_.facts_settings();
    if (!settings) return fail_options(settings.error(), json_);
    if (const auto changed = config::change_families(*settings, options_.file()); !changed) {
      return fail_options(changed.error(), json_);
    }
    const Result<archive::Report> report = transfer(*settings);
    if (progressed_) (void)std::fputs("\r\033[K", stderr);
    if (!report) return fail_query(report.error(), json_ && !uses_output());
    const std::string text = json_ ? config::to_pretty(json_of(*report)) + "\n" : text_of(*report);
    // Standard output is the archive itself then.
    const int printed = uses_output() ? (std::fputs(text.c_str(), stderr) >= 0 ? kExitDone : kExitFailed) : print(text);
    return printed == kExitDone && report->refusals() > 0 ? kExitKept : printed;
  }

 protected:
  [[nodiscard]] virtual Result<archive::Report> transfer(const config::Settings& settings) = 0;
  [[nodiscard]] virtual std::string text_of(const archive::Report& report) const = 0;
  [[nodiscard]] virtual bool uses_output() const { return false; }

  [[nodiscard]] archive::OnProgress progress() {
    return [this](const archive::Report& report) {
      if (json_ || ::isatty(STDERR_FILENO) != 1) return;
      progressed_ = true;
      (void)std::fputs(("\r\033[K" + std::to_string(report.blobs) + " blobs, " + human_bytes(report.bytes) + ", " +
                        artefacts(report.done + report.had) + " done")
                           .c_str(),
                       stderr);
      (void)std::fflush(stderr);
    };
  }
  [[nodiscard]] static std::string refusals(const archive::Report& report) {
    std::string text;
    for (const auto& [why, count] : report.refused) {
      text += "left out " + artefacts(count) + ": " + config::printable(why) + "\n";
    }
    return text;
  }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::string path() const { return file_ == "-" ? file_ : absolute(file_); }

 private:
  static Json json_of(const archive::Report& report) {
    Json refused = Json::object();
    for (const auto& [why, count] : report.refused) refused[why] = count;
    return Json::object({{"scopes", report.scopes},
                         {"done", report.done},
                         {"had", report.had},
                         {"blobs", report.blobs},
                         {"bytes", report.bytes},
                         {"for", report.audience},
                         {"refused", refused}});
  }

  MountArguments options_;
  std::string file_;
  bool json_ = false;
  bool progressed_ = false;
};

class ExportCommand final : public ArchiveCommand {
 public:
  void add_to(Words& words) override {
    ArchiveCommand::add_to(words);
    words.add("--scope", &excerpt_.selection.scopes, "only of this scope: the first digits of its id; repeatable",
              "ID");
    words.add("--torch", &excerpt_.torch, "only of scopes with this torch: 2.9, or 2.9.1", "VERSION");
    words.add("--family", &excerpt_.selection.families, "only artefacts of this family; repeatable", "NAME");
    words.add("--pattern", &excerpt_.selection.pattern, "only artefacts whose path in the cluster matches GLOB",
              "GLOB");
  }

 protected:
  Result<archive::Report> transfer(const config::Settings& settings) override {
    return mount::export_cluster(settings, excerpt_, path(), progress());
  }
  std::string text_of(const archive::Report& report) const override {
    return "exported " + artefacts(report.done) + " of " + std::to_string(report.scopes) +
           (report.scopes == 1 ? " scope, " : " scopes, ") + human_bytes(report.bytes) + "\n" + refusals(report);
  }
  bool uses_output() const override { return file() == "-"; }

 private:
  archive::Excerpt excerpt_;
};

class ImportCommand final : public ArchiveCommand {
 public:
  void add_to(Words& words) override {
    ArchiveCommand::add_to(words);
    words.add("--for", &for_,
              "also what only these share, whose jobs run it: user=NAME, group=NAME, or all; repeatable", "WHO");
  }

 protected:
  Result<archive::Report> transfer(const config::Settings& settings) override {
    archive::Audience audience{false, {for_.begin(), for_.end()}};
    audience.all = audience.named.contains("all");
    audience.named.insert(std::string(archive::kEverybody));
    audience.named.insert("user=" + config::user_by_id(::geteuid()).name);
    return mount::import_cluster(settings, path(), audience, progress());
  }
  std::string text_of(const archive::Report& report) const override {
    std::string who;
    for (const auto& one : report.audience) who += (who.empty() ? "for " : ", ") + config::printable(one);
    return "imported " + artefacts(report.done) + (who.empty() ? "" : " " + who) + "; the cluster had " +
           std::to_string(report.had) + "\n" + refusals(report);
  }

 private:
  std::vector<std::string> for_;
};

}  // namespace

std::unique_ptr<Subcommand> export_command() { return std::make_unique<ExportCommand>(); }
std::unique_ptr<Subcommand> import_command() { return std::make_unique<ImportCommand>(); }

}  // namespace inductorfs::cli
