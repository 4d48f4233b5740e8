// SPDX-License-Identifier: Apache-2.0
// The words for what a rule says, in documents and answers.
#include <string_view>

#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {

std::string_view to_string(SealSign sign) {
  switch (sign) {
    case SealSign::kRename:
      return "rename";
    case SealSign::kBuildDirectory:
      return "build directory";
    case SealSign::kQuiet:
      return "quiet";
    case SealSign::kNever:
      return "none";
  }
  return "unknown";
}

std::string_view to_string(Form form) {
  switch (form) {
    case Form::kFile:
      return "file";
    case Form::kDirectory:
      return "directory";
    case Form::kIndex:
      return "index";
  }
  return "unknown";
}

std::string_view to_string(Contest contest) {
  switch (contest) {
    case Contest::kNone:
      return "none";
    case Contest::kFirst:
      return "first";
    case Contest::kCandidates:
      return "candidates";
    case Contest::kMerge:
      return "merge";
    case Contest::kFirstOfPath:
      return "first of path";
  }
  return "unknown";
}

}  // namespace inductorfs::layout
