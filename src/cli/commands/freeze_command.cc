// SPDX-License-Identifier: Apache-2.0
#include "cli/common/cluster_arguments.h"
#include "cli/common/command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"

namespace inductorfs::cli {
namespace {

using Kind = mount::ClusterRequest::Kind;

class FreezeCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    cluster_.add_to(words);
    words.add("--lift", &lift_, "end it: all mounts show and publish again");
    words.add("--why", &why_, "tell TEXT to whoever asks a mount, 512 bytes at most", "TEXT");
    add_acknowledge_timeout(words, timeout_);
  }
  [[nodiscard]] Result<void> check() const override {
    if (lift_ && !why_.empty()) return fail(ErrorCode::kInvalid, "--lift and --why exclude each other");
    constexpr size_t kMost = mount::ClusterRequest::kTextLimit;
    if (config::printable(why_).size() > kMost) {
      return fail(ErrorCode::kInvalid, "--why has " + std::to_string(config::printable(why_).size()) + " bytes: give " +
                                           std::to_string(kMost) + " at most");
    }
    return cluster_.check();
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    mount::ClusterRequest request;
    request.kind = lift_ ? Kind::kLift : Kind::kFreeze;
    request.why = config::printable(why_);
    request.acknowledged = std::chrono::seconds(timeout_);
    const auto answer = cluster_.ask(std::move(request), environment);
    if (!answer) return fail_query(answer.error(), cluster_.json());
    const std::string text = std::string(lift_ ? "the freeze is lifted" : "the cluster is frozen") + ": ";
    const int printed = print(cluster_.json() ? config::to_pretty(*answer) + "\n" : text + obedience_text(*answer));
    return printed == kExitDone ? obedience_code(*answer) : printed;
  }

 private:
  ClusterArguments cluster_;
  bool lift_ = false;
  std::string why_;
  int64_t timeout_ = 15;
};

}  // namespace

std::unique_ptr<Subcommand> freeze_command() { return std::make_unique<FreezeCommand>(); }

}  // namespace inductorfs::cli
