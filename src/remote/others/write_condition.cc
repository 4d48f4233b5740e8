// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/write_condition.h"

#include <algorithm>
#include <ctime>

namespace inductorfs::remote {

void WriteCondition::refused(Write write, const Error& why, SteadyTime now) {
  noted_.with([&](auto& all) {
    Noted& noted = all.at(static_cast<size_t>(write));
    if (noted.refusal.why.empty() || now - noted.repeated > kRepeated) noted.refusal.since = std::time(nullptr);
    noted.refusal.why = why.what();
    noted.repeated = now;
  });
}

void WriteCondition::taken(Write write) {
  noted_.with([&](auto& all) { all.at(static_cast<size_t>(write)) = {}; });
}

WriteCondition::Refusal WriteCondition::refusal(SteadyTime now) const {
  return noted_.with([&](const auto& all) {
    Refusal told;
    for (const Noted& noted : all) {
      if (noted.refusal.why.empty() || now - noted.repeated > kRepeated) continue;
      if (told.why.empty()) told.why = noted.refusal.why;
      told.since = told.since == 0 ? noted.refusal.since : std::min(told.since, noted.refusal.since);
    }
    return told;
  });
}

}  // namespace inductorfs::remote
