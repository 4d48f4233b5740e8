// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

namespace inductorfs::vfs {

/// A path below a directory as far as its last component: that component's directory is held open, and the component is
/// for a call that does not follow it. None of the components before it was a symbolic link, and none led out of the
/// directory, whatever the users who may write there made of the path meanwhile: what was a directory and is none now
/// is not there (kNotFound). LocalTree has all the calls that take such a component (tests/lint/check_paths.py).
/// Needs external synchronisation.
class HeldParent {
 public:
  /// `directory` must stay open as long as the object is used. Blocks on the local disk only.
  [[nodiscard]] static Result<HeldParent> of(int directory, std::string_view path);

  [[nodiscard]] int fd() const { return own_ ? own_.get() : directory_; }
  [[nodiscard]] const char* name() const { return name_.c_str(); }
  /// The whole path for calls that take no directory: /proc/self/fd/N/NAME.
  [[nodiscard]] std::string in_proc() const { return "/proc/self/fd/" + std::to_string(fd()) + "/" + name_; }

 private:
  HeldParent(int directory, Fd own, std::string_view name) : directory_(directory), own_(std::move(own)), name_(name) {}

  int directory_;
  Fd own_;  ///< none when the component is in `directory` itself
  std::string name_;
};

}  // namespace inductorfs::vfs
