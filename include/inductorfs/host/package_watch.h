// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/place_reader.h"

namespace inductorfs::host {

/// Tells by inotify(7) that torch or Triton may have been installed anew: their version files, and names of theirs in
/// the folders that they are installed in. A file deep in a package is not noticed: the timer's traces see its folder.
/// Confined to the host-watch thread.
class PackageWatch {
 public:
  /// `reader` looks the places up.
  [[nodiscard]] static Result<PackageWatch> open(PlaceReader reader = {});

  /// To poll(2) for POLLIN; -1 when inotify is not to be had.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Watches these places from now on, and no others; a limited number of them.
  void follow(const Places& places);
  /// Takes what has come; whether any of it concerns torch or Triton.
  [[nodiscard]] bool take();

  PackageWatch() = default;

 private:
  enum class Kind { kPackage, kSite };
  PackageWatch(Fd fd, PlaceReader reader) : fd_(std::move(fd)), reader_(std::move(reader)) {}
  [[nodiscard]] bool concerns(int watch, unsigned mask, const std::string& name) const;

  Fd fd_;
  PlaceReader reader_;
  std::map<int, Kind> watches_;
};

}  // namespace inductorfs::host
