// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "inductorfs/base/fd.h"

namespace inductorfs::testing {

/// What a program on a mount did, kept outside of everything that a crash may hurt: a line before each step ("try") and
/// one when it was acknowledged ("did"). Needs external synchronisation.
class Ledger {
 public:
  explicit Ledger(const std::string& file);

  /// What may be found under a path.
  struct Expected {
    std::set<std::string> values;  ///< any of these
    std::set<std::string> ever;    ///< what was written there at any time
    bool may_be_absent = true;
    bool shared = false;      ///< the cluster must get it
    bool is_set = false;      ///< a Triton key directory: `values` are its writers
    bool is_parcel = false;   ///< a directory that is one artefact: the same
    bool unfinished = false;  ///< the last step on it was not acknowledged
    bool later = false;       ///< it may take until all is published
  };

  void tries(const std::string& verb, const std::string& path, const std::string& value = "-");
  void did(const std::string& verb, const std::string& path, const std::string& value = "-");
  [[nodiscard]] static std::map<std::string, Expected> read(const std::string& file);

 private:
  void write(const std::string& line);
  Fd file_;
};

}  // namespace inductorfs::testing
