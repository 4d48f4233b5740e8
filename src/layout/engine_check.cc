// SPDX-License-Identifier: Apache-2.0
#include "engine_check.h"

#include "elf_file.h"
#include "inductorfs/codec/parcel.h"
#include "pickle_frame.h"

namespace inductorfs::layout {
namespace {

Result<void> check_parcel(const Artefact& artefact) {
  auto head = codec::decode_parcel_head(artefact.bytes);
  if (!head) return fail(head.error());
  auto bodies = codec::parcel_bodies(*head, artefact.bytes);
  if (!bodies) return corrupt(artefact, bodies.error().what());
  for (size_t i = 0; i < bodies->size(); ++i) {
    if (!head->items[i].directory && (*bodies)[i].empty()) return corrupt(artefact, head->items[i].path + " is empty");
  }
  return {};
}

}  // namespace

Result<void> check_engine_artefact(const Classification& classified, const Artefact& artefact,
                                   const HostLimits& /*host*/) {
  if (rule_of(classified.family).form != Form::kFile) return check_parcel(artefact);
  if (classified.family != Family::kVllmModel) return {};
  if (auto whole = check_pickle_frame(artefact.bytes); !whole) return corrupt(artefact, whole.error().what());
  return {};
}

Result<std::vector<std::string>> index_members(Family family, std::string_view /*index*/) {
  return fail(ErrorCode::kNotSupported, std::string(rule_of(family).name) + ": not read yet");
}

}  // namespace inductorfs::layout
