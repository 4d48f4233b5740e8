// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/config/json.h"
#include "inductorfs/host/report.h"
#include "inductorfs/layout/scope.h"
#include "remote/formats/scope_text.h"

namespace host = inductorfs::host;
namespace fuzz = inductorfs::fuzz;
namespace layout = inductorfs::layout;
namespace remote = inductorfs::remote;

namespace {

/// What other hosts announced: the id is made to fit, or nothing would be taken.
void fuzz_announced(std::string_view value) {
  const size_t family = value.size() > 1 ? static_cast<uint8_t>(value[1]) : 0;
  const std::string_view text = value.size() > 2 + family ? value.substr(2 + family) : std::string_view();
  const std::string id = inductorfs::codec::digest_of(text).to_hex();
  const auto scope = remote::decode_information(id, value);
  if (!scope) return;
  INDUCTORFS_CHECK(scope->id == id && remote::encode_information(*scope) == value);
  for (const char c : scope->family + scope->text) {
    INDUCTORFS_CHECK((static_cast<unsigned char>(c) >= ' ' && c != 0x7f) || c == '\n' || c == '\t');
  }
  INDUCTORFS_CHECK(!remote::decode_information(inductorfs::codec::digest_of(id).to_hex(), value));
}

void fuzz_texts(std::string_view ours, std::string_view theirs) {
  INDUCTORFS_CHECK(layout::compare_scopes(ours, ours).empty());
  const auto there = layout::compare_scopes(ours, theirs);
  const auto back = layout::compare_scopes(theirs, ours);
  INDUCTORFS_CHECK(there.size() == back.size());
  for (size_t i = 0; i < there.size(); ++i) {
    INDUCTORFS_CHECK(there[i].facet == back[i].facet && there[i].ours == back[i].theirs);
  }
  const std::vector<remote::ScopeInformation> others = {{"a", "fxgraph", std::string(theirs)},
                                                        {"b", "triton", std::string(ours)}};
  const auto nearest = host::nearest_report(std::string(ours), others);
  INDUCTORFS_CHECK(nearest.contains("why_none") != nearest.contains("scope"));
}

}  // namespace

/// The first byte picks: an announcement, or two texts with a NUL between them.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  if (fuzz::take_byte(input) % 2 == 0) {
    fuzz_announced(input);
  } else {
    const auto [ours, theirs] = fuzz::halves(input);
    fuzz_texts(ours, theirs);
  }
  return 0;
}
