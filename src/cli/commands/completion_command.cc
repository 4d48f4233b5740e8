// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "completion_scripts.h"

namespace inductorfs::cli {
namespace {

class CompletionCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    KnownWord& shell = words.add("SHELL", &shell_, "bash or zsh");
    shell.required = true;
    shell.among = {"bash", "zsh"};
  }
  [[nodiscard]] int run(const config::Environment&) override {
    return print(shell_ == "zsh" ? kZshCompletions : kBashCompletions);
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Subcommand> completion_command() { return std::make_unique<CompletionCommand>(); }

}  // namespace inductorfs::cli
