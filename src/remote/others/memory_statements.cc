// SPDX-License-Identifier: Apache-2.0
#include "remote/others/memory_statements.h"

#include <map>
#include <utility>

#include "inductorfs/base/guarded.h"

namespace inductorfs::remote {
namespace {

class MemoryStatements final : public Statements {
 public:
  Result<void> put_statement(const std::string& scope, std::string_view bytes, std::span<const std::string> keys,
                             Milliseconds lifetime, Deadline /*deadline*/) override {
    INDUCTORFS_TRY(check_statement(bytes, keys));
    if (lifetime.count() <= 0) return fail(ErrorCode::kInvalid, "the lifetime of a statement must be positive");
    const std::string id = statement_id(bytes);
    const SteadyTime until = std::chrono::steady_clock::now() + lifetime;
    state_.with([&](State& state) {
      state.statements[{scope, id}] = {std::string(bytes), until};
      for (const std::string& key : keys) state.covered[{scope, key}] = id;
    });
    return {};
  }
  Result<std::vector<std::string>> find_statements(const std::string& scope, std::span<const std::string> keys,
                                                   Deadline /*deadline*/) override {
    if (!keys.empty()) INDUCTORFS_TRY(check_statement("-", keys));
    return state_.with([&](const State& state) {
      std::vector<std::string> ids;
      for (const std::string& key : keys) {
        const auto found = state.covered.find({scope, key});
        ids.push_back(found == state.covered.end() ? std::string() : found->second);
      }
      return ids;
    });
  }
  Result<std::vector<std::string>> read_statements(const std::string& scope, std::span<const std::string> ids,
                                                   Deadline /*deadline*/) override {
    if (ids.size() > kCoveredLimit) return fail(ErrorCode::kInvalid, "too many statements at once");
    const SteadyTime now = std::chrono::steady_clock::now();
    return state_.with([&](const State& state) {
      std::vector<std::string> all;
      for (const std::string& id : ids) {
        const auto found = state.statements.find({scope, id});
        const bool is_there = found != state.statements.end() && found->second.second > now;
        all.push_back(is_there ? found->second.first : std::string());
      }
      return all;
    });
  }

 private:
  struct State {
    std::map<std::pair<std::string, std::string>, std::pair<std::string, SteadyTime>> statements;
    std::map<std::pair<std::string, std::string>, std::string> covered;
  };
  Guarded<State> state_;
};

}  // namespace

std::shared_ptr<Statements> make_memory_statements() { return std::make_shared<MemoryStatements>(); }

}  // namespace inductorfs::remote
